package fairlock

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Redis is what the library needs of a client: *redis.Client, *redis.ClusterClient, a Sentinel failover client and
// redis.UniversalClient all satisfy it. It stays the caller's to close, after the Client.
type Redis interface {
	redis.Scripter
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Client makes locks on one Redis. A process needs one; it is safe for concurrent use. From its first contention on it
// keeps one Pub/Sub connection.
type Client struct {
	rdb   Redis
	cfg   Config
	clock Clock
	log   *slog.Logger
	trace *Trace

	life    context.Context // ends with cause ErrClosed when Close is called
	end     context.CancelCauseFunc
	tasks   sync.WaitGroup // calls and goroutines under way; grows under mu while not closed, or from inside a task
	ear     *ear
	direct  direct
	batcher batcher
	idle    chan func()  // to workers that wait for work
	spare   atomic.Int32 // such workers
	mute    atomic.Bool  // the client is closed, and Redis does not answer: nobody else tries to leave

	mu      sync.Mutex
	closed  bool                    // guarded by mu
	lines   map[string]*line        // guarded by mu; by the lock's queue key
	waiters map[token.Token]*waiter // guarded by mu; whom a grant can be for
	leases  map[*Lease]struct{}     // guarded by mu; the live ones
}

// New returns a Client on rdb. It does no I/O. The error, an ErrInvalid, names every fault of cfg at once.
//
// A *redis.Client is used in two ways that other clients are not: calls that come together go in one pipeline, and a
// call that is alone is made on a copy of the client (redis.Client.WithTimeout), which has no hooks. Hooks that must see
// every call need a rdb of another type, for example struct{ *redis.Client }; every call is somewhat slower then.
func New(rdb Redis, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	err := cfg.check()
	if isNil(rdb) {
		err = errors.Join(&FieldError{"rdb", "must not be nil"}, err)
	}
	if err != nil {
		return nil, err
	}
	c := &Client{
		rdb: rdb, cfg: cfg, clock: cfg.Clock, log: cfg.Logger, trace: cfg.Trace,
		lines:   map[string]*line{},
		waiters: map[token.Token]*waiter{},
		leases:  map[*Lease]struct{}{},
	}
	c.idle = make(chan func())
	c.direct.limit(rdb, c.clock)
	plain, _ := rdb.(*redis.Client)
	c.batcher = batcher{client: c, plain: plain}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.ear = &ear{client: c, channel: lua.WakeChannel(cfg.Namespace, cfg.Name)}
	return c, nil
}

// isNil sees through the interface: a nil *redis.Client is as unusable as none.
func isNil(rdb Redis) bool {
	if rdb == nil {
		return true
	}
	v := reflect.ValueOf(rdb)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Name returns the client's id: the configured one or the default.
func (c *Client) Name() string { return c.cfg.Name }

// Close ends the Client: waiters return ErrClosed and leave their queues, leases end with ErrClosed (their locks stay
// taken in Redis until their TTL ends; unlock first what others should get sooner). It returns once every goroutine
// and call of the Client has ended; a Redis that does not answer delays that by go-redis's own timeouts. Calling it
// again does nothing more. It must not be called from a Trace callback.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	leases := c.leases
	c.leases = map[*Lease]struct{}{}
	c.mu.Unlock()

	c.end(ErrClosed)
	for l := range leases {
		l.finish(ErrClosed)
	}
	c.ear.close()
	c.tasks.Wait()
	return nil
}

// enter begins a call or goroutine that Close waits for; leave it with c.tasks.Done.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.tasks.Add(1)
	return nil
}

// background runs f in a goroutine that Close waits for. The caller is inside a task itself.
func (c *Client) background(f func()) { c.tasks.Go(f) }

// keep registers a live lease, so that Close can end it.
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

// deliver wakes those waiters of ours that a script has admitted. Grants to others reach them by Pub/Sub. A grant
// that none of our waiters wants any more was or will be given back by its leave.
func (c *Client) deliver(grants ...lua.Grant) {
	for _, g := range grants {
		c.mu.Lock()
		w := c.waiters[g.Token]
		c.mu.Unlock()
		if w != nil {
			w.hand(g)
		}
	}
}

// burial is for how long a token that leaves is refused: if a question of it may still arrive, one patience, and no
// less than the second after which nothing of it may be left.
func (c *Client) burial(t *lua.Leaving) time.Duration {
	if t.Unsure {
		return max(c.cfg.WaiterTTL, time.Second)
	}
	return 0
}

// settle does what a release leaves to do: wakes our own waiters at once, and sees to it that the queue is served.
func (c *Client) settle(l lock, h lua.Handover) {
	c.deliver(h.Grants...)
	if h.More {
		c.serveQueue(l)
	}
}

// serveQueue goes on where a script has reached its bound.
func (c *Client) serveQueue(l lock) {
	c.background(func() {
		for more := true; more; {
			more, _ = l.redis.Admit(c.life, l.ttl) // after an error the waiters' beats go on
		}
	})
}
