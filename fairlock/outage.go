package fairlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/lua"
)

// outage is a time in which Redis does not serve what the client sends by itself: renewals, heartbeats, its subscription. It
// begins when one of them fails, and is over when a request has succeeded and the latest one of each sender has not failed:
// on a Cluster, one master may be away while the others reply. Each end is logged once.
type outage struct {
	clock Clock
	log   *slog.Logger

	underWay atomic.Bool // since is not zero; so that a request costs no mutex

	mu      sync.Mutex
	since   time.Time        // guarded by mu; zero if there is none
	failing map[any]struct{} // guarded by mu: senders whose latest request has failed: leases, queues, the subscriber
}

// failed notes the failure of a sender, and reports whether an outage begins with it. The caller logs that by begun, when it
// holds no mutex.
func (o *outage) failed(sender any) (begins bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing[sender] = struct{}{}
	if !o.since.IsZero() {
		return false
	}
	o.since = o.clock.Now()
	o.underWay.Store(true)
	return true
}

func (o *outage) begun(request, lock string, err error) {
	o.log.Warn("outage begins: Redis does not serve this client", "request", request, "lock", lock, "err", err)
}

// forget has a sender that sends no more count no more.
func (o *outage) forget(sender any) {
	if !o.underWay.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.failing, sender)
}

// succeeded notes that a request of a sender has succeeded; nil: of one that does not count. The caller holds no mutex.
func (o *outage) succeeded(sender any) {
	if !o.underWay.Load() {
		return
	}
	o.mu.Lock()
	delete(o.failing, sender)
	since := o.since
	over := !since.IsZero() && len(o.failing) == 0
	if over {
		o.since = time.Time{}
		o.underWay.Store(false)
	}
	o.mu.Unlock()
	if over {
		o.log.Info("outage is over: Redis serves this client again", "lasted", o.clock.Now().Sub(since))
	}
}

// began returns since when there is an outage; zero if there is none.
func (o *outage) began() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since
}

// watched is the dispatcher, whose replies tell that a server answers, and end an outage.
type watched struct {
	*dispatch.Dispatcher
	rt       *runtime
	reloader *reloader
}

// EvalSha is the dispatcher's.
func (w watched) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return w.do(ctx, w.Dispatcher.EvalSha, sha, keys, args)
}

// Eval is the dispatcher's.
func (w watched) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return w.do(ctx, w.Dispatcher.Eval, script, keys, args)
}

// EvalShaRO is the dispatcher's.
func (w watched) EvalShaRO(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return w.do(ctx, w.Dispatcher.EvalShaRO, sha, keys, args)
}

// EvalRO is the dispatcher's.
func (w watched) EvalRO(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return w.do(ctx, w.Dispatcher.EvalRO, script, keys, args)
}

// eval is a method of the dispatcher.
type eval = func(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd

func (w watched) do(ctx context.Context, method eval, script string, keys []string, args []any) *redis.Cmd {
	ended := w.reloader.begin()
	cmd := method(ctx, script, keys, args...)
	err := cmd.Err()
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) {
		var abandoned *dispatch.AbandonedError
		ended(!errors.As(err, &abandoned))
		return cmd
	}
	ended(false)
	if !w.rt.answered.Load() {
		w.rt.answered.Store(true)
	}
	switch {
	case err == nil:
		w.rt.outage.succeeded(nil)
	case w.rt.pool != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")):
		cmd = redis.NewCmd(context.Background()) // the dispatcher still reads the other one
		cmd.SetErr(fmt.Errorf("%w: %w", lua.ErrCluster, err))
	}
	return cmd
}

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
