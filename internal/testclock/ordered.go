// Package testclock has the clock of tests that have to repeat. The fake clock is in package clock.
package testclock

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
)

// Ordered is the clock of a testing/synctest bubble in which a run has to repeat. Of the timers that are due at one
// instant, it calls the one first that was set first, and each other one when everything in the bubble waits again.
// Package time calls them in an order that it draws anew in each run. The zero value is ready to use.
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

// AfterFunc has f called, in a goroutine of its own, once d has passed.
func (c *Ordered) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set++
	t := &orderedTimer{clock: c, at: c.Now().Add(max(d, 0)), number: c.set, call: f}
	i, _ := t.find()
	c.timers = slices.Insert(c.timers, i, t)
	if i == 0 {
		c.setAlarm()
	}
	return t
}

// setAlarm has next called when the first timer is due. If it is due now, that is when everything in the bubble waits.
// The caller holds mu.
func (c *Ordered) setAlarm() {
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
	c.setAlarm()
	c.mu.Unlock()
	t.call()
}

// find returns where t is among the timers, or has to be. The caller holds mu.
func (t *orderedTimer) find() (i int, pending bool) {
	return slices.BinarySearchFunc(t.clock.timers, t, func(a, b *orderedTimer) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.number, b.number))
	})
}

// Stop is Timer's.
func (t *orderedTimer) Stop() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	i, pending := t.find()
	if pending {
		c.timers = slices.Delete(c.timers, i, i+1)
		if i == 0 {
			c.setAlarm()
		}
	}
	return pending
}
