package fairlock

import (
	"errors"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tokens"
)

// HoldOption is a setting of one [Mutex] or [Semaphore]. If one is given twice, the last counts. If it is out of its bounds or
// nil, methods of the lock return an ErrInvalid.
type HoldOption interface {
	apply(s *settings)
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
	maxWait    time.Duration // bounds waiting; 0: nothing but ctx does
	minHold    time.Duration // the lock stays taken until so long after each grant; 0: until it is released
	flags      tokens.Flags  // of each token, besides those that depend on the settings
}

func (s settings) check() error {
	return errors.Join(
		checkDuration("TTL", s.ttl, bounds.MinTTL),
		checkMaxWaiters(s.maxWaiters),
		checkYear("MaxWait", s.maxWait),
		checkYear("MinHold", s.minHold),
	)
}

func checkYear(field string, d time.Duration) error {
	return require(d >= 0 && d <= bounds.MaxTTL, field, "%v, must be at least 0 (none), and at most %v (a year)", d, bounds.MaxTTL)
}

// with returns the settings with those that the options change. To add one:
//
//  1. a field of settings, with its bounds (check), and With<Setting> below: an Option, or a HoldOption if an RWMutex cannot have
//     it. If it has a default for all locks of a client, a field of Config, too (config.go)
//  2. what depends on it reads it from lock.settings. The waiters of one lock in one client share their heartbeats, so WaiterTTL
//     is the same for all locks of a client
//  3. a test of what it does; a row in TestConfig_BadInputSendsNothing
//  4. the table of limits in docs/concepts.md, and a line in the CHANGELOG
func with[O HoldOption](clock Clock, s settings, options []O) (settings, error) {
	for _, o := range options {
		if any(o) == nil {
			return s, &FieldError{"option", "must not be nil"}
		}
		o.apply(&s)
		if own, ok := any(o).(insider); ok {
			s.flags |= own.Inside(clock)
		}
	}
	return s, s.check()
}

// insider is an option of package leader. It embeds an option of this package, sets flags of tokens, and is told the client's
// Clock. No other module can have one, because tokens.Flags is internal.
type insider interface {
	Inside(clock Clock) tokens.Flags
}

type option func(*settings)

func (o option) apply(s *settings) { o(s) }
func (option) hold()               {}
func (option) all()                {}

type holdOption func(*settings)

func (o holdOption) apply(s *settings) { o(s) }
func (holdOption) hold()               {}

// WithTTL has the leases of the lock last d, with the bounds of Config.TTL.
func WithTTL(d time.Duration) Option { return option(func(s *settings) { s.ttl = d }) }

// WithMaxWaiters bounds the queue of the lock as Config.MaxWaiters does.
func WithMaxWaiters(n int) Option { return option(func(s *settings) { s.maxWaiters = n }) }

// WithMaxWait has Lock, RLock, Acquire and Do wait for at most d, up to a year, and then return ErrWaitTimeout. It bounds neither
// the lease nor the function of Do. 0 means that ctx alone bounds the wait.
func WithMaxWait(d time.Duration) Option { return option(func(s *settings) { s.maxWait = d }) }

// WithMinHold has the lock stay taken until d after each grant, up to a year. An earlier Unlock returns at once, and the next
// holder is granted the lock when d is over. So a job that several machines try with TryDo is done at most once in d, and five
// permits with a minute let five holders start in a minute. If a holder crashes, the lock is free when d is over, and TTL after
// the latest renewal. Only ForceRelease shortens d. 0 means none.
//
// d counts from the grant or from Resume, by the holder's clock. Let d, and the rest of the period in which something is to
// happen once, be longer than the clocks of your machines are apart.
func WithMinHold(d time.Duration) HoldOption { return holdOption(func(s *settings) { s.minHold = d }) }
