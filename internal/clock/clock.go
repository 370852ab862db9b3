// Package clock is the source of time of the packages below fairlock. Its type Clock equals that of fairlock, which
// they cannot import.
package clock

import (
	"slices"
	"sync"
	"time"
)

// Clock has the methods of fairlock.Clock.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is what fairlock.Clock.AfterFunc returns: an alias, so that a method can return the one for the other.
type Timer = interface{ Stop() bool }

// System is the operating system's clock. Its readings are monotonic.
type System struct{}

// Now returns the current time.
func (System) Now() time.Time { return time.Now() } //nolint:forbidigo // the only place

// AfterFunc is time.AfterFunc.
func (System) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) } //nolint:forbidigo // the only place

// Elapsed returns the time between two readings of a Clock. If the machine was suspended, its monotonic clock may have
// stood still, so the wall clock counts if it shows more.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Fake is a clock that stands still until Next.
type Fake struct {
	mu     sync.Mutex
	now    time.Time    // guarded by mu
	timers []*fakeTimer // guarded by mu
}

// NewFake returns a clock that shows now.
func NewFake(now time.Time) *Fake { return &Fake{now: now} }

// Now returns the clock's time.
func (c *Fake) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc schedules f. Next returns it once it has set the clock to d from now. If d is not positive, f is due at
// once.
func (c *Fake) AfterFunc(d time.Duration, f func()) Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{clock: c, at: c.now.Add(d), call: f}
	c.timers = append(c.timers, t)
	return t
}

// Next removes the earliest timer that is due until end, sets the clock to its time and returns its function. If there
// is none, it sets the clock to end and returns nil. It never sets the clock back.
func (c *Fake) Next(end time.Time) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *fakeTimer
	for _, t := range c.timers {
		if !t.at.After(end) && (first == nil || t.at.Before(first.at)) {
			first = t
		}
	}
	if first != nil {
		end = first.at
	}
	if end.After(c.now) {
		c.now = end
	}
	if first == nil {
		return nil
	}
	c.removeLocked(first)
	return first.call
}

// removeLocked removes t and reports whether it was pending.
func (c *Fake) removeLocked(t *fakeTimer) bool {
	i := slices.Index(c.timers, t)
	if i >= 0 {
		c.timers = slices.Delete(c.timers, i, i+1)
	}
	return i >= 0
}

type fakeTimer struct {
	clock *Fake
	at    time.Time
	call  func()
}

func (t *fakeTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.clock.removeLocked(t)
}
