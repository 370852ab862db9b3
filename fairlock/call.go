package fairlock

import (
	"context"
	"fmt"
	"sync/atomic"
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
// does not interrupt a call when its ctx ends. A command left behind ends by itself; done is run when none is under way
// any more. A command may be sent twice. The caller is inside a task.
func await[T any](
	ctx context.Context, c *Client, limit time.Duration, call func(context.Context, redis.Scripter) (T, error), done func(),
) reply[T] {
	s := &sender{client: c, ctx: ctx, done: done}
	defer s.leave()
	s.open.Store(1)
	c.direct.calls.Add(1)
	var doubt bool
	if c.alone(limit) {
		start := c.clock.Now()
		// The end of ctx would cost the connection, so it has to wait for so long.
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), quick) //nolint:forbidigo // a socket's, see direct
		value, err := call(short, c.direct.rdb)
		cancel()
		if err == nil || refused(err) {
			return reply[T]{value, err, false}
		}
		doubt = true
		c.slow()
		if limit > 0 {
			limit = max(limit-c.clock.Now().Sub(start), time.Millisecond)
		}
	}
	if limit > 0 {
		over := make(chan struct{})
		s.over, s.limit = over, limit
		timer := c.clock.AfterFunc(limit, func() { close(over) })
		defer timer.Stop()
	}
	value, err := call(ctx, s)
	unanswered := err != nil && !refused(err)
	if unanswered && ctx.Err() != nil {
		err = ended(ctx) // go-redis may say it in other words
	}
	return reply[T]{value, err, doubt || unanswered}
}

// sender sends the commands of one call that is awaited, and gives up waiting for their answers when it is time.
type sender struct {
	redis.Scripter // nil: the scripts of lua use EvalSha and Eval
	client         *Client
	ctx            context.Context
	over           chan struct{} // closed when limit is over; nil if there is none
	limit          time.Duration
	open           atomic.Int32 // commands under way, and the call
	done           func()       // when none is any more
}

// leave notes that one that was under way is not any more.
func (s *sender) leave() {
	if s.open.Add(-1) == 0 {
		s.client.direct.calls.Add(-1)
		s.done()
	}
}

// EvalSha is redis.Scripter's.
func (s *sender) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return s.send(func(r redis.Scripter) *redis.Cmd { return r.EvalSha(ctx, sha, keys, args...) })
}

// Eval is redis.Scripter's.
func (s *sender) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return s.send(func(r redis.Scripter) *redis.Cmd { return r.Eval(ctx, script, keys, args...) })
}

func (s *sender) send(send func(redis.Scripter) *redis.Cmd) *redis.Cmd {
	s.open.Add(1)
	answer := make(chan *redis.Cmd, 1)
	s.client.batcher.add(command{
		send: func(r redis.Scripter) *redis.Cmd {
			if s.ctx.Err() != nil {
				return s.failed(ended(s.ctx)) // nobody waits for it any more
			}
			return send(r)
		},
		done: func(cmd *redis.Cmd) {
			answer <- cmd
			s.leave()
		},
	})
	select {
	case cmd := <-answer:
		return cmd
	case <-s.ctx.Done():
		return s.failed(ended(s.ctx))
	case <-s.client.life.Done():
		return s.failed(ErrClosed)
	case <-s.over:
		return s.failed(fmt.Errorf("%w: no answer within %v", ErrUnreachable, s.limit))
	}
}

func (s *sender) failed(err error) *redis.Cmd {
	cmd := redis.NewCmd(s.ctx)
	cmd.SetErr(err)
	return cmd
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
