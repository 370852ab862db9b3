package clock

import (
	"slices"
	"sync"
	"time"
)

// Fake is a clock that stands still until it is told to move.
type Fake struct {
	mu     sync.Mutex
	now    time.Time    // guarded by mu
	timers []*fakeTimer // guarded by mu
}

// NewFake returns a clock that stands at now.
func NewFake(now time.Time) *Fake { return &Fake{now: now} }

// Now returns the time the clock stands at.
func (c *Fake) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc calls f once the clock has been moved by d; at the next Advance, however short, if d is not positive.
func (c *Fake) AfterFunc(d time.Duration, f func()) Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{clock: c, at: c.now.Add(d), call: f}
	c.timers = append(c.timers, t)
	return t
}

// Advance moves the clock and makes the calls that fall due on the way, in their order and each at its own moment,
// in the caller's goroutine. It returns when they have returned.
func (c *Fake) Advance(d time.Duration) {
	end := c.Now().Add(d)
	for call := c.Next(end); call != nil; call = c.Next(end) {
		call()
	}
}

// Jump moves the clock and makes no call: those that fall due wait for the next Advance, as they do when a process is
// stopped.
func (c *Fake) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Next takes out the earliest call due until end, moves the clock to its moment and returns it, or moves the clock to
// end and returns nil if there is none. It never moves the clock back.
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
	c.remove(first)
	return first.call
}

// remove reports whether t was pending. The caller holds mu.
func (c *Fake) remove(t *fakeTimer) bool {
	i := slices.Index(c.timers, t)
	if i >= 0 {
		c.timers = slices.Delete(c.timers, i, i+1)
	}
	return i >= 0
}

// Pending returns the number of calls that are due some time.
func (c *Fake) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

type fakeTimer struct {
	clock *Fake
	at    time.Time
	call  func()
}

func (t *fakeTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.clock.remove(t)
}
