package fairlock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// lock is the engine's view of a lock: what it is called, where it lives, and with which settings it is used.
type lock struct {
	client     *Client
	kind       string
	name       string
	redis      lua.Lock
	weight     int // permits that are asked for; of no meaning for a mutex
	ttl        time.Duration
	maxWaiters int
	fault      error // of its settings, reported before anything is sent
}

// The kinds of locks.
const (
	mutex     = "mutex"
	semaphore = "semaphore"
	rwMutex   = "rwmutex"
)

func (c *Client) lock(kind, name string, redis lua.Lock) lock {
	return lock{
		client: c, kind: kind, name: name, redis: redis, weight: 1,
		ttl: c.cfg.TTL, maxWaiters: c.cfg.MaxWaiters, fault: checkName(name),
	}
}

func (l *lock) setTTL(d time.Duration) {
	l.ttl = d
	l.blame(checkTTL("TTL", d))
}

func (l *lock) setMaxWaiters(n int) {
	l.maxWaiters = n
	l.blame(checkMaxWaiters(n))
}

func (l *lock) blame(fault error) { l.fault = errors.Join(l.fault, fault) }

func (l lock) event(t token.Token) Event {
	return Event{Name: l.name, Kind: l.kind, Weight: l.weight, Token: t}
}

// check tells why nothing should be sent.
func (l *lock) check(ctx context.Context) error {
	switch {
	case l.client == nil:
		return &FieldError{"lock", "the zero value is none; the methods of Client return one"}
	case l.fault != nil:
		return l.fault
	case ctx.Err() != nil:
		return ended(ctx)
	}
	return nil
}

// wrap puts the operation and the name around an error.
func (l lock) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: l.name, Err: err}
}

// request is one call to Redis that ctx bounds and that needs no undoing: inspect, force-release, resume.
func request[T any](ctx context.Context, l lock, op string, send func(context.Context, lua.Lock) (T, error)) (T, error) {
	var none T
	if err := l.check(ctx); err != nil {
		return none, l.wrap(op, err)
	}
	if err := l.client.enter(); err != nil {
		return none, l.wrap(op, err)
	}
	defer l.client.tasks.Done()
	r := await(ctx, l.client, 0, func(ctx context.Context, rdb redis.Scripter) (T, error) {
		return send(ctx, l.redis.Via(rdb))
	}, func() {})
	return r.value, l.wrap(op, r.err)
}

func (l lock) forceRelease(ctx context.Context) (bool, error) {
	var before *lua.Snapshot // when it was asked first: an answer may get lost, and then it is asked again
	taken, err := request(ctx, l, "force-release", func(ctx context.Context, redis lua.Lock) (taken bool, err error) {
		if before != nil {
			taken = before.Used > 0
		} else {
			now, err := redis.Inspect(ctx, 0)
			if err != nil {
				return false, err
			}
			before = &now
		}
		for h := (lua.Handover{Released: true, More: true}); h.Released && h.More; taken = taken || h.Released {
			if h, err = redis.ForceRelease(ctx, l.ttl, before.Fence); err != nil {
				return taken, err
			}
			l.client.settle(l, h)
		}
		return taken, nil
	})
	if taken {
		l.client.log.InfoContext(ctx, "lock released by force", "lock", l.name)
	}
	return taken, err
}

func (l lock) resume(ctx context.Context, t token.Token) (*Lease, error) {
	if t.IsZero() {
		l.blame(&FieldError{"token", "must not be the zero Token"})
	}
	if err := l.check(ctx); err != nil {
		return nil, l.wrap("resume", err)
	}
	if l.kind != mutex {
		l.weight = 0
	}
	sent := l.client.clock.Now()
	fence, err := request(ctx, l, "resume", func(ctx context.Context, redis lua.Lock) (uint64, error) {
		fence, ok, err := redis.Renew(ctx, t, l.ttl, 0)
		if err == nil && !ok {
			err = lost(ErrTaken)
		}
		return fence, err
	})
	if err != nil {
		return nil, err
	}
	lease, err := newLease(l, &lua.Leaving{Token: t}, fence, sent, l.ttl)
	return lease, l.wrap("resume", err)
}
