package fairlocktest

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"

	"github.com/fairlock/fairlock-go/fairlock"
)

// LocalClock is the clock of one machine. It is a fairlock.Clock that runs as the server's does until a method changes
// that. It is safe for concurrent use.
type LocalClock struct {
	tb   testing.TB
	base fairlock.Clock

	mu     sync.Mutex
	since  time.Time // guarded by mu; base's time when it showed local
	local  time.Time // guarded by mu
	rate   float64   // guarded by mu
	paused bool      // guarded by mu
	timers map[*localTimer]struct{}
	count  uint64 // guarded by mu: of timers so far
}

type localTimer struct {
	clock *LocalClock
	at    time.Time // by the local clock
	order uint64    // in which it was set
	call  func()
	timer clock.Timer // guarded by clock.mu; nil while the clock is paused or its rate is 0
}

// Now returns this clock's time.
func (c *LocalClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

// nowLocked returns this clock's time.
func (c *LocalClock) nowLocked() time.Time {
	return c.local.Add(time.Duration(float64(c.base.Now().Sub(c.since)) * c.rate))
}

// AfterFunc calls f once d has passed by this clock.
func (c *LocalClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	t := &localTimer{clock: c, at: c.nowLocked().Add(d), order: c.count, call: f}
	c.timers[t] = struct{}{}
	t.armLocked(c.nowLocked())
	return t
}

// SetRate sets how fast the clock runs, relative to the server's. 0.98 is slow by 2 %. At 0 it stands still, as that of
// a suspended machine does. A negative rate fails the test.
func (c *LocalClock) SetRate(rate float64) {
	c.tb.Helper()
	if !(rate >= 0) || math.IsInf(rate, 1) {
		c.tb.Fatalf("fairlocktest: a clock's rate must be a number from 0: %v", rate)
	}
	c.set(0, func() { c.rate = rate })
}

// Step sets the clock forward by d. A negative d fails the test, because a process measures time by a monotonic clock.
func (c *LocalClock) Step(d time.Duration) {
	c.tb.Helper()
	if d < 0 {
		c.tb.Fatalf("fairlocktest: a monotonic clock cannot be set back: %v", d)
	}
	c.set(d, func() {})
}

// Pause stops the timers while the clock runs on, as in a process that is paused (SIGSTOP, a suspended VM, a long
// garbage collection). Call Hang of the process's Link as well.
func (c *LocalClock) Pause() { c.set(0, func() { c.paused = true }) }

// Resume ends a Pause. Timers that became due meanwhile fire now; on a Clock, at its next Advance.
func (c *LocalClock) Resume() { c.set(0, func() { c.paused = false }) }

// set changes how the clock runs from now on.
func (c *LocalClock) set(step time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local, c.since = c.nowLocked().Add(step), c.base.Now()
	f()
	inOrder := func(a, b *localTimer) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.order, b.order)) }
	for _, t := range slices.SortedFunc(maps.Keys(c.timers), inOrder) {
		t.armLocked(c.local)
	}
}

// armLocked replaces the base's timer.
func (t *localTimer) armLocked(now time.Time) {
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
	case float64(left) < c.rate*math.MaxInt64: // a Duration can hold it
		t.timer = c.base.AfterFunc(time.Duration(float64(left)/c.rate)+1, t.fire) // rounded up
	}
}

func (t *localTimer) fire() {
	c := t.clock
	c.mu.Lock()
	_, pending := c.timers[t]
	due := pending && !c.paused && !c.nowLocked().Before(t.at)
	if due {
		delete(c.timers, t)
	} else if pending {
		t.armLocked(c.nowLocked())
	}
	c.mu.Unlock()
	if due {
		t.call()
	}
}

// Stop implements clock.Timer.
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
