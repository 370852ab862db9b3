package fairlock

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Redis is what the library needs of a client: *redis.Client, *redis.ClusterClient, a Sentinel failover client and
// redis.UniversalClient have it. The caller closes it, after the Client.
type Redis interface {
	redis.Scripter
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Client makes locks on one Redis. A process needs one; it is safe for concurrent use. From its first contention on it
// keeps one Pub/Sub connection.
type Client struct {
	// Lock order: Lease.mu before Client.mu, localWaiters.mu before waiter.mu; those inside the dispatcher, the Clock and a
	// context come last. No other two mutexes are held together, and none during I/O, a channel operation that blocks, or a
	// callback. (Lease.unlocking, a channel, is held while a release is sent.)

	cfg      Config
	rdb      Redis
	clock    Clock
	log      *slog.Logger
	trace    *Trace
	share    float64 // of backoff
	dispatch *dispatch.Dispatcher

	life       context.Context // ends when Close is called
	end        context.CancelCauseFunc
	leaves     context.Context // of releases and requests to leave; after Close it ends when Redis does not answer one of them
	stopLeaves context.CancelCauseFunc
	tasks      sync.WaitGroup // operations and goroutines under way; grows under mu, or from inside a task
	subscriber *subscriber

	mu      sync.Mutex
	closed  bool                     // guarded by mu
	locals  map[string]*localWaiters // guarded by mu; by the lock's key
	waiters map[token.Token]*waiter  // guarded by mu; those that a grant can be for
	leases  map[*Lease]struct{}      // guarded by mu; those that have not ended
}

// New returns a Client on rdb. It does no I/O. The error, an ErrInvalid, names everything that is wrong with rdb and cfg.
//
// Hooks of rdb see every request once. A request sent alone carries the values of its caller's ctx. On a *redis.Client,
// requests that coincide go in one pipeline, which cannot carry them. Hooks run in goroutines of the Client: a panic in
// one ends the process, and the caller cannot recover it.
//
// A *redis.Ring is refused: its clients may disagree about the shard of a lock, and each shard would have a holder.
func New(rdb Redis, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(checkRedis(rdb), cfg.check()); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, rdb: rdb, clock: cfg.Clock, log: cfg.Logger, trace: cfg.Trace, share: backoffShare(cfg.Name),
		dispatch: dispatch.New(rdb, cfg.Clock),
		locals:   map[string]*localWaiters{},
		waiters:  map[token.Token]*waiter{},
		leases:   map[*Lease]struct{}{},
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.leaves, c.stopLeaves = context.WithCancelCause(context.Background())
	c.subscriber = &subscriber{client: c, channel: lua.NotificationChannel(cfg.Namespace, cfg.Name)}
	return c, nil
}

func checkRedis(rdb Redis) error {
	v := reflect.ValueOf(rdb)
	isNil := rdb == nil || v.Kind() == reflect.Pointer && v.IsNil()
	_, ring := rdb.(*redis.Ring)
	return errors.Join(
		require(!isNil, "rdb", "must not be nil"),
		require(!ring, "rdb", "must not be a *redis.Ring, whose clients may disagree about the shard of a lock"),
	)
}

// Name returns the client's id: the configured one or the default.
func (c *Client) Name() string { return c.cfg.Name }

// Close ends the Client. Calls that wait return ErrClosed, and their waiters leave the queues. Leases end with ErrClosed;
// their locks stay held in Redis until their TTL ends, so call Unlock before Close if another client should get a lock
// sooner. A release that is in flight goes on. Close returns when every goroutine and request of the Client has ended; a
// Redis that does not answer delays that by go-redis's own timeouts. A further call has no effect. Close must not be
// called from a Trace callback.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	leases := c.leases
	c.leases = map[*Lease]struct{}{}
	c.mu.Unlock()

	c.end(stopped{ErrClosed})
	for l := range leases {
		l.finish(ErrClosed)
	}
	c.tasks.Wait()
	c.dispatch.Close()
	c.stopLeaves(nil)
	return nil
}

// enter begins a task, which Close waits for; c.tasks.Done ends it.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.tasks.Add(1)
	return nil
}

