package fairlocktest

import (
	"sync"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
)

// Clock is a fairlock.Clock that stands still until Advance. It is the clock of a server (NewServerWithClock), of its
// clients, and of any code that is given it. It is safe for concurrent use.
//
// A Clock is for tests that cannot run in a testing/synctest bubble, such as those with real connections. In a bubble
// it is not needed. A Clock does not know what other goroutines are doing, so the test waits for their effects itself:
//
//	clock.Advance(11 * time.Second)         // the lease of the holder expires
//	server.Mutex("x").WaitHeldBy("waiter")  // the waiter sends acquire, and is granted the lock
//
// Timers of package time and the deadline of a ctx do not follow a Clock.
type Clock struct {
	tb   testing.TB
	fake *clock.Fake

	mu      sync.Mutex // one Advance at a time
	servers []*Server  // guarded by mu
}

// advanceTimeout is how long Advance waits for a function of AfterFunc, by the system's clock.
var advanceTimeout = 10 * time.Second

// NewClock returns a clock for one test. It starts at 2026-01-01 12:00 UTC.
func NewClock(tb testing.TB) *Clock {
	tb.Helper()
	return &Clock{tb: tb, fake: clock.NewFake(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time { return c.fake.Now() }

// AfterFunc schedules f. Advance calls it, in a goroutine of its own, once the clock has advanced by d. If d is not
// positive, the next Advance calls f.
func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer { return c.fake.AfterFunc(d, f) }

// Advance advances the clock by d. Timers fire one after the other, in the order of their times. Until a timer's
// function has returned, the clock shows the time of that timer. Renewals and heartbeats are such functions, so leases
// are renewed and tickets are kept, however long d is. Advance(0) fires the timers that are due now.
//
// Advance does not wait for anything else. A goroutine that such a function unblocks may still run after Advance has
// returned.
//
// Advance fails the test if a function has not returned after 10 s of the system's time. It may be waiting for this
// Clock, as a renewal does over a Link that hangs or delays. Such a test needs a bubble. Advance must not be called
// from such a function.
func (c *Clock) Advance(d time.Duration) {
	c.tb.Helper()
	if d < 0 {
		c.tb.Fatalf("fairlocktest: a clock cannot be set back: %v", d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.fake.Now().Add(d)
	for f := c.fake.Next(end); f != nil; f = c.fake.Next(end) {
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			f()
		}()
		select {
		case <-returned:
		case <-time.After(advanceTimeout): //nolint:forbidigo // this Clock stands still
			c.tb.Fatalf("fairlocktest: the function of a timer that fired %v before the end of this Advance has not returned "+
				"within %v: it may be waiting for this Clock, for example for a Link that hangs", end.Sub(c.fake.Now()),
				advanceTimeout)
		}
	}
	for _, s := range c.servers {
		s.tick()
		s.advanced()
	}
}

// untilDeadline returns how long it is, by a server's clock, until a deadline of the system's. For a Clock it is
// rounded: the caller has computed the deadline from whole milliseconds, and only the system's clock has gone on since.
func untilDeadline(by clock.Clock, t time.Time) time.Duration {
	left := time.Until(t) //nolint:forbidigo // net.Conn's deadlines are the system's
	if _, ok := by.(*Clock); ok {
		left = left.Round(time.Millisecond)
	}
	return left
}

func (c *Clock) attach(s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, s)
}
