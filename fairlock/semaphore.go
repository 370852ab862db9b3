package fairlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// MaxPermits is the most permits a Semaphore can have.
const MaxPermits = 1 << 31

// Semaphore bounds how much happens at once, over all processes: it has a number of permits, of which every holder
// has one or more. Who waits is served in order: a waiter for three permits is not passed by one for a single permit
// that would fit. It is a value without state of its own: copies, and Semaphores of the same name from other clients,
// are the same. It is safe for concurrent use.
type Semaphore struct {
	lock
	permits int
}

// Semaphore returns the semaphore with that name, any 1 to MaxName bytes, and so many permits, 1 to MaxPermits. It
// has nothing in common with a Mutex or an RWMutex of that name. It does no I/O; input out of its bounds is reported
// by the Semaphore's methods.
//
// The number of permits is fixed while anybody holds or waits: who comes with another one gets a *CapacityError. When
// nobody is there, the next number holds.
func (c *Client) Semaphore(name string, permits int) Semaphore {
	l := c.lock(semaphore, name, lua.Semaphore(c.rdb, c.cfg.Namespace, name, permits))
	if permits < 1 || int64(permits) > MaxPermits {
		l.blame(&FieldError{"permits", fmt.Sprintf("%d, must be from 1 to %d", permits, int64(MaxPermits))})
	}
	return Semaphore{l, permits}
}

// WithTTL returns the same semaphore whose leases last d. Bounds as Config.TTL; a fault is reported by the methods.
func (s Semaphore) WithTTL(d time.Duration) Semaphore {
	s.setTTL(d)
	return s
}

// WithMaxWaiters returns the same semaphore with another bound on its queue: an Acquire by the returned value is refused
// with ErrQueueFull if n others wait. 0 means any number.
func (s Semaphore) WithMaxWaiters(n int) Semaphore {
	s.setMaxWaiters(n)
	return s
}

// Acquire waits in order until n permits are granted, from 1 to as many as there are, and returns the lease on all of
// them. They come and go together. All that is said of Mutex.Lock holds. Errors: as there, and *CapacityError.
func (s Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	s.want(n)
	return s.acquire(ctx, "acquire", false)
}

// TryAcquire returns the lease if n permits are free and nobody waits, and ErrBusy otherwise. It never overtakes a
// waiter and leaves no trace. ctx bounds it. Errors: as Acquire.
func (s Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	s.want(n)
	return s.acquire(ctx, "tryacquire", true)
}

// Do runs f while it holds n permits, as Mutex.Do does with a lock.
func (s Semaphore) Do(ctx context.Context, n int, f func(ctx context.Context) error) error {
	s.want(n)
	return s.do(ctx, "acquire", f)
}

// Resume goes on with a lease that was begun elsewhere, as Mutex.Resume does. The number of permits does not matter to
// it, nor to Inspect and ForceRelease.
func (s Semaphore) Resume(ctx context.Context, t token.Token) (*Lease, error) {
	return s.resume(ctx, t)
}

// Inspect tells who holds how many permits and who waits for how many, at one moment. It changes nothing. ctx bounds
// it.
func (s Semaphore) Inspect(ctx context.Context) (State, error) {
	return s.inspect(ctx)
}

// ForceRelease takes their permits from all who hold any and hands them over to those who wait, as Mutex.ForceRelease
// does with a lock. (To take those of one holder: Resume the lease by its token, which Inspect tells, and Unlock it.)
func (s Semaphore) ForceRelease(ctx context.Context) (bool, error) {
	return s.forceRelease(ctx)
}

// want sets how many permits are asked for.
func (s *Semaphore) want(n int) {
	s.weight = n
	if n < 1 || n > max(s.permits, 1) {
		s.blame(&FieldError{"n", fmt.Sprintf("%d permits, must be from 1 to %d", n, s.permits)})
	}
}
