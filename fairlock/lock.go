package fairlock

import (
	"context"
	"errors"
	"time"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// The kinds of locks.
const (
	mutex     = "mutex"
	semaphore = "semaphore"
	rwMutex   = "rwmutex"
)

// lock is a lock as one client uses it, with its name, its keys in Redis and its settings. It is immutable. Mutex, Semaphore
// and RWMutex have a pointer to one, which is nil in their zero values. What all of them can do is in kinds.go.
type lock struct {
	rt         *runtime
	queues     *queues
	subscriber *subscriber

	cfg      *Config // the client's, or a copy of it with other settings; WaiterTTL is the client's, see queue
	kind     string
	name     string
	redis    lua.Lock
	maxWait  time.Duration // bounds waiting; 0: nothing but ctx does
	invalid  error         // what is wrong with the name or the number of permits; returned before anything is sent
	settings error         // what is wrong with cfg
	badWait  error         // what is wrong with maxWait
}

// check returns an error if nothing is to be sent. refused is one that the method has found, such as bad input.
func (l *lock) check(ctx context.Context, refused error) error {
	if l == nil {
		return &FieldError{"lock", "must be made by a Client; the zero value is none"}
	}
	if err := errors.Join(l.invalid, l.settings, l.badWait, refused); err != nil {
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

func (l *lock) event(t token.Token) Event {
	return Event{Name: l.name, Kind: l.kind, Weight: t.Weight(), Token: t}
}

// acquire waits for the lock, or only tries to get it.
func (l *lock) acquire(ctx context.Context, op string, weight int, try bool, input error) (*Lease, error) {
	return perform(ctx, l, op, input, func(ctx context.Context, t task) (*Lease, error) {
		tok, err := token.New(l.cfg.Name, l.cfg.TTL, weight)
		if err != nil {
			return nil, err
		}
		if l.maxWait > 0 && !try {
			var cancel func()
			ctx, cancel = l.rt.withTimeoutCause(ctx, l.maxWait, stopped{ErrWaitTimeout})
			defer cancel()
		}
		w := newWaiter(l, t, tok, try)
		defer w.close()
		return w.run(ctx)
	})
}

// do runs f under a lease. Its error tells a loss of the lock once, also if f has returned it.
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

// perform runs an operation as a task, unless it is refused. Its ctx ends with the caller's, or when the client is closed.
func perform[T any](
	ctx context.Context, l *lock, op string, refused error, run func(context.Context, task) (T, error),
) (T, error) {
	var none T
	if err := l.check(ctx, refused); err != nil {
		return none, l.wrap(op, err)
	}
	t, err := l.rt.begin()
	if err != nil {
		return none, l.wrap(op, err)
	}
	defer t.end()
	never := ctx.Done() == nil
	ctx, cancel := l.rt.untilClosed(ctx)
	defer cancel()
	if never { // nothing but Redis has to end the call
		ctx = dispatch.Blocking(ctx)
	}
	v, err := run(ctx, t)
	return v, l.wrap(op, orEnded(ctx, err))
}

func (l *lock) resume(ctx context.Context, tok token.Token) (*Lease, error) {
	input := require(!tok.IsZero(), "token", "must not be the zero Token")
	return perform(ctx, l, "resume", input, func(ctx context.Context, _ task) (*Lease, error) {
		l := l.with(func(c *Config) { c.TTL = min(c.TTL, tok.TTL()) })
		before, err := l.redis.Inspect(ctx, 0)
		if err != nil {
			return nil, err
		}
		sent := l.rt.clock.Now()
		fence, err := l.redis.Resume(ctx, tok, l.cfg.TTL, before.Fence)
		if err == nil && fence == 0 {
			err = lost(ErrTaken)
		}
		if err != nil {
			return nil, err
		}
		return newLease(l, lua.Grant{Token: tok.Resumed(), Fence: fence, Given: l.cfg.TTL}, sent, false, false)
	})
}

// release ends the lease of a token with that fence. If an acquire of the token may still arrive, Redis refuses it from
// then on.
func (l *lock) release(ctx context.Context, tok token.Token, fence uint64, ambiguous bool) (lua.Handoff, error) {
	if ambiguous {
		return l.redis.Leave(ctx, lua.Leaving{Token: tok, Tombstone: true})
	}
	return l.redis.Release(ctx, tok, fence)
}

// giveBack releases a lease that nobody uses, in the background.
func (l *lock) giveBack(t task, tok token.Token, fence uint64, ambiguous bool) {
	t.goes(func(t task) {
		ctx, cancel := l.rt.withTimeout(l.rt.leaves, l.cfg.TTL)
		defer cancel()
		err := l.rt.retry(ctx, func() error {
			h, err := l.release(ctx, tok, fence, ambiguous)
			l.queues.handoff(t, l, h)
			return err
		})
		if err != nil {
			l.rt.log.Warn("unused lease was not released; it expires", "lock", l.name, "token", tok, "err", err)
		}
	})
}

func (l *lock) inspect(ctx context.Context) (State, error) {
	return perform(ctx, l, "inspect", nil, func(ctx context.Context, _ task) (State, error) {
		return Inspect(ctx, l.redis, MaxInspected)
	})
}

// resize sets the number of permits for all clients; 0: the one that they bring counts again.
func (l *lock) resize(ctx context.Context, op string, permits int, input error) error {
	_, err := perform(ctx, l, op, input, func(ctx context.Context, t task) (lua.Handoff, error) {
		h, err := l.redis.Resize(ctx, permits)
		l.queues.handoff(t, l, h)
		if err == nil {
			l.rt.log.InfoContext(ctx, "semaphore resized", "lock", l.name, "permits", permits)
		}
		return h, err
	})
	return err
}

// forceRelease takes the lock only from the holders that its first request saw: a reply may be lost, and the lock may have
// another holder when the request is sent again.
func (l *lock) forceRelease(ctx context.Context) (bool, error) {
	return perform(ctx, l, "force-release", nil, func(ctx context.Context, t task) (bool, error) {
		before, err := l.redis.Inspect(ctx, 0)
		if err != nil {
			return false, err
		}
		taken := false
		for h := (lua.Handoff{}); ; {
			if h, err = l.redis.ForceRelease(ctx, before.Fence, h.Next); err != nil {
				return taken, err
			}
			taken = taken || h.Released || h.Ambiguous && before.Used > 0
			l.queues.handoff(t, l, h)
			if h.Next == 0 {
				break
			}
		}
		if taken {
			l.rt.log.InfoContext(ctx, "lock released by force", "lock", l.name)
		}
		return taken, nil
	})
}
