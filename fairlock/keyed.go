package fairlock

import (
	"context"
	"errors"

	"github.com/fairlock/fairlock-go/internal/bounds"
)

// KeyedSemaphore is a semaphore whose permits are shared fairly between keys, such as tenants. The next permit goes to
// the key that holds the fewest for its share; of several, to the one whose turn began first. Within a key, first come,
// first served. A key at its limit lets others pass and keeps its turn.
//
// Turns count grants, not time. A request for several permits gets them in one turn. With more keys than permits, a
// key whose holders take longer gets more of the total time. New keys lengthen each round, so choose keys that a caller
// cannot make up.
// Everybody who can read Redis or the logs sees the keys.
type KeyedSemaphore struct{ shared }

// KeyedSemaphore returns the keyed semaphore with that name and number of permits, 1 to 2^30. Otherwise it is like
// Client.Semaphore, with which it shares no permits. The options are defaults for its keys, but for WithMaxWaiters,
// which bounds the waiters of all keys together, and WithShare, which is an ErrInvalid here.
func (c *Client) KeyedSemaphore(name string, permits int, options ...KeyOption) KeyedSemaphore {
	l := newLock(c, KindKeyedSemaphore, name, permits, options)
	if l.settings.shared {
		l.invalid = errors.Join(l.invalid, &FieldError{"Share", "must be set for a key"})
	}
	return KeyedSemaphore{shared{l}}
}

// Resize is like Semaphore.Resize. It does not change key limits.
func (s KeyedSemaphore) Resize(ctx context.Context, permits int) error {
	return s.lock.resize(ctx, "resize", permits, checkPermits(permits))
}

// ResetSize is like Semaphore.ResetSize.
func (s KeyedSemaphore) ResetSize(ctx context.Context) error {
	return s.lock.resize(ctx, "resetsize", 0, nil)
}

// Key returns the semaphore as that key uses it. It does no I/O, and nothing is kept for a key without holder and
// waiter. The key is any text of 1 to 128 bytes. The options apply to this value. Each request brings its limit and
// share: the first waiter of a key speaks for the key. WithMaxWaiters bounds the waiters of the key.
func (s KeyedSemaphore) Key(key string, options ...KeyOption) SemaphoreKey {
	if s.lock == nil {
		return SemaphoreKey{}
	}
	l := *s.lock
	own := l.settings
	own.maxWaiters = 0
	own, invalid := with(l.client.cfg.Clock, own, options)
	own.maxLine, own.maxWaiters = own.maxWaiters, l.settings.maxWaiters
	l.key, l.settings = key, own
	l.invalid = errors.Join(l.invalid, invalid,
		require(key != "" && len(key) <= bounds.MaxKey, "key", "%d bytes, must be from 1 to %d", len(key), bounds.MaxKey))
	l.wire()
	return SemaphoreKey{&l}
}

// SemaphoreKey is a [KeyedSemaphore] as one key uses it. It is a value, safe for concurrent use.
type SemaphoreKey struct{ lock *lock }

// Acquire waits for the key's turn until n permits are granted, from 1 to the semaphore's number and the key limit.
// Otherwise it is like Semaphore.Acquire. A *QueueFullError says whether the queue of the lock or the line of the key
// is full.
func (k SemaphoreKey) Acquire(ctx context.Context, n int) (*Lease, error) {
	return k.lock.acquire(ctx, "acquire", n, k.check(n))
}

// TryAcquire returns the lease if n permits are free, nobody of the key waits, the key has room below its limit, and no
// other key comes first. Else it returns ErrBusy in a *HeldError, whose Busy says why. If too few permits are free,
// that is BusyLock, whatever else is in the way. Otherwise it is like Semaphore.TryAcquire.
func (k SemaphoreKey) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	return k.lock.tryAcquire(ctx, "tryacquire", n, k.check(n))
}

// Do runs f while the key holds n permits, as Mutex.Do does.
func (k SemaphoreKey) Do(ctx context.Context, n int, f func(ctx context.Context) error) error {
	return k.lock.do(ctx, "do", n, k.check(n), f)
}

// TryDo runs f while the key holds n permits, as Mutex.TryDo does.
func (k SemaphoreKey) TryDo(ctx context.Context, n int, f func(ctx context.Context) error) error {
	return k.lock.tryDo(ctx, "trydo", n, k.check(n), f)
}

// check returns an error unless n is at most what this client says that there is, of the whole and for the key.
func (k SemaphoreKey) check(n int) error {
	if k.lock == nil || k.lock.permits < 1 {
		return nil // that is an error of its own
	}
	most, whose := k.lock.permits, "the semaphore has"
	if limit := k.lock.settings.keyLimit; limit > 0 && limit < most {
		most, whose = limit, "key limit is"
	}
	return require(n >= 1 && n <= most, "n", "%d permits requested, %s %d", n, whose, most)
}
