// Package call is the one way to Redis of a client. It sends requests, says what their errors mean, how often and for
// how long a request is tried, when Redis does not serve the client, and all that is assumed about the inside of
// go-redis. It knows nothing of locks but their names.
package call

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/task"
)

// Calls are the requests of one client. It is safe for concurrent use.
type Calls struct {
	tasks  *task.Group
	clock  clock.Clock
	jitter float64 // of back-offs

	dispatcher *dispatch.Dispatcher
	pool       *redis.Client // the Redis client, if it is one; else nil
	reloader   reloader
	flights    flights
	outage     account
	refusals   account
	answered   atomic.Bool // a server has answered a request
	scripts    sync.Map    // hash of a script → whether the server had it at the latest request

	otherServer func()       // called at the first success after connections were closed
	closed      atomic.Int64 // number of the closed connections at the latest success

	// of Finish; after the client's end it ends when Redis does not answer one of these requests
	leaves     context.Context
	stopLeaves context.CancelCauseFunc
}

// New returns the Calls of a client with that name.
func New(rdb redis.Scripter, tasks *task.Group, clk clock.Clock, log *slog.Logger, name string) *Calls {
	c := &Calls{
		tasks: tasks, clock: clk, jitter: Jitter(name), dispatcher: dispatch.New(rdb, clk), otherServer: func() {},
		outage: account{
			tasks: tasks, clock: clk, log: log, begins: "outage begins: Redis does not serve this client",
			over: "outage is over: Redis serves this client again", silent: "outage is over: no request has failed for a minute",
		},
		refusals: account{
			tasks: tasks, clock: clk, log: log, oneLock: true,
			begins: "refusals begin: Redis refuses what this client tries again",
			over:   "refusals are over", silent: "refusals are over: no request was refused for a minute",
		},
	}
	c.flights = flights{tasks: tasks, clock: clk, noReply: func(lock string) { c.failed(lock, ErrNoReply) }}
	c.pool, _ = rdb.(*redis.Client)
	var cluster bool
	if c.reloader.rdb, cluster = rdb.(reloadable); cluster {
		c.outage.oneLock, c.flights.slow = true, c.reload
	}
	c.leaves, c.stopLeaves = context.WithCancelCause(context.Background())
	return c
}

// OnOtherServer sets f, which is called when Redis may be another server than before. Call it before the first request.
func (c *Calls) OnOtherServer(f func()) { c.otherServer = f }

// Answered reports whether a server has answered a request.
func (c *Calls) Answered() bool { return c.answered.Load() }

// Requests returns how many requests have not ended, also of those that wait to be sent.
func (c *Calls) Requests() int { return c.dispatcher.Requests() }

// failed notes that a request for a lock has failed.
func (c *Calls) failed(lock string, err error) { c.outage.failed(lock, c.named(err)) }

// Close returns when all requests have ended. The tasks have ended.
func (c *Calls) Close() {
	c.dispatcher.Close()
	c.flights.close()
	c.outage.close()
	c.refusals.close()
	c.stopLeaves(nil)
}
