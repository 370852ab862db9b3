package fairlock

import (
	"context"
	"fmt"
	"time"
)

// await runs call in a goroutine of its own and waits for it no longer than ctx, the client and limit last (0: no
// limit), because go-redis does not interrupt a call when its ctx ends. A call left behind ends by itself. The caller
// is inside a task.
func await[T any](ctx context.Context, c *Client, limit time.Duration, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	answer := make(chan result, 1)
	c.work(func() {
		v, err := call()
		answer <- result{v, err}
	})
	var over chan struct{}
	if limit > 0 {
		over = make(chan struct{})
		timer := c.clock.AfterFunc(limit, func() { close(over) })
		defer timer.Stop()
	}
	var none T
	select {
	case r := <-answer:
		return r.value, r.err
	case <-ctx.Done():
		return none, ended(ctx)
	case <-c.life.Done():
		return none, ErrClosed
	case <-over:
		return none, fmt.Errorf("%w: no answer within %v", ErrUnreachable, limit)
	}
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
	if c.spare.Add(1) <= mostSpare {
		for {
			select {
			case f := <-c.idle:
				f()
				continue
			case <-c.life.Done():
			}
			break
		}
	}
	c.spare.Add(-1)
}
