package dispatch

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/clock"
)

// A command is sent inline, on its caller's goroutine, if these are true:
//
//   - Nothing is in flight or waits, and Redis has replied to what was last in flight, within the last second. A first
//     command may have to dial, a command to a server that does not answer may hang, and so may one on a connection
//     that was idle for long: all are left to a sender, and can be copied.
//   - Its ctx was made by Blocking; or it has a deadline that go-redis obeys (see obeysDeadlines).
//
// It saves the two switches of goroutines of a sender, half the time of a round trip on loopback. An inline command is
// in flight as others are: Close waits for it, those that come meanwhile go to senders, and after 50 ms it is overdue.
//
// go-redis notices a cancellation only between its attempts. So an inline command whose ctx is cancelled before its
// deadline returns when Redis replies, after the client's ReadTimeout, or at the deadline, whichever is first.

// blocking is a ctx that was made by Blocking.
type blocking struct{ context.Context }

// Blocking returns a copy of ctx, for a caller whom nothing but Redis has to release: a command with it may return late
// after ctx has ended, when Redis has replied, or go-redis has given up. A ctx that is derived from the copy does not
// have that property.
func Blocking(ctx context.Context) context.Context { return blocking{ctx} }

// obeysDeadlines reports whether go-redis ends commands at the deadlines of their ctx. They are times of the system's
// clock: by another clock, the end of a command may have to come earlier.
func obeysDeadlines(rdb redis.Scripter, c clock.Clock) bool {
	if _, ok := c.(clock.System); !ok {
		return false
	}
	switch rdb := rdb.(type) {
	case *redis.Client: // also of Sentinel
		return rdb.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return rdb.Options().ContextTimeoutEnabled
	default:
		return false
	}
}

// mayBlock reports whether a command may be sent inline, if it is alone.
func (d *Dispatcher) mayBlock(ctx context.Context) bool {
	if _, ok := ctx.(blocking); ok {
		return true
	}
	_, ok := ctx.Deadline()
	return ok && d.deadlines
}

// alone puts an inline command in flight. It returns nil if a sender is to send it.
func (d *Dispatcher) alone() *batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Nothing waits if nothing is in flight.
	now := d.clock.Now()
	if d.closed || !d.answers || now.Sub(d.answered) > hangs || len(d.urgent.inFlight)+len(d.others.inFlight) > 0 {
		return nil
	}
	b := &batch{lane: &d.others, since: now}
	d.others.inFlight = append(d.others.inFlight, b)
	d.senders.Add(1)
	return b
}

// inline sends a command. When its ctx's deadline ends it, ctx has ended before inline returns.
func (d *Dispatcher) inline(c command, b *batch) *redis.Cmd {
	cmd := d.sendInline(c, b)
	if !answered(cmd) && d.deadlines {
		d.awaitDeadline(c.ctx)
	}
	return cmd
}

// sendInline leaves nothing in flight, also if a hook panics or ends the goroutine. A sender takes what waits.
func (d *Dispatcher) sendInline(c command, b *batch) (cmd *redis.Cmd) {
	defer func() {
		b.answers = answered(cmd)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended(b)
		if next := d.take(b.lane); next != nil {
			d.start(next)
		}
		d.senders.Done()
	}()
	return c.send(d.rdb)
}

// awaitDeadline waits for the end of ctx, if its deadline has passed: the timer of the connection may be a moment
// earlier than that of ctx, and the caller looks at ctx for the reason. It does not rely on ctx, which may be a type of
// the user.
func (d *Dispatcher) awaitDeadline(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	if !ok || d.clock.Now().Before(deadline) {
		return
	}
	enough := make(chan struct{})
	timer := d.clock.AfterFunc(overdue, func() { close(enough) })
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-enough:
	}
}
