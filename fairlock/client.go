package fairlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/hold"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/internal/wait"
)

// Redis is the part of a go-redis client that a Client needs: a *redis.Client (which may be of Sentinel), a
// *redis.ClusterClient or a redis.UniversalClient. The caller closes it after the Client.
type Redis interface {
	redis.Scripter
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Client makes locks on one Redis. A process needs one.
type Client struct {
	// The lock order of the library is that of its imports (testdata/imports.txt). While a mutex is held, only those of
	// packages below, such as the Clock's, may be taken. No mutex is held during a request, a channel operation that
	// blocks, a callback or a function of an Env. (An Unlock waits for another Unlock of the same lease.)

	cfg     Config
	tasks   *task.Group
	calls   *call.Calls
	waiters *wait.Waiters

	releases hold.Releases
}

// New returns a Client that makes locks on rdb, whose options matter (see the package comment). It does no I/O. The
// error is an ErrInvalid that names all that is wrong with rdb and cfg.
func New(rdb Redis, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(checkRedis(rdb), cfg.check()); err != nil {
		return nil, err
	}
	if least := readTimeout(rdb) + 2*time.Second; cfg.MaxOutage > 0 && cfg.MaxOutage < least {
		cfg.Logger.Warn("MaxOutage is short: one lost request can end calls", "MaxOutage", cfg.MaxOutage, "least", least)
	}
	tasks := task.NewGroup()
	calls := call.New(rdb, tasks, cfg.Clock, cfg.Logger, cfg.Name)
	c := &Client{cfg: cfg, tasks: tasks, calls: calls}
	otherServer := func() { c.releases.Repeat(tasks, cfg.Clock) }
	calls.OnOtherServer(otherServer)
	_, cluster := rdb.(*redis.ClusterClient)
	var others []string // after a failure not nil; on a Cluster one channel, whose node is probably another one
	c.waiters = wait.New(wait.Env{
		Tasks: tasks, Calls: calls, Clock: cfg.Clock, Log: cfg.Logger, WaiterTTL: cfg.WaiterTTL,
		Channel: script.NotificationChannel(cfg.Namespace, cfg.Name),
		Listen: func(ctx context.Context, channel string, up func(), message func(string)) error {
			err := call.Listen(ctx, rdb, append(others, channel), up, message)
			if others = []string{}; cluster {
				others = []string{script.NotificationChannel(cfg.Namespace, rand.Text())}
			}
			return err
		},
		Subscription: func(err error) {
			if err == nil && others != nil { // it comes up again
				otherServer()
			}
			emit(cfg.Trace.Subscription, err)
		},
	})
	return c, nil
}

// readTimeout returns how long a client of go-redis waits for a reply; 0: unknown, or without limit.
func readTimeout(rdb Redis) time.Duration {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return max(rdb.Options().ReadTimeout, 0)
	case *redis.ClusterClient:
		return max(rdb.Options().ReadTimeout, 0)
	}
	return 0
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

// Name returns Config.Name or its default.
func (c *Client) Name() string { return c.cfg.Name }

// Close ends the Client. Calls that wait return ErrClosed, and their waiters leave the queues. Leases end with
// ErrClosed, and their locks stay held in Redis for the rest of TTL: call Unlock before, or Shutdown. Close returns
// when every goroutine and request of the Client has ended. If Redis hangs, that takes until go-redis's own timeouts.
// Further calls have no effect.
func (c *Client) Close() error {
	c.tasks.Close()
	c.calls.Close()
	return nil
}

// Shutdown waits for the work under the client's locks, and closes the client. Meanwhile Lock, Try…, Do and Resume
// return ErrClosed, even if they wait already. Calls whose ctx carries a held lease of this client (from Do or
// Lease.Context) go on, because a holder may need another lock. Renewals, Renew and Unlock go on.
//
// Shutdown returns nil when all leases have ended, Redis has acknowledged every release and every leave, and the client
// is closed. If ctx ends first, leases end as by Close, and Shutdown returns the error of ctx within 100 ms. Its text
// says how many leases were held, and names one lock. If Close is called meanwhile, Shutdown returns ErrClosed.
//
// Shutdown waits until ctx ends for a lease that is not unlocked, and for a call under a lease whose ctx was made by
// context.WithoutCancel. A function that runs for as long as its ctx, such as that of package leader, needs a ctx that
// ends before. The function of Do and Trace callbacks must not call Shutdown, which would wait for them.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := c.tasks.Shutdown(ctx, func() { _ = c.Close() }); err != nil {
		return fmt.Errorf("fairlock: shutdown: %w", err)
	}
	return nil
}

