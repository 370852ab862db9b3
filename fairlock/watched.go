package fairlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
)

// watched is the dispatcher for the requests of one lock. All requests go through it, and it notes which fail and which succeed.
type watched struct {
	*dispatch.Dispatcher
	rt       *runtime
	reloader *reloader
	flights  *flights
	lock     string // its name; empty for Client.Ping
}

// of returns the same for a lock.
func (w watched) of(lock string) watched {
	w.lock = lock
	return w
}

// EvalSha is the dispatcher's.
func (w watched) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return w.do(ctx, w.Dispatcher.EvalSha, sha, keys, args)
}

// Eval is the dispatcher's.
func (w watched) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return w.do(ctx, w.Dispatcher.Eval, text, keys, args)
}

// EvalShaRO is the dispatcher's.
func (w watched) EvalShaRO(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return w.do(ctx, w.Dispatcher.EvalShaRO, sha, keys, args)
}

// EvalRO is the dispatcher's.
func (w watched) EvalRO(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return w.do(ctx, w.Dispatcher.EvalRO, text, keys, args)
}

// eval is a method of the dispatcher.
type eval = func(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd

func (w watched) do(ctx context.Context, method eval, text string, keys []string, args []any) *redis.Cmd {
	cmd := w.send(ctx, method, text, keys, args)
	err := cmd.Err()
	var reply redis.Error
	var abandoned *dispatch.AbandonedError
	replied := err == nil || errors.As(err, &reply)
	if w.reloader.rdb != nil && !replied && !errors.As(err, &abandoned) {
		w.reloader.reload()
	}
	if replied && !w.rt.answered.Load() {
		w.rt.answered.Store(true)
	}
	if err != nil && w.rt.pool != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		err = fmt.Errorf("%w: %w", script.ErrCluster, err)
		cmd = redis.NewCmd(context.Background()) // the dispatcher still reads the other one
		cmd.SetErr(err)
	}
	switch {
	case err == nil:
		w.rt.outage.succeeded(w.lock)
	case script.OriginOf(script.WithOrigin(err)) == script.Permanent: // a refusal
	case replied || ctx.Err() == nil: // else ctx has ended it
		w.rt.outage.failed(w.lock, err)
	}
	return cmd
}

// send sends a request. It is in flight no more when send returns, also if a hook of the Redis client panics.
func (w watched) send(ctx context.Context, method eval, text string, keys []string, args []any) *redis.Cmd {
	defer w.flights.end(w.flights.begin(w.lock))
	return method(ctx, text, keys, args...)
}

// errNoReply stands for the error of a request that has no reply yet.
var errNoReply = errors.New("no reply yet")

// errPoolFull means that a request found no connection: all of the pool are in use.
var errPoolFull = errors.New("the connection pool of the Redis client is full")

// named names a full connection pool in the error of a request. One that has no reply yet may be waiting for a connection:
// go-redis says so only after its PoolTimeout, and tries again.
func (rt *runtime) named(err error) error {
	full := strings.Contains(err.Error(), "connection pool timeout") // go-redis 9.7 does not export its error
	if errors.Is(err, errNoReply) && rt.pool != nil {
		stats := rt.pool.PoolStats()
		full = stats.IdleConns == 0 && int(stats.TotalConns) >= rt.pool.Options().PoolSize
	}
	if full {
		return fmt.Errorf("%w: %w", errPoolFull, err)
	}
	return err
}
