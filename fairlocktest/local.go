package fairlocktest

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// LocalClock is the clock of one machine: a fairlock.Clock that goes as the server's until it is told otherwise. It is
// safe for concurrent use.
type LocalClock struct {
	tb   testing.TB
	base fairlock.Clock

	mu     sync.Mutex
	since  time.Time // guarded by mu; base's time when it showed local
	local  time.Time // guarded by mu
	rate   float64   // guarded by mu
	paused bool      // guarded by mu
	timers map[*localTimer]struct{}
}

type localTimer struct {
	clock *LocalClock
	at    time.Time // by the local clock
	call  func()
	timer fairlock.Timer // guarded by clock.mu; nil while the clock stands
}

// Now is what this clock shows.
func (c *LocalClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

// now is Now. The caller holds mu.
func (c *LocalClock) now() time.Time {
	return c.local.Add(time.Duration(float64(c.base.Now().Sub(c.since)) * c.rate))
}

// AfterFunc calls f once d has passed by this clock.
func (c *LocalClock) AfterFunc(d time.Duration, f func()) fairlock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &localTimer{clock: c, at: c.now().Add(d), call: f}
	c.timers[t] = struct{}{}
	t.arm(c.now())
	return t
}

// SetRate has the clock go so many times as fast as the server's from now on: 0.98 is slow by two in a hundred, 0 stands
// still, as that of a suspended machine. A negative rate fails the test.
func (c *LocalClock) SetRate(rate float64) {
	c.tb.Helper()
	if !(rate >= 0) || math.IsInf(rate, 1) {
		c.tb.Fatalf("fairlocktest: a clock's rate is a number that is not negative: %v", rate)
	}
	c.set(0, func() { c.rate = rate })
}

// Step sets the clock forward by d. It cannot be set back, for a process measures time with a clock that never is; a
// negative d fails the test.
func (c *LocalClock) Step(d time.Duration) {
	c.tb.Helper()
	if d < 0 {
		c.tb.Fatalf("fairlocktest: a monotonic clock is not set back: %v", d)
	}
	c.set(d, func() {})
}

// Pause stops the timers, as those of a process that is stopped (SIGSTOP, a swapped machine, a long collection of
// garbage), while the clock runs on. For such a process its Link should Hang, too.
func (c *LocalClock) Pause() { c.set(0, func() { c.paused = true }) }

// Resume ends a Pause; what has fallen due meanwhile is called now, of a Clock's at its next Advance.
func (c *LocalClock) Resume() { c.set(0, func() { c.paused = false }) }

// set changes how the clock goes, from now on.
func (c *LocalClock) set(step time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local, c.since = c.now().Add(step), c.base.Now()
	f()
	for t := range c.timers {
		t.arm(c.local)
	}
}

// arm sets the base's timer anew. The caller holds mu.
func (t *localTimer) arm(now time.Time) {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	c := t.clock
	left := t.at.Sub(now)
	switch {
	case c.paused:
	case left <= 0:
		t.timer = c.base.AfterFunc(0, t.fire)
	case float64(left) < c.rate*math.MaxInt64: // later is never
		t.timer = c.base.AfterFunc(time.Duration(float64(left)/c.rate)+1, t.fire) // rounded up
	}
}

func (t *localTimer) fire() {
	c := t.clock
	c.mu.Lock()
	_, pending := c.timers[t]
	due := pending && !c.paused && !c.now().Before(t.at)
	if due {
		delete(c.timers, t)
	} else if pending {
		t.arm(c.now())
	}
	c.mu.Unlock()
	if due {
		t.call()
	}
}

// Stop is fairlock.Timer's.
func (t *localTimer) Stop() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, pending := c.timers[t]
	delete(c.timers, t)
	if t.timer != nil {
		t.timer.Stop()
	}
	return pending
}
