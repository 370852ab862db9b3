package fairlock

import (
	"context"

	"github.com/fairlock/fairlock-go/lua"
)

// Mutex is a lock with one holder at a time. It is a value without state of its own: copies, and Mutexes of the same
// name from other clients, are the same lock. It is safe for concurrent use.
type Mutex struct{ lock *lock }

// Mutex returns the mutex with that name, any 1 to MaxName bytes. It does no I/O. The Mutex's methods return an error
// for a name that is out of bounds.
func (c *Client) Mutex(name string) Mutex {
	return Mutex{c.lock(mutex, name, lua.Mutex(c.dispatch, c.cfg.Namespace, name), nil)}
}

// Lock waits in order until the lock is granted, and returns the lease. ctx bounds the waiting, not the lease: when it
// ends, Lock returns its error within 100 ms, even if Redis hangs. The waiter leaves the queue then, or as soon as Redis
// answers. If Redis answers none of its requests to leave, it expires: after its WaiterTTL or, if it was granted the lock
// meanwhile, after its TTL.
//
// The order is the order of arrival at Redis. A waiter in the queue survives lost connections and restarts of Redis. A
// first request that cannot reach Redis is an error once go-redis has given up on it (some seconds by default).
// Errors: that of ctx (in a *HeldError, if a holder is known at its deadline), ErrQueueFull, ErrClosed, ErrInvalid, or one
// of Redis. After an error the caller does not hold the lock.
func (m Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "lock", 1, false, nil)
}

// TryLock returns the lease if the lock is free and nobody waits for it, and ErrBusy otherwise (in a *HeldError, if the
// lock is held). It never overtakes a waiter, and never joins the queue. Its answer holds for this moment only: if several
// machines try to do a job once, record under the lock that it is done. ctx bounds it. Errors: as Lock, and ErrLost if
// the lock was granted, but the reply came when the lease had ended.
func (m Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "trylock", 1, true, nil)
}

// Do runs f while it holds the lock. f's ctx ends when the lease does, for whatever reason (see context.Cause), or when
// ctx ends; f should return then. LeaseFromContext finds the lease in it, for its fence. f is never called without the
// lock. Do releases the lock when f returns or panics. It returns f's error, joined with an error of the lock: ErrLost
// if it was lost before it was released, although f ran. Check for ErrLost first: f's own error may only say that its ctx
// has ended.
func (m Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "do", 1, nil, f)
}
