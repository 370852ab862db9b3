package fairlock

import (
	"context"
	"errors"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// The kinds of locks.
const (
	mutex     = "mutex"
	semaphore = "semaphore"
	rwMutex   = "rwmutex"
)

// lock is a lock as one client uses it: its name, its keys in Redis, its settings. It is immutable. Mutex, Semaphore and
// RWMutex have a pointer to one, nil in their zero values. What all of them can do is in kinds.go.
type lock struct {
	client   *Client
	cfg      *Config // the client's, or a copy of it with other settings; WaiterTTL is the client's, see localWaiters
	kind     string
	name     string
	redis    lua.Lock
	invalid  error // what is wrong with the name or the number of permits; returned before anything is sent
	settings error // what is wrong with cfg
}

func (c *Client) lock(kind, name string, redis lua.Lock, invalid error) *lock {
	return &lock{
		client: c, cfg: &c.cfg, kind: kind, name: name, redis: redis.WithFenceTTL(c.cfg.FenceTTL),
		invalid: errors.Join(checkName(name), invalid),
	}
}

// check returns why nothing is to be sent. refused is a reason that the method has found: bad input, say.
func (l *lock) check(ctx context.Context, refused error) error {
	if l == nil {
		return &FieldError{"lock", "must be made by a Client; the zero value is none"}
	}
	if err := errors.Join(l.invalid, l.settings, refused); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return nil
}

// wrap adds the operation and the lock's name to an error.
func (l *lock) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	name := ""
	if l != nil {
		name = l.name
	}
	return &Error{Op: op, Name: name, Err: err}
}

func (l *lock) event(t token.Token, weight int) Event {
	return Event{Name: l.name, Kind: l.kind, Weight: weight, Token: t}
}

// acquire waits for the lock, or only tries.
func (l *lock) acquire(ctx context.Context, op string, weight int, try bool, input error) (*Lease, error) {
	return request(ctx, l, op, input, func(ctx context.Context) (*Lease, error) {
		t, err := token.New(l.client.cfg.Name, l.cfg.TTL)
		if err != nil {
			return nil, err
		}
		w := newWaiter(l, t, weight, try)
		defer w.close()
		return w.run(ctx)
	})
}

// do runs f under a lease. A loss of the lock stands in the result once.
func (l *lock) do(ctx context.Context, op string, weight int, input error, f func(context.Context) error) (err error) {
	lease, err := l.acquire(ctx, op, weight, false, input)
	if err != nil {
		return err
	}
	inner, cancel := lease.Context(ctx)
	defer func() { // also when f panics
		cancel()
		lost := lease.unlock(ctx)
		switch {
		case lost == nil:
		case errors.Is(err, lost):
			err = l.wrap(op, err)
		default:
			err = errors.Join(err, l.wrap(op, lost))
		}
	}()
	if err := lease.Err(); err != nil {
		return err
	}
	return f(inner)
}

// request runs an operation, unless it is refused. Its ctx ends with the caller's, or when the client is closed.
func request[T any](ctx context.Context, l *lock, op string, refused error, run func(context.Context) (T, error)) (T, error) {
	var none T
	if err := l.check(ctx, refused); err != nil {
		return none, l.wrap(op, err)
	}
	ctx, end, err := l.client.begin(ctx)
	if err != nil {
		return none, l.wrap(op, err)
	}
	defer end()
	v, err := run(ctx)
	return v, l.wrap(op, orEnded(ctx, err))
}

func (l *lock) resume(ctx context.Context, t token.Token) (*Lease, error) {
	input := require(!t.IsZero(), "token", "must not be the zero Token")
	return request(ctx, l, "resume", input, func(ctx context.Context) (*Lease, error) {
		l := l.with(func(c *Config) { c.TTL = min(c.TTL, t.TTL()) })
		sent := l.client.clock.Now()
		reply, err := l.redis.Renew(ctx, t, l.cfg.TTL, 0)
		if err == nil && !reply.Held {
			err = lost(ErrTaken)
		}
		if err != nil {
			return nil, err
		}
		weight := 0 // not known
		if l.kind == mutex {
			weight = 1
		}
		return newLease(l, t, weight, reply.Fence, sent, l.cfg.TTL)
	})
}

// giveBack releases a lease of which no Lease knows.
func (l *lock) giveBack(t token.Token, fence uint64) {
	c := l.client
	c.background(func() {
		ctx, cancel := c.withTimeout(c.leaves, l.cfg.TTL)
		defer cancel()
		err := c.retry(ctx, func() error {
			h, err := l.redis.Release(ctx, t, fence)
			c.handoff(l, h)
			return err
		})
		if err != nil {
			c.log.Warn("unused lease was not released; it expires", "lock", l.name, "token", t, "err", err)
		}
	})
}

// reportLoss reports to Redis a lease that was lost while it was trusted. If Redis has lost its data, it grants the lock to
// nobody until other holders must have learned of that, too.
func (l *lock) reportLoss(t token.Token, fence uint64) {
	c := l.client
	c.background(func() {
		ctx, cancel := c.withTimeout(c.leaves, l.cfg.TTL)
		defer cancel()
		_ = l.redis.ReportLoss(ctx, t, fence, c.longestTTL(l)) // or else they learn of it at their next renewals
	})
}

func (l *lock) inspect(ctx context.Context) (State, error) {
	return request(ctx, l, "inspect", nil, func(ctx context.Context) (State, error) {
		return Inspect(ctx, l.redis, MaxInspected)
	})
}

// forceRelease takes the lock only from the holders that its first request saw: a reply may be lost, and the lock has
// another holder when the request is sent again.
func (l *lock) forceRelease(ctx context.Context) (bool, error) {
	return request(ctx, l, "force-release", nil, func(ctx context.Context) (bool, error) {
		before, err := l.redis.Inspect(ctx, 0)
		if err != nil {
			return false, err
		}
		taken := false
		for more := true; more; {
			h, err := l.redis.ForceRelease(ctx, before.Fence)
			if err != nil {
				return taken, err
			}
			taken = taken || h.Released || h.Ambiguous && (before.Used > 0 || before.Quarantine > 0)
			more = h.Released && h.More
			l.client.handoff(l, h)
		}
		if taken {
			l.client.log.InfoContext(ctx, "lock released by force", "lock", l.name)
		}
		return taken, nil
	})
}
