package call

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/errs"
)

// WithTimeout is context.WithTimeout by the client's clock. The cause of the timeout is an Unreachable.
func (c *Calls) WithTimeout(parent context.Context, d time.Duration) (ctx context.Context, cancel func()) {
	return c.WithTimeoutCause(parent, d, fmt.Errorf("%w: no answer within %v", errs.Unreachable, d))
}

// WithTimeoutCause is context.WithTimeoutCause by the client's clock. With the system's clock, ctx has a deadline, so
// that a request can be sent without another goroutine (see package dispatch).
func (c *Calls) WithTimeoutCause(parent context.Context, d time.Duration, late error) (ctx context.Context,
	cancel func()) {
	cause := errs.StoppedBy(late)
	if _, ok := c.clock.(clock.System); ok {
		return context.WithTimeoutCause(parent, d, cause) //nolint:forbidigo // it is the client's clock
	}
	ctx, end := context.WithCancelCause(parent)
	timer := c.clock.AfterFunc(d, func() { end(cause) })
	return ctx, func() {
		timer.Stop()
		end(nil)
	}
}

// RequestLimit is how long a call that never waits for the lock tries to reach Redis. The library has its own limit,
// because go-redis reports the same outage after 0.1 to 36.5 s, by version and kind of client.
const RequestLimit = 3 * time.Second

// Persist calls f, which sends a request for the named lock, until it succeeds, its error is permanent, or ctx or the
// client ends. In the last case the error is a Tried. While the request is refused, it is sent again each second.
func (c *Calls) Persist(ctx context.Context, lock string, f func() error) error {
	return c.attempt(ctx, f, c.refusedFor(lock, math.MaxInt64))
}

// refusedFor returns a function that says whether to retry after an error. It says so after a refusal until limit has
// passed.
func (c *Calls) refusedFor(lock string, limit time.Duration) func(error) bool {
	var since time.Time
	return func(err error) bool {
		if OriginOf(err) != Refused {
			since = time.Time{}
			return Passes(err)
		}
		c.Refused(lock, err)
		now := c.clock.Now()
		if since.IsZero() {
			since = now
		}
		return now.Sub(since) < limit
	}
}

// attempt calls f until it succeeds, again returns false, or ctx or the client ends.
func (c *Calls) attempt(ctx context.Context, f func() error, again func(error) bool) error {
	var failure error
	began := c.clock.Now()
	for pause := (Backoff{}); ; {
		err := f()
		if err == nil || !again(err) {
			return err
		}
		failure = Latest(ctx, failure, err)
		wait := RefusedPause
		if Passes(err) {
			wait = pause.Next(c.jitter)
		}
		if c.Sleep(ctx, wait) {
			continue
		}
		reason := errs.Closed
		if ctx.Err() != nil {
			reason = errs.Ended(ctx)
		}
		if OriginOf(failure) == Refused && errors.Is(reason, errs.Unreachable) { // it was reached
			return failure
		}
		return &errs.Tried{Err: reason, Failure: failure, Lasted: c.clock.Now().Sub(began)}
	}
}

// Briefly is Persist for a call that waits for Redis, but never for the lock. It tries for three seconds. It returns a
// refusal at once, because its callers have no ticket or lease.
func (c *Calls) Briefly(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := c.WithTimeoutCause(ctx, RequestLimit, errs.Unreachable)
	defer cancel()
	return c.attempt(ctx, func() error { return f(ctx) }, Passes)
}

// Finish is Persist for an f that releases a lock or removes a waiter. It goes on after the caller's ctx has ended, and
// uses only the values of that. It tries until its limits, a shorter one while it is refused, have passed. If the
// client is closed, an attempt under way goes on, and no other follows. If Redis does not answer that attempt, all
// attempts under way end.
func (c *Calls) Finish(
	values context.Context, lock string, within, refused time.Duration, f func(context.Context) error,
) error {
	ctx, cancel := c.WithTimeoutCause(withValues{c.leaves, values}, within, errs.Unreachable)
	defer cancel()
	var last error
	err := c.attempt(ctx, func() error {
		last = f(ctx)
		return last
	}, c.refusedFor(lock, refused))
	life := c.tasks.Life()
	if err == nil || OriginOf(last) == Permanent || life.Err() == nil {
		return err
	}
	if OriginOf(last) == NoReply {
		c.stopLeaves(context.Cause(life))
	}
	return fmt.Errorf("%w: %w", errs.Closed, last)
}

// withValues is a ctx that also has the values of another one.
type withValues struct {
	context.Context
	values context.Context
}

// Value looks at the first ctx first, because package context finds a ctx's canceler by a value.
func (c withValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// Sleep reports false if ctx or the client ends first.
func (c *Calls) Sleep(ctx context.Context, d time.Duration) bool {
	timer, cancel := c.WithTimeout(ctx, d)
	defer cancel()
	life := c.tasks.Life()
	select {
	case <-timer.Done():
	case <-life.Done():
	}
	return ctx.Err() == nil && life.Err() == nil
}

// RefusedPause is the pause before a refused request is sent again.
const RefusedPause = time.Second

// longestPause is the longest pause of a back-off: how much later than go-redis a call may notice that Redis is back.
const longestPause = 250 * time.Millisecond

// Backoff is the pause between attempts: 20 ms, doubled each time up to the longest.
type Backoff struct{ d time.Duration }

// Next returns the next pause, shortened by the jitter.
func (b *Backoff) Next(jitter float64) time.Duration {
	b.d = min(max(2*b.d, 20*time.Millisecond), longestPause)
	return b.d - time.Duration(jitter*float64(b.d))
}

// Jitter returns the part by which pauses are shortened, from 0 to 1/2. It differs between clients and between waiters,
// so that those that lost Redis together do not come back together.
func Jitter(name string) float64 {
	return float64(crc32.ChecksumIEEE([]byte(name))) / (2 << 32)
}
