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
type Semaphore struct{ lock *lock }

// Semaphore returns the semaphore with that name, any 1 to MaxName bytes, and that number of permits, 1 to MaxPermits. It
// has nothing in common with a Mutex or an RWMutex of that name. It does no I/O. The Semaphore's methods return an error
// for input that is out of bounds.
//
// The number of permits is fixed while anybody holds permits or waits for them. A request that brings another number gets
// a *CapacityError. After that, the next request fixes the number. Once Semaphore.Resize has set a number, that counts
// instead, whatever number a request brings.
func (c *Client) Semaphore(name string, permits int) Semaphore {
	invalid := checkPermits(permits)
	redis := lua.Semaphore(c.dispatch.of(name), c.cfg.Namespace, name, permits)
	return Semaphore{c.newLock(semaphore, name, redis, invalid)}
}

// Acquire waits in order until n permits are granted, from 1 to MaxPermits, and returns the lease on all of them. They are
// granted and released together. Acquire is otherwise like Mutex.Lock. It can also return a *CapacityError: at once, or while
// it waits, if the semaphore is resized to fewer than n permits. It never returns ErrReentrant: a holder may acquire more
// permits. Two that do so can wait for each other until ctx ends.
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

// Resize sets the number of permits, from 1 to MaxPermits, for all users of the semaphore, whatever number their clients
// bring, until ResetSize. It is for operators, and called once, not by each process at its start. Redis keeps the number
// without an expiry, also while nobody uses the semaphore; if Redis loses it, that is as ResetSize.
//
// If there are more permits than before, waiters that can have them are granted them at once, in order. If there are fewer,
// holders keep what they have until they release it, so more may be held for a while. Acquire returns a *CapacityError if it
// wants more than there are. A waiter that does learns of it when it is the first of the queue, by its next heartbeat, and
// those behind it go on. Nobody else loses its place.
//
// ctx bounds the request, which is sent again while Redis does not serve it, for 3 s at most; after that the error is
// ErrUnreachable. On a Redis without free memory the number stays as it was. After an error without a reply of Redis the number
// may have been set, or be set later; Resize can be called again.
func (s Semaphore) Resize(ctx context.Context, permits int) error {
	return s.lock.resize(ctx, "resize", permits, checkPermits(permits))
}

// ResetSize ends what Resize has set: the number of permits is again the one that the clients bring, as Client.Semaphore
// says. While anybody holds permits or waits, it is the one that was brought last. ctx and errors are as those of Resize.
func (s Semaphore) ResetSize(ctx context.Context) error {
	return s.lock.resize(ctx, "resetsize", 0, nil)
}

// check returns an error unless n permits can be requested. Whether there are as many, Redis knows.
func (s Semaphore) check(n int) error {
	return require(n >= 1 && n <= MaxPermits, "n", "%d permits, must be from 1 to %d", n, MaxPermits)
}

func checkPermits(permits int) error {
	return require(permits >= 1 && permits <= MaxPermits, "permits", "%d, must be from 1 to %d", permits, MaxPermits)
}
