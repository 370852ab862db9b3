package fairlock

import (
	"context"
	"errors"

	"github.com/fairlock/fairlock-go/internal/bounds"
)

// Semaphore has a number of permits. Each holder has one or more of them. It is made by Client.Semaphore, or by
// KeyedSemaphore.Key for one key.
type Semaphore struct{ shared }

// Semaphore returns the semaphore with that name and number of permits, 1 to 2^30. Otherwise it is like Client.Mutex.
//
// Each request brings the number, so it can change from one deployment to the next. Meanwhile at most the larger number
// is held, and a request with the smaller one delays those behind it. A number set by Resize replaces both.
func (c *Client) Semaphore(name string, permits int, options ...HoldOption) Semaphore {
	return Semaphore{shared{newLock(c, KindSemaphore, name, permits, options)}}
}

// Acquire waits in order until n permits are granted, and returns one lease on all of them. The least n is 1, and the
// greatest is the semaphore's number or the key limit. The errors are those of Mutex.Lock, and a *CapacityError if the
// semaphore was resized to fewer. There is no ErrReentrant: two holders that acquire more can deadlock until ctx ends.
func (s Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	return s.lock.acquire(ctx, waits, "acquire", n, s.check(n))
}

// TryAcquire returns the lease if n permits are free and there are no waiters. For a key, the key must have no waiters
// and room below its limit, and no other key may come first. Otherwise it is like Mutex.TryLock, or returns a
// *CapacityError.
func (s Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	return s.lock.acquire(ctx, tries, "tryacquire", n, s.check(n))
}

// Do runs f while it holds n permits, as Mutex.Do does.
func (s Semaphore) Do(ctx context.Context, n int, f func(ctx context.Context) error) error {
	return s.lock.do(ctx, waits, "do", n, s.check(n), f)
}

// TryDo runs f while it holds n permits, as Mutex.TryDo does.
func (s Semaphore) TryDo(ctx context.Context, n int, f func(ctx context.Context) error) error {
	return s.lock.do(ctx, tries, "trydo", n, s.check(n), f)
}

// check returns an error if n is more than this client's number of permits or key limit. Only Redis knows whether the
// semaphore was resized.
func (s Semaphore) check(n int) error {
	if s.lock == nil || s.lock.permits < 1 {
		return nil // l.invalid or lock.check says so
	}
	most, whose := s.lock.permits, "the semaphore has"
	if limit := s.lock.settings.keyLimit; limit > 0 && limit < most {
		most, whose = limit, "key limit is"
	}
	return require(n >= 1 && n <= most, "n", "%d permits requested, %s %d", n, whose, most)
}

// KeyedSemaphore is a semaphore whose permits are shared fairly between keys, such as tenants. The next permit goes to
// the key that holds the fewest for its share, or among equals to the one that is first in turn. Within a key, first
// come, first served. A key at its limit lets others pass and keeps its turn.
//
// Turns count grants, not time. A request for several permits gets them in one turn. With more keys than permits, a
// key whose holders take longer gets more of the total time. New keys lengthen each round, so choose keys that a caller
// cannot make up.
// Everybody who can read Redis or the logs sees the keys.
type KeyedSemaphore struct{ shared }

// KeyedSemaphore returns the keyed semaphore with that name and number of permits, 1 to 2^30. Otherwise it is like
// Client.Semaphore, with which it shares no permits. The options are defaults for its keys, except that WithMaxWaiters
// bounds the waiters of all keys together. WithShare is an ErrInvalid here.
func (c *Client) KeyedSemaphore(name string, permits int, options ...KeyOption) KeyedSemaphore {
	l := newLock(c, KindKeyedSemaphore, name, permits, options)
	if l.settings.shared {
		l.invalid = errors.Join(l.invalid, &FieldError{"Share", "must be set for a key"})
	}
	return KeyedSemaphore{shared{l}}
}

// Key returns the semaphore as that key uses it. It does no I/O, and nothing is kept for a key without holders and
// waiters. The key is any text of 1 to 128 bytes. The options apply to this value. Each request brings its limit and
// share; those of the key's first waiter count. WithMaxWaiters bounds the waiters of the key.
func (s KeyedSemaphore) Key(key string, options ...KeyOption) Semaphore {
	if s.lock == nil {
		return Semaphore{}
	}
	l := *s.lock
	own := l.settings
	own.maxWaiters = 0
	own, invalid := with(&l, own, options)
	own.maxLine, own.maxWaiters = own.maxWaiters, l.settings.maxWaiters
	l.key, l.settings = key, own
	l.invalid = errors.Join(l.invalid, invalid,
		require(key != "" && len(key) <= bounds.MaxKey, "key", "%d bytes, must be from 1 to %d", len(key), bounds.MaxKey))
	l.wire()
	return Semaphore{shared{&l}}
}
