package fairlock

import (
	"context"

	"github.com/fairlock/fairlock-go/internal/bounds"
)

// Semaphore has a number of permits, and each holder has one or more of them.
type Semaphore struct{ shared }

// Semaphore returns the semaphore with that name and number of permits, 1 to 2^30. It is otherwise like Client.Mutex.
//
// Each request brings its number of permits, and is granted when no more than that are held with it. So the number can change
// from one deployment to the next. Meanwhile no more permits than the larger number are held, and a request with the smaller one
// waits at the head of the queue until so few are held. The client logs that once. A number that Resize has set counts instead.
func (c *Client) Semaphore(name string, permits int, options ...HoldOption) Semaphore {
	return Semaphore{shared{newLock(c, KindSemaphore, name, permits, options)}}
}

// Acquire waits in order until n permits are granted, from 1 to the semaphore's number, and returns the lease on all of them. It
// is otherwise like Mutex.Lock. It can also return a *CapacityError, if the semaphore was resized to fewer than n permits. It
// never returns ErrReentrant, because a holder may acquire more permits. Two that do so can wait for each other until ctx ends.
func (s Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	return s.lock.acquire(ctx, "acquire", n, false, s.check(n))
}

// TryAcquire returns the lease if n permits are free and nobody waits. It is otherwise like Mutex.TryLock, and can also return a
// *CapacityError.
func (s Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	return s.lock.acquire(ctx, "tryacquire", n, true, s.check(n))
}

// Do runs f while it holds n permits, as Mutex.Do does.
func (s Semaphore) Do(ctx context.Context, n int, f func(ctx context.Context) error) error {
	return s.lock.do(ctx, "do", n, false, s.check(n), f)
}

// TryDo runs f while it holds n permits, as Mutex.TryDo does.
func (s Semaphore) TryDo(ctx context.Context, n int, f func(ctx context.Context) error) error {
	return s.lock.do(ctx, "trydo", n, true, s.check(n), f)
}

// Resize is for operators. It sets the number of permits for all users of the semaphore, whatever number their requests bring,
// until ResetSize. Redis keeps the number without an expiry.
//
// Waiters that can have permits then are granted them at once, in order. Holders keep what they have. A waiter that wants more
// than there are gets a *CapacityError once it is the first of the queue, by its next heartbeat. ctx bounds the request, 3 s at
// most. After an error the number may have been set. Resize can be called again.
func (s Semaphore) Resize(ctx context.Context, permits int) error {
	return s.lock.resize(ctx, "resize", permits, checkPermits(permits))
}

// ResetSize ends what Resize has set: the number that each request brings counts again.
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
