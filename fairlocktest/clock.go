package fairlocktest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/clock"
)

// Clock is a fairlock.Clock that stands still until Advance. It is the clock of a server (NewServerWithClock), of its
// clients, and of any code that is given it. It is safe for concurrent use.
//
// A ctx with a deadline uses the system's clock; use WithTimeout instead. Inside a testing/synctest bubble a Clock is
// not needed.
type Clock struct {
	tb   testing.TB
	fake *clock.Fake
	idle *idleDetector

	called atomic.Bool

	mu      sync.Mutex // one Advance at a time
	servers []*Server  // guarded by mu
}

// NewClock returns a clock for one test. It starts at 2026-01-01 12:00 UTC.
func NewClock(tb testing.TB) *Clock {
	tb.Helper()
	return &Clock{tb: tb, fake: clock.NewFake(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)), idle: newIdleDetector()}
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time { return c.fake.Now() }

// AfterFunc has Advance call f, in a goroutine of its own, once the clock has advanced by d. If d is not positive, the
// next Advance calls f.
func (c *Clock) AfterFunc(d time.Duration, f func()) fairlock.Timer { return c.fake.AfterFunc(d, f) }

// Advance advances the clock by d. Timers fire at their own times, in order. After each, the clock stands still until
// every goroutine is idle again (see Wait). Advance(0) fires the timers that are due now. What functions of AfterFunc
// do happens before Advance returns, in the sense of the memory model; what other goroutines do must be synchronised.
// Advance must not be called from such a function.
func (c *Clock) Advance(d time.Duration) {
	c.tb.Helper()
	if d < 0 {
		c.tb.Fatalf("fairlocktest: a clock cannot be set back: %v", d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Wait()
	end := c.fake.Now().Add(d)
	for f := c.fake.Next(end); f != nil; f = c.fake.Next(end) {
		go func() {
			f()
			c.called.Store(true) // for the memory model, and the race detector
		}()
		c.Wait()
		c.called.Load()
	}
	for _, s := range c.servers {
		s.tick()
		s.touch() // leases or waiters may have expired
	}
	c.Wait()
}

// Wait returns when every goroutine except the caller's is idle: when it waits for another goroutine, for this Clock,
// for the network or for the system's clock. Goroutines of other tests do not count, as far as they can be identified,
// and no goroutine that is in a system call for more than 50 ms does. Wait fails the test after 10 s. It is to a Clock
// what synctest.Wait is to a bubble.
func (c *Clock) Wait() {
	c.tb.Helper()
	if busy := c.idle.wait(idleTimeout); busy != "" {
		c.tb.Fatalf("fairlocktest: not idle within %v; these goroutines run:\n%s", idleTimeout, busy)
	}
}

// WithTimeout is context.WithTimeout by this Clock. The ctx has no Deadline, because code would compare it with the
// system's time.
func (c *Clock) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(parent)
	t := &timed{Context: inner, done: make(chan struct{})}
	context.AfterFunc(inner, func() { close(t.done) })
	timer := c.AfterFunc(d, func() { cancel(context.DeadlineExceeded); <-t.done })
	return t, func() {
		timer.Stop()
		cancel(context.Canceled)
		<-t.done
	}
}

// timed is a ctx that ends by a Clock. Its Done is not that of the inner cancelCtx, so that package context takes the
// error of its children from it, not from the inner one.
type timed struct {
	context.Context

	done chan struct{}
}

// Done is context.Context's.
func (t *timed) Done() <-chan struct{} { return t.done }

// Err is context.Context's.
func (t *timed) Err() error {
	select {
	case <-t.done:
	default:
		return nil
	}
	if context.Cause(t.Context) == context.DeadlineExceeded { //nolint:errorlint // it is exactly that
		return context.DeadlineExceeded
	}
	return t.Context.Err()
}

// AfterFunc saves package context a goroutine for each child.
func (t *timed) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(t.Context, func() {
		<-t.done
		f()
	})
}

// untilDeadline returns how long it is until a deadline of the system's clock. It is rounded, because the caller has
// computed the deadline from a whole number of milliseconds.
func untilDeadline(t time.Time) time.Duration {
	return time.Until(t).Round(time.Millisecond) //nolint:forbidigo // net.Conn's deadlines are the system's
}

func (c *Clock) attach(s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, s)
}