// begin begins a task whose ctx also ends when the client is closed. The caller calls end.
func (c *Client) begin(parent context.Context) (ctx context.Context, end func(), err error) {
	if err := c.enter(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
		c.tasks.Done()
	}, nil
}

// background runs f in a goroutine that Close waits for. The caller is inside a task itself.
func (c *Client) background(f func()) { c.tasks.Go(f) }

// withTimeout is context.WithTimeout by the Client's clock. What did not finish in time ended with an ErrUnreachable.
func (c *Client) withTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := c.clock.AfterFunc(d, func() { cancel(stopped{fmt.Errorf("%w: no answer within %v", ErrUnreachable, d)}) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// withValues is a ctx with the values of another one, which does not end it.
type withValues struct {
	context.Context
	values context.Context
}

// Value looks at the first ctx first: package context finds by a value what ends it.
func (c withValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// longestTTL is the largest TTL of this client's leases and waiters of a lock, and of the acquisition that asks.
func (c *Client) longestTTL(l *lock) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := l.cfg.TTL
	for lease := range c.leases {
		if lease.lock.redis.Key() == l.redis.Key() {
			longest = max(longest, lease.lock.cfg.TTL)
		}
	}
	for _, w := range c.waiters {
		if w.lock.redis.Key() == l.redis.Key() {
			longest = max(longest, w.lock.cfg.TTL)
		}
	}
	return longest
}

// retry calls f, which releases a lock or removes a waiter, until it succeeds, fails in a way that another attempt cannot
// cure, or ctx ends. If the client is closed, an attempt that is under way goes on, and no other follows. If Redis does
// not answer it, all that are under way end.
func (c *Client) retry(ctx context.Context, f func() error) error {
	var pause backoff
	for {
		err := f()
		reason := orEnded(ctx, err) // not of the sleep that follows
		switch {
		case err == nil || lua.OriginOf(err) == lua.Permanent:
			return err
		case c.sleep(ctx, pause.next(c.share)):
		case c.life.Err() == nil:
			return reason
		default:
			if lua.OriginOf(err) == lua.NoReply {
				c.stopLeaves(context.Cause(c.life))
			}
			return fmt.Errorf("%w: %w", ErrClosed, err)
		}
	}
}

// sleep reports false if ctx or the client ends first.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	timer, cancel := c.withTimeout(ctx, d)
	defer cancel()
	select {
	case <-timer.Done():
	case <-c.life.Done():
	}
	return ctx.Err() == nil && c.life.Err() == nil
}

// backoff is the time between attempts: 20 ms, doubled each time up to 1 s, less a share of up to a half.
type backoff struct{ d time.Duration }

func (b *backoff) next(share float64) time.Duration {
	b.d = min(max(2*b.d, 20*time.Millisecond), time.Second)
	return b.d - time.Duration(share*float64(b.d))
}

// backoffShare differs from client to client, so that those that lost Redis together do not come back together.
func backoffShare(name string) float64 {
	return float64(crc32.ChecksumIEEE([]byte(name))) / (2 << 32)
}

// keep registers a lease, so that Close can end it.
func (c *Client) keep(l *Lease) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.leases[l] = struct{}{}
	return nil
}

func (c *Client) drop(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l)
}

// notify tells the waiters of this client of their grants. Other clients receive a notification. A grant to a waiter
// that has gone was or will be released by its request to leave.
func (c *Client) notify(grants ...lua.Grant) {
	for _, g := range grants {
		c.mu.Lock()
		w := c.waiters[g.Token]
		c.mu.Unlock()
		if w != nil {
			w.post(event{kind: notified, grant: g})
		}
	}
}

// handoff does what follows from a release: it notifies the waiters of this client, and has the rest of the queue
// served if the script reached a bound.
func (c *Client) handoff(l *lock, h lua.Handoff) {
	c.notify(h.Grants...)
	if h.More {
		c.serveQueue(l)
	}
}

// serveQueue goes on where a script reached a bound.
func (c *Client) serveQueue(l *lock) {
	c.background(func() {
		for more := true; more; {
			more, _ = l.redis.Admit(c.life) // after an error the heartbeats of the waiters go on
		}
	})
}
