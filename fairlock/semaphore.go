package fairlock

import (
	"context"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// MaxPermits is the most permits a Semaphore can have.
const MaxPermits = token.MaxWeight // 2^30

// Semaphore bounds how much happens at once, over all processes. It has a number of permits, and every holder has one or
// more of them. Waiters are served in order. A waiter for one permit never passes one for three, even if one permit is
// free. A Semaphore is a value without state of its own. Copies, and Semaphores of the same name from other clients, are
// the same. It is safe for concurrent use.
type Semaphore struct {
	lock    *lock
	permits int
}

// Semaphore returns the semaphore with that name, any 1 to MaxName bytes, and that number of permits, 1 to MaxPermits. It
// has nothing in common with a Mutex or an RWMutex of that name. It does no I/O. The Semaphore's methods return an error
// for input that is out of bounds.
//
// The number of permits is fixed while anybody holds permits or waits for them. A request that brings another number gets
// a *CapacityError. After that, the next request fixes the number.
func (c *Client) Semaphore(name string, permits int) Semaphore {
	invalid := require(permits >= 1 && permits <= MaxPermits, "permits",
		"%d, must be from 1 to %d", permits, MaxPermits)
	redis := lua.Semaphore(c.dispatch, c.cfg.Namespace, name, permits)
	return Semaphore{c.newLock(semaphore, name, redis, invalid), permits}
}

// Acquire waits in order until n permits are granted, from 1 to as many as there are, and returns the lease on all of
// them. They are granted and released together. Acquire is otherwise like Mutex.Lock. It can also return a *CapacityError, and
// never ErrReentrant: a holder may acquire more permits. Two that do so can wait for each other until ctx ends.
func (s Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	return s.lock.acquire(ctx, "acquire", n, false, s.check(n))
}

// TryAcquire returns the lease if n permits are free and nobody waits, and ErrBusy otherwise. It never overtakes a
// waiter, and never joins the queue. TryAcquire is otherwise like Mutex.TryLock. It can also return a *CapacityError.
func (s Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	return s.lock.acquire(ctx, "tryacquire", n, true, s.check(n))
}

// Do runs f while it holds n permits, as Mutex.Do does with a lock.
func (s Semaphore) Do(ctx context.Context, n int, f func(ctx context.Context) error) error {
	return s.lock.do(ctx, "do", n, false, s.check(n), f)
}

// TryDo runs f while it holds n permits, if TryAcquire gets them, as Mutex.TryDo does with a lock.
func (s Semaphore) TryDo(ctx context.Context, n int, f func(ctx context.Context) error) error {
	return s.lock.do(ctx, "trydo", n, true, s.check(n), f)
}

// check returns an error unless n permits can be requested.
func (s Semaphore) check(n int) error {
	return require(n >= 1 && n <= max(s.permits, 1), "n", "%d permits, must be from 1 to %d", n, s.permits)
}
