package fairlock

import (
	"errors"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tokens"
)

// HoldOption is a setting of a [Mutex] or a [Semaphore] that differs from its Client's Config. If the same one is given twice, the
// last counts. Methods of the lock return an ErrInvalid for a setting that is out of its bounds, or nil.
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

// WithMaxWaiters bounds the queue of the lock: a call that waits returns ErrQueueFull if n others wait. 0 means any number.
func WithMaxWaiters(n int) Option { return option(func(s *settings) { s.maxWaiters = n }) }

// WithMaxWait has calls wait for the lock for d at most, the first request included, up to a year. ctx bounds the wait as well:
// whichever ends first gives the error. After d that is ErrWaitTimeout, in a *HeldError if a holder is known, and otherwise with
// the last error of Redis. What else happens then is as if ctx had ended (see [Mutex.Lock]). It bounds neither the lease nor the
// function of Do, and has no effect on Try… and Resume. 0 means that ctx alone bounds the wait.
func WithMaxWait(d time.Duration) Option { return option(func(s *settings) { s.maxWait = d }) }

// WithMinHold has the lock stay taken until d after each grant, whatever its holder does, up to a year: if Unlock is called
// earlier, Unlock returns at once, and the next holder is granted the lock when d is over. So a job that several machines try to
// do with TryDo is done at most once in d, and five permits with a minute let five holders start in a minute, first come, first
// served. If a holder crashes, the lock is free when d is over, and TTL after the latest renewal. An error or a panic of the
// function of Do does not shorten it; ForceRelease does. 0 means none.
//
// d counts from the grant, by the holder's clock; for a lease that Resume has taken over, from Resume. Let d, and what is left of
// the period in which something is to happen once, be longer than the clocks of your machines are apart.
func WithMinHold(d time.Duration) HoldOption { return holdOption(func(s *settings) { s.minHold = d }) }
