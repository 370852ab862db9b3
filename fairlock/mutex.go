package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Mutex is a lock with one holder at a time. It is a value without state of its own: copies, and Mutexes of the same
// name from other clients, are the same lock. It is safe for concurrent use.
type Mutex struct{ lock *lock }

// Mutex returns the mutex with that name, any 1 to MaxName bytes. It does no I/O. The Mutex's methods return an error
// for a name that is out of bounds.
func (c *Client) Mutex(name string) Mutex {
	return Mutex{c.lock(mutex, name, lua.Mutex(c.dispatch, c.cfg.Namespace, name), nil)}
}

// WithTTL returns the same lock, whose leases last d. The bounds are those of Config.TTL; methods of the returned value
// return an error for a d that is out of bounds.
func (m Mutex) WithTTL(d time.Duration) Mutex { return Mutex{m.lock.withTTL(d)} }

// WithMaxWaiters returns the same lock with another bound on its queue: Lock of the returned value returns ErrQueueFull
// if n others wait. 0 means any number.
func (m Mutex) WithMaxWaiters(n int) Mutex { return Mutex{m.lock.withMaxWaiters(n)} }

// Lock waits in order until the lock is granted, and returns the lease. ctx bounds the waiting, not the lease: when it
// ends, Lock returns its error within 100 ms, even if Redis hangs. The waiter leaves the queue then, or as soon as Redis
// answers. If Redis answers none of its requests to leave, it expires: after its WaiterTTL or, if it was granted the lock
// meanwhile, after its TTL.
//
// The order is the order of arrival at Redis. A waiter in the queue survives lost connections and restarts of Redis. A
// first request that cannot reach Redis is an error once go-redis has given up on it (some seconds by default).
// Errors: ctx's (in a *HeldError, if a holder is known at its deadline), ErrQueueFull, ErrClosed, ErrInvalid, or
// Redis's own. After an error the caller does not hold the lock.
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

// Resume continues a lease that was begun elsewhere, perhaps in another process, and whose token was passed on: it
// renews it for this lock's TTL, and returns a lease like any other. ErrLost means that the token does not hold the
// lock. ctx bounds it.
//
// Pass on Lease.Token().Text() and read it with token.Parse. Do not go on using the lease where it began; there it is
// renewed until it is lost or its client is closed. After one of the two is unlocked, the other finds ErrLost.
func (m Mutex) Resume(ctx context.Context, t token.Token) (*Lease, error) {
	return m.lock.resume(ctx, t)
}

// Inspect returns the holder and the waiters of the lock at one moment. It changes nothing. ctx bounds it.
func (m Mutex) Inspect(ctx context.Context) (State, error) {
	return m.lock.inspect(ctx)
}

// ForceRelease takes the lock from its holder, hands it to the first waiter, and reports whether the lock was held. The
// holder trusts its lease until its next renewal; a resource that checks fences refuses it as soon as it has seen a later
// holder's. For operators. ctx bounds it.
func (m Mutex) ForceRelease(ctx context.Context) (bool, error) {
	return m.lock.forceRelease(ctx)
}
