package fairlock

import (
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

// Key returns the semaphore as that key uses it. It does no I/O, and nothing is kept for a key without holder and
// waiter. The key is any text of 1 to 128 bytes. The options apply to this value. Each request brings its limit and
// share: the first waiter of a key speaks for the key. WithMaxWaiters bounds the waiters of the key.
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
