// Package testclock has a clock for tests whose runs must repeat. The fake clock is in package clock.
package testclock

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
)

// Ordered is the clock of a testing/synctest bubble whose runs must repeat. It calls the timers that are due at one
// instant in the order in which they were set. It calls each one when all other goroutines of the bubble wait. Package
// time draws a new order in each run. The zero value is ready to use.
type Ordered struct {
	clock.System

	mu     sync.Mutex
	timers []*orderedTimer // guarded by mu: in the order in which they will be called
	set    uint64          // guarded by mu: how many timers were set so far
	alarm  *time.Timer     // guarded by mu: calls next when the first of them is due
}

type orderedTimer struct {
	clock  *Ordered
	at     time.Time
	number uint64
	call   func()
}

// AfterFunc calls f in a goroutine of its own once d has passed.
func (c *Ordered) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set++
	t := &orderedTimer{clock: c, at: c.Now().Add(max(d, 0)), number: c.set, call: f}
	i, _ := t.findLocked()
	c.timers = slices.Insert(c.timers, i, t)
	if i == 0 {
		c.setAlarmLocked()
	}
	return t
}

// setAlarmLocked schedules a call of next when the first timer is due. If it is due now, next is called when everything
// in the bubble waits.
func (c *Ordered) setAlarmLocked() {
	if len(c.timers) == 0 {
		c.alarm.Stop()
		return
	}
	left := c.timers[0].at.Sub(c.Now())
	// A bubble's timer that is set to fire at once does so. One that is pending already fires when everything waits.
	if c.alarm == nil {
		c.alarm = time.AfterFunc(left+1, c.next) //nolint:forbidigo // this is a clock
	} else {
		c.alarm.Reset(left + 1)
	}
	c.alarm.Reset(left)
}

// next calls the first timer, if it is due.
func (c *Ordered) next() {
	c.mu.Lock()
	if len(c.timers) == 0 || c.timers[0].at.After(c.Now()) { // it was stopped
		c.mu.Unlock()
		return
	}
	t := c.timers[0]
	c.timers = slices.Delete(c.timers, 0, 1)
	c.setAlarmLocked()
	c.mu.Unlock()
	t.call()
}

// findLocked returns the index at which t is among the timers or must be inserted.
func (t *orderedTimer) findLocked() (i int, pending bool) {
	return slices.BinarySearchFunc(t.clock.timers, t, func(a, b *orderedTimer) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.number, b.number))
	})
}

// Stop implements clock.Timer.
func (t *orderedTimer) Stop() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	i, pending := t.findLocked()
	if pending {
		c.timers = slices.Delete(c.timers, i, i+1)
		if i == 0 {
			c.setAlarmLocked()
		}
	}
	return pending
}
