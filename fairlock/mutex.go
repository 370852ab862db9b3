package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Mutex is a lock with one holder at a time. It is a value without state of its own: copies, and Mutexes of the same
// name from other clients, are the same lock. It is safe for concurrent use.
type Mutex struct{ lock }

// Mutex returns the mutex with that name, any 1 to MaxName bytes. It does no I/O; a name out of its bounds is
// reported by the Mutex's methods.
func (c *Client) Mutex(name string) Mutex {
	return Mutex{c.lock(mutex, name, lua.Mutex(c.rdb, c.cfg.Namespace, name))}
}

// WithTTL returns the same lock whose leases last d. Bounds as Config.TTL; a fault is reported by the methods.
func (m Mutex) WithTTL(d time.Duration) Mutex {
	m.setTTL(d)
	return m
}

// WithMaxWaiters returns the same lock with another bound on its queue: a Lock by the returned value is refused with
// ErrQueueFull if n others wait. 0 means any number.
func (m Mutex) WithMaxWaiters(n int) Mutex {
	m.setMaxWaiters(n)
	return m
}

// Lock waits in order until the lock is granted, and returns the lease. ctx bounds the waiting, not the lease: when it
// ends, Lock returns its error within 100 ms, even if Redis hangs, and leaves nothing behind once Redis answers.
//
// The order is the order of arrival at Redis. While it waits, lost connections and restarts of Redis are survived; a
// first request that cannot reach Redis is an error once go-redis has given up on it (some seconds by default).
// Errors: ctx's, ErrQueueFull, ErrClosed, ErrInvalid, or Redis's own. After an error the lock is not held.
func (m Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, "lock", false)
}

// TryLock returns the lease if the lock is free and nobody waits for it, and ErrBusy otherwise. It never overtakes a
// waiter and leaves no trace. It tells about this moment only: of a job that several machines try to do once, record
// under the lock that it is done. ctx bounds it. Errors: as Lock.
func (m Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, "trylock", true)
}

// Do runs f while it holds the lock. f's ctx ends when the lease does, for whatever reason (context.Cause tells), or
// when ctx ends; f should return then. LeaseFromContext finds the lease in it, for its fence. f is never called without
// the lock. The lock is released when f returns or
// panics. Do returns f's error joined with that of the lock: ErrLost if it was lost before it was released, although
// f ran. Look for ErrLost first: f's own error may well be the end of its ctx.
func (m Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.do(ctx, "lock", f)
}

// Resume goes on with a lease that was begun elsewhere, in another process perhaps, and whose token was passed on:
// it renews it for this lock's TTL, and from then on it is a lease like any other. ErrLost says that the token does
// not hold the lock. ctx bounds it.
//
// Pass on Lease.Token().Text() and read it with token.Parse. The lease must not go on being used where it began, where it
// is renewed until it is lost or its client is closed; whichever is unlocked first, the other one finds ErrLost.
func (m Mutex) Resume(ctx context.Context, t token.Token) (*Lease, error) {
	return m.resume(ctx, t)
}

// Inspect tells who holds the lock and who waits, at one moment. It changes nothing. ctx bounds it.
func (m Mutex) Inspect(ctx context.Context) (State, error) {
	return m.inspect(ctx)
}

// ForceRelease takes the lock from whoever holds it and hands it over to the first waiter, and reports whether
// anybody held it. The holder that is robbed believes in its lease until its next renewal; a resource that checks
// fences is safe from it at once. For operators. ctx bounds it.
func (m Mutex) ForceRelease(ctx context.Context) (bool, error) {
	return m.forceRelease(ctx)
}
