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

// Clock is a fairlock.Clock that stands still until Advance: the time of a server (NewServerWithClock), of its clients,
// and of whoever else takes it. It is safe for concurrent use.
//
// Only what goes by a Clock knows its time. A ctx with a deadline goes by the system's; WithTimeout is for that. Inside
// a testing/synctest bubble it is not needed.
type Clock struct {
	tb   testing.TB
	fake *clock.Fake
	rest *rest

	called atomic.Bool

	mu      sync.Mutex // one Advance at a time
	servers []*Server  // guarded by mu
}

// NewClock returns a clock for one test. It stands at noon, UTC, of a day in 2026.
func NewClock(tb testing.TB) *Clock {
	tb.Helper()
	return &Clock{tb: tb, fake: clock.NewFake(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)), rest: newRest()}
}

// Now is where the clock stands.
func (c *Clock) Now() time.Time { return c.fake.Now() }

// AfterFunc has Advance call f, in a goroutine of its own, once the clock has been moved by d; the next Advance, however
// short, if d is not positive.
func (c *Clock) AfterFunc(d time.Duration, f func()) fairlock.Timer { return c.fake.AfterFunc(d, f) }

// Advance moves the clock by d. Whatever falls due on the way happens at its own moment, the earlier before the later,
// and each time the clock stands until what was set off has come to rest (Wait). Advance(0) is for what is due now. What the
// functions of AfterFunc have done happens before Advance returns; what other goroutines do must be synchronised, as ever.
// It must not be called from such a function.
func (c *Clock) Advance(d time.Duration) {
	c.tb.Helper()
	if d < 0 {
		c.tb.Fatalf("fairlocktest: a clock is not set back: %v", d)
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
		s.touch() // something may have expired
	}
	c.Wait()
}

// Wait returns when everything has come to rest: when every goroutine but the caller's waits for another one, for this
// Clock, for the network or for the system's clock. (Goroutines of other tests do not count, as far as they can be told;
// nor does what is in a system call for long.) It fails the test after 10 s without rest. It is to a Clock what
// synctest.Wait is to a bubble.
func (c *Clock) Wait() {
	c.tb.Helper()
	if busy := c.rest.wait(restless); busy != "" {
		c.tb.Fatalf("fairlocktest: no rest within %v; what goes on:\n%s", restless, busy)
	}
}

// WithTimeout is context.WithTimeout by this Clock. The ctx does not tell its Deadline: whoever asked for it would compare
// it with the system's time.
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

// timed is a ctx that ends by a Clock. Its Done is not that of the cancelCtx within, so that package context asks it,
// and not that one, why its children end.
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

// untilDeadline is how long it is until a moment of the system's clock that somebody else has chosen. Rounded, because
// it was a whole number of milliseconds when it was chosen.
func untilDeadline(t time.Time) time.Duration {
	return time.Until(t).Round(time.Millisecond) //nolint:forbidigo // net.Conn's deadlines are the system's
}

func (c *Clock) attach(s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, s)
}
