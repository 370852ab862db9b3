package fairlock

import (
	"context"

	"github.com/fairlock/fairlock-go/internal/bounds"
)

// Semaphore bounds how much happens at once, over all processes. It has a number of permits, and every holder has one or
// more of them. Waiters are served in order. A waiter for one permit never passes one for three, even if one permit is
// free. A Semaphore is a value without state of its own. Copies, and Semaphores of the same name from other clients, are
// the same. It is safe for concurrent use.
type Semaphore struct{ shared }

// Semaphore returns the semaphore with that name, any 1 to 1,024 bytes, and that number of permits, 1 to 2^30. It
// has nothing in common with a Mutex or an RWMutex of that name. It does no I/O. The Semaphore's methods return an error
// for input that is out of bounds.
//
// Each request brings its number of permits, and is granted when no more than that are held with it. So the number can change
// from one deployment to the next: while two are in use, no more than the larger one are held, and a request with the smaller one
// waits at the head of the queue, before all others, until so few are held. The client logs that once. Once Semaphore.Resize
// has set a number, that counts instead.
func (c *Client) Semaphore(name string, permits int, options ...HoldOption) Semaphore {
	return Semaphore{shared{newLock(c, KindSemaphore, name, permits, options)}}
}

// Acquire waits in order until n permits are granted, from 1 to the semaphore's number, and returns the lease on all of them. They
// are granted and released together. Acquire is otherwise like Mutex.Lock. It can also return a *CapacityError: at once, or while
// it waits, if the semaphore was resized to fewer than n permits. It never returns ErrReentrant: a holder may acquire more
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

// Resize sets the number of permits, from 1 to 2^30, for all users of the semaphore, whatever number their requests
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

// ResetSize ends what Resize has set: the number of permits is again the one that each request brings, as Client.Semaphore
// says. ctx and errors are as those of Resize.
func (s Semaphore) ResetSize(ctx context.Context) error {
	return s.lock.resize(ctx, "resetsize", 0, nil)
}

// check returns an error unless the semaphore has n permits. Whether it was resized, Redis knows.
func (s Semaphore) check(n int) error {
	if s.lock == nil {
		return nil // that is an error of its own
	}
	return require(n >= 1 && n <= s.lock.permits, "n", "%d permits, must be from 1 to %d", n, s.lock.permits)
}

func checkPermits(permits int) error {
	return require(permits >= 1 && permits <= bounds.MaxPermits, "permits", "%d, must be from 1 to %d", permits, bounds.MaxPermits)
}
