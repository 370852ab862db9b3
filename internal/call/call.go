// Package call is the one way to Redis of a client. It sends and retries requests, classifies their errors, and detects
// outages. All assumptions about the inside of go-redis are here and in package dispatch. Of a lock it knows only the
// name.
package call

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/task"
)

// Calls are the requests of one client. It is safe for concurrent use.
type Calls struct {
	*dispatch.Dispatcher

	tasks  *task.Group
	clock  clock.Clock
	jitter float64 // of back-offs

	pool     *redis.Client // the Redis client, if it is one; else nil
	outage   account
	refusals account
	answered atomic.Bool // a server has answered a request

	otherServer func()       // called at the first success after connections were closed
	closed      atomic.Int64 // number of the closed connections at the latest success

	// of Finish; after the end of the client, it ends when Redis does not answer one of these requests
	leaves     context.Context
	stopLeaves context.CancelCauseFunc
}

// New returns the Calls of a client with that name.
func New(rdb redis.Scripter, tasks *task.Group, clk clock.Clock, log *slog.Logger, name string) *Calls {
	c := &Calls{
		tasks: tasks, clock: clk, jitter: Jitter(name), otherServer: func() {},
		outage: account{
			clock: clk, log: log, begins: "outage begins: Redis does not serve this client",
			over: "outage is over: Redis serves this client again",
		},
		refusals: account{
			clock: clk, log: log, oneLock: true,
			begins: "refusals begin: Redis refuses what this client tries again", over: "refusals are over",
		},
	}
	c.Dispatcher = dispatch.New(rdb, clk, c.note)
	c.pool, _ = rdb.(*redis.Client)
	_, c.outage.oneLock = rdb.(interface{ ReloadState(ctx context.Context) }) // of a Cluster
	c.leaves, c.stopLeaves = context.WithCancelCause(context.Background())
	return c
}

// OnOtherServer sets f, which is called when Redis may be another server than before. f must not block. Call
// OnOtherServer before the first request.
func (c *Calls) OnOtherServer(f func()) { c.otherServer = f }

// Close returns when all requests have ended. The tasks have ended.
func (c *Calls) Close() {
	c.Dispatcher.Close()
	c.stopLeaves(nil)
}
