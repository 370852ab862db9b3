package fairlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// reply is what became of a call.
type reply[T any] struct {
	value T
	err   error
	doubt bool // something was sent that was not answered: Redis may carry it out late
}

// await makes a call and waits for it no longer than ctx, the client and limit last (0: no limit), because go-redis
// does not interrupt a call when its ctx ends. A call left behind ends by itself; done is run when none is under way
// any more. A call may be made twice. The caller is inside a task.
func await[T any](
	ctx context.Context, c *Client, limit time.Duration, call func(context.Context, redis.Scripter) (T, error), done func(),
) reply[T] {
	c.direct.calls.Add(1)
	finish := func() {
		c.direct.calls.Add(-1)
		done()
	}
	var doubt bool
	if c.direct.alone(limit) {
		start := c.clock.Now()
		short, cancel := context.WithTimeout(ctx, quick) // for dialling, or waiting for a connection
		value, err := call(short, c.direct.rdb)
		cancel()
		if err == nil || refused(err) {
			finish()
			return reply[T]{value, err, false}
		}
		doubt = true
		c.direct.slow()
		if limit > 0 {
			limit = max(limit-c.clock.Now().Sub(start), time.Millisecond)
		}
	}
	answer := make(chan reply[T], 1)
	c.work(func() {
		defer finish()
		value, err := call(ctx, c.rdb)
		answer <- reply[T]{value, err, doubt || err != nil && !refused(err)}
	})
	var over chan struct{}
	if limit > 0 {
		over = make(chan struct{})
		timer := c.clock.AfterFunc(limit, func() { close(over) })
		defer timer.Stop()
	}
	left := reply[T]{doubt: true}
	select {
	case r := <-answer:
		if r.err != nil && !refused(r.err) && ctx.Err() != nil {
			r.err = ended(ctx) // go-redis may say it in other words
		}
		return r
	case <-ctx.Done():
		left.err = ended(ctx)
	case <-c.life.Done():
		left.err = ErrClosed
	case <-over:
		left.err = fmt.Errorf("%w: no answer within %v", ErrUnreachable, limit)
	}
	return left
}

// mostSpare is how many workers a client keeps that have nothing to do.
const mostSpare = 16

// work runs f in a goroutine that Close waits for, one that has run something before if there is one: a call to Redis
// needs a deep stack, and growing a new one each time costs a tenth of the whole call. The caller is inside a task.
func (c *Client) work(f func()) {
	select {
	case c.idle <- f:
	default:
		c.background(func() {
			f()
			c.serve()
		})
	}
}

// serve does further work until there are enough other workers, or the client is closed.
func (c *Client) serve() {
	defer c.spare.Add(-1)
	if c.spare.Add(1) > mostSpare {
		return
	}
	for {
		select {
		case f := <-c.idle:
			f()
		case <-c.life.Done():
			return
		}
	}
}