// newLock returns a lock with that number of permits; 0: a mutex.
func newLock[O KeyOption](c *Client, kind Kind, name string, permits int, options []O) *lock {
	redis, _ := script.Of(c.calls, string(kind), c.cfg.Namespace, name)
	l := &lock{client: c, kind: kind, name: name, permits: permits, redis: redis.WithFenceTTL(c.cfg.FenceTTL)}
	defaults := settings{ttl: c.cfg.TTL, maxWaiters: c.cfg.MaxWaiters, maxOutage: c.cfg.MaxOutage, share: 1}
	s, invalid := with(l, defaults, options)
	if kind == KindSemaphore || kind == KindKeyedSemaphore {
		invalid = errors.Join(require(permits >= 1 && permits <= bounds.MaxPermits, "permits", "%d, must be from 1 to %d",
			permits, bounds.MaxPermits), invalid)
	}
	l.settings, l.invalid = s, errors.Join(require(name != "" && len(name) <= bounds.MaxName, "name",
		"%d bytes, must be from 1 to %d", len(name), bounds.MaxName), invalid)
	l.wire()
	return l
}

// wire connects the lock with the client's waiters and leases. It is called last, because they get the settings.
func (l *lock) wire() {
	c := l.client
	l.wait = wait.Lock{Name: l.name, Requests: &l.redis}
	l.hold = hold.Env{
		Tasks: c.tasks, Calls: c.calls, Clock: c.cfg.Clock, Log: c.cfg.Logger,
		Redis: &l.redis, Lock: l.name, TTL: l.settings.ttl, MinHold: l.settings.minHold, WaiterTTL: c.cfg.WaiterTTL,
		Releases: &c.releases,
		Handed:   l.handed, Renewed: l.renewed, Ended: l.ended,
	}
}

// Ping reports whether locks can be used now, for a readiness probe. It fails if Redis cannot be reached, is loading
// its data, is full or a replica. It fails if rights or commands are missing, and names them. It also fails if the
// subscription has been down for 5 s, and after Shutdown or Close. On a Cluster it tries one master. Give ctx a
// deadline. Otherwise go-redis's own timeouts bound a request that hangs.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.ping(ctx); err != nil {
		return fmt.Errorf("fairlock: ping: %w", err)
	}
	return nil
}

func (c *Client) ping(ctx context.Context) error {
	if ctx.Err() != nil {
		return errs.Ended(ctx)
	}
	t, err := c.tasks.Begin()
	if err != nil {
		return err
	}
	defer t.End()
	ctx, cancel := task.Joined(ctx, c.tasks.Open())
	defer cancel()
	if c.tasks.Open().Err() != nil { // cancelling ctx may take a moment
		return ErrClosed
	}
	if err := script.Ping(ctx, c.calls, c.cfg.Namespace); err != nil {
		return call.OrEnded(ctx, err)
	}
	return c.waiters.CheckSubscription()
}

// Stats describes a Client at one moment.
type Stats struct {
	Leases   int // leases that are held
	Waiters  int // waiters that Redis has queued
	Requests int // requests to Redis that have not ended, including those that wait to be sent

	// OutageSince is the time of the first failure in the present outage, else zero. It begins with a second failure
	// 1 s or more after the first. It ends 5 s after the latest failure if a request has succeeded since (on a Cluster
	// one for the same lock). Otherwise it ends a minute after that failure. No reply for 2 s counts as a failure. A
	// client that sends nothing notices no outage: call Ping, with a ctx of 3 s or more.
	OutageSince time.Time

	// RefusedSince is the time since which Redis, or a proxy before it, has refused requests that the client retries, else
	// zero. It begins and ends as an outage does, separately for each lock.
	RefusedSince time.Time
}

// Stats returns what the client does now. It does no I/O, and works after Close.
func (c *Client) Stats() Stats {
	since, _ := c.calls.Outage()
	refused, _ := c.calls.Refusals()
	leases, _ := c.tasks.Held()
	return Stats{
		Leases: leases, Waiters: c.waiters.Queued(), Requests: c.calls.Requests(), OutageSince: since, RefusedSince: refused,
	}
}
