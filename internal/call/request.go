package call

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
)

// Sender sends the requests for one lock, and notes which fail and which succeed.
type Sender struct {
	calls *Calls
	lock  string
}

// Of returns the Sender for the lock with that name; "" for requests that are for none.
func (c *Calls) Of(lock string) Sender { return Sender{c, lock} }

// EvalSha is the dispatcher's. It notes whether the server has the script.
func (s Sender) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	cmd := s.do(ctx, (*dispatch.Dispatcher).EvalSha, sha, keys, args)
	switch err := cmd.Err(); {
	case err == nil:
		s.Has(sha)
	case strings.HasPrefix(ReplyIn(err), "NOSCRIPT"):
		s.calls.scripts.Store(sha, false)
	}
	return cmd
}

// Eval is the dispatcher's.
func (s Sender) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return s.do(ctx, (*dispatch.Dispatcher).Eval, text, keys, args)
}

// eval is a method of the dispatcher.
type eval = func(d *dispatch.Dispatcher, ctx context.Context, text string, keys []string, args ...any) *redis.Cmd

func (s Sender) do(ctx context.Context, method eval, text string, keys []string, args []any) *redis.Cmd {
	c := s.calls
	cmd := s.send(ctx, method, text, keys, args)
	err := cmd.Err()
	var abandoned *dispatch.AbandonedError
	reply := ReplyIn(err)
	replied := err == nil || reply != ""
	if !replied && !errors.As(err, &abandoned) {
		c.reload()
	}
	if replied && !c.answered.Load() {
		c.answered.Store(true)
	}
	if err != nil && c.pool != nil && (strings.HasPrefix(reply, "MOVED ") || strings.HasPrefix(reply, "ASK ")) {
		err = fmt.Errorf("%w: %w", errCluster, err)
		cmd = redis.NewCmd(context.Background()) // the dispatcher still reads the other one
		cmd.SetErr(err)
	}
	switch {
	case err == nil:
		c.outage.succeeded(s.lock)
		c.refusals.succeeded(s.lock)
		if c.reconnected() {
			c.otherServer()
		}
	case !Passes(WithOrigin(err)): // whoever tries it again says so
	case replied || ctx.Err() == nil: // else ctx has ended it
		c.failed(s.lock, err)
	}
	return cmd
}

// reconnected reports whether connections were closed since the latest success. In a failover, go-redis closes them, or
// tries again after a broken one and after READONLY. The errors of requests do not tell. While the pool grows it can be
// true without a reason.
func (c *Calls) reconnected() bool {
	if c.pool == nil { // a Cluster waits in a planned failover until nothing can be lost
		return false
	}
	stats := c.pool.PoolStats()
	closed := int64(stats.Misses) - int64(stats.TotalConns)
	return c.closed.Swap(closed) < closed
}

// send sends a request. It is in flight no more when send returns, also if a hook of the Redis client panics.
func (s Sender) send(ctx context.Context, method eval, text string, keys []string, args []any) *redis.Cmd {
	defer s.calls.flights.end(s.calls.flights.begin(s.lock))
	return method(s.calls.dispatcher, ctx, text, keys, args...)
}

// Missing reports whether the server has replied that it does not have the script with that hash, and has not got its
// text since. Then the next request sends the text: whatever lets one request through, as a circuit breaker does, is
// not to see it fail.
func (s Sender) Missing(sha string) bool {
	has, known := s.calls.scripts.Load(sha)
	return known && has == false
}

// Has notes that the server has the script with that hash.
func (s Sender) Has(sha string) {
	if !s.calls.has(sha) {
		s.calls.scripts.Store(sha, true)
	}
}

// has reports whether the server had the script at the latest request.
func (c *Calls) has(sha string) bool {
	has, _ := c.scripts.Load(sha)
	return has == true
}
