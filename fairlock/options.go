package fairlock

import (
	"context"
	"errors"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
)

// KeyOption is a setting of one [KeyedSemaphore] or of one of its keys. The last of two equal options counts. If one is
// out of its bounds or nil, methods of the lock return an ErrInvalid.
type KeyOption interface {
	apply(s *settings)
}

// HoldOption configures a [Mutex], a [Semaphore] or a [KeyedSemaphore].
type HoldOption interface {
	KeyOption
	hold()
}

// Option is a HoldOption that an [RWMutex] takes as well.
type Option interface {
	HoldOption
	all()
}

// settings are those of one lock.
type settings struct {
	ttl        time.Duration
	maxWaiters int
	maxWait    time.Duration // 0: only ctx bounds waiting
	maxOutage  time.Duration // 0: 3 s of a Try, 10 s before the first answer of a server, else none
	minHold    time.Duration // the lock stays taken for this long after each grant; 0: until it is released
	keyLimit   int           // permits that the key may hold at once; 0: any number
	share      int           // of the key; 1 for other locks
	shared     bool          // WithShare was given
	maxLine    int           // waiters of the key; 0: any number
	flags      tokens.Flags  // of each token, besides those that depend on the settings
	address    string        // of a leader
}

func (s settings) check() error {
	return errors.Join(
		checkDuration("TTL", s.ttl, bounds.MinTTL),
		checkMaxWaiters(s.maxWaiters),
		checkYear("MaxWait", s.maxWait),
		checkMaxOutage(s.maxOutage),
		checkYear("MinHold", s.minHold),
		require(s.keyLimit >= 0 && s.keyLimit <= bounds.MaxPermits, "KeyLimit", "%d, must be from 0 (none) to %d", s.keyLimit,
			bounds.MaxPermits),
		require(s.share >= 1 && s.share <= bounds.MaxShare, "Share", "%d, must be from 1 to %d", s.share, bounds.MaxShare),
		require(len(s.address) <= bounds.MaxClient, "Address", "%d bytes, at most %d", len(s.address), bounds.MaxClient),
	)
}

func checkYear(field string, d time.Duration) error {
	return require(d >= 0 && d <= bounds.MaxTTL, field, "%v, must be at least 0 (none), and at most %v (a year)", d,
		bounds.MaxTTL)
}

// with returns the settings as the options change them. To add one:
//
//  1. a field of settings, with its bounds (check), and With<Setting> below. It is an Option, a HoldOption if an
//     RWMutex cannot have it, or a KeyOption for keyed semaphores alone. A default for all locks of a client is a field
//     of Config (config.go)
//  2. users of it read lock.settings. The waiters of one lock in one client share their heartbeats, so WaiterTTL is the
//     same for all locks of a client
//  3. a test of what it does; a row in TestConfig_BadInputSendsNothing
//  4. the table of limits in docs/concepts.md, and a line in the CHANGELOG
func with[O KeyOption](l *lock, s settings, options []O) (settings, error) {
	for _, o := range options {
		if any(o) == nil {
			return s, &FieldError{"option", "must not be nil"}
		}
		o.apply(&s)
		if own, ok := any(o).(insider); ok {
			s.flags, s.address = own.Inside(l.client.cfg.Clock, func(ctx context.Context) (script.Snapshot, error) {
				return l.inspect(ctx, "inspect", 1)
			})
		}
	}
	return s, s.check()
}

// insider is an option of package leader. It embeds an option of this package, and sets flags and the address of
// tokens. It gets the client's Clock and a function that reads the lock. No other module can implement it, because
// tokens.Flags is internal.
type insider interface {
	Inside(clock Clock, read func(context.Context) (script.Snapshot, error)) (flags tokens.Flags, address string)
}

// option implements all options. The return type of each With function says which locks take it.
type option func(*settings)

func (o option) apply(s *settings) { o(s) }
func (option) hold()               {}
func (option) all()                {}

// WithTTL sets the TTL of one lock's leases, with the bounds of Config.TTL.
func WithTTL(d time.Duration) Option { return option(func(s *settings) { s.ttl = d }) }

// WithMaxWaiters bounds the queue of one lock, as Config.MaxWaiters does.
func WithMaxWaiters(n int) Option { return option(func(s *settings) { s.maxWaiters = n }) }

// WithMaxWait bounds how long Lock, RLock, Acquire and Do wait, up to a year. Then they return ErrWaitTimeout. The
// lease and the function of Do may last longer. 0 means that ctx alone bounds the wait.
func WithMaxWait(d time.Duration) Option { return option(func(s *settings) { s.maxWait = d }) }

// WithMaxOutage bounds how long calls of one lock wait for Redis, as Config.MaxOutage does.
func WithMaxOutage(d time.Duration) Option { return option(func(s *settings) { s.maxOutage = d }) }

// WithMinHold keeps the lock taken until d after each grant or Resume, up to a year, by the holder's clock. An earlier
// Unlock returns at once. So a job that several machines try periodically with TryDo runs once a period. For that,
// their clocks must differ by less than d, and by less than the period minus d. Five permits and a minute let five
// holders start in a minute. After a crash, the lock is free when both d and the TTL are over. Only an operator
// shortens d. 0 means none.
func WithMinHold(d time.Duration) HoldOption { return option(func(s *settings) { s.minHold = d }) }

// WithKeyLimit bounds how many permits a key of a [KeyedSemaphore] may hold at once, from 1 to 2^30. 0 means no limit.
// While the first waiter of a key has a limit that is reached, all others of that key wait behind it.
func WithKeyLimit(n int) KeyOption { return option(func(s *settings) { s.keyLimit = n }) }

// WithShare gives a key n times as much as a key with share 1, from 1 to 1,000, while both have waiters. It is for
// KeyedSemaphore.Key. The default is 1.
func WithShare(n int) KeyOption { return option(func(s *settings) { s.share, s.shared = n, true }) }
