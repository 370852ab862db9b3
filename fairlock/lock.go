package fairlock

import (
	"context"
	"errors"
	"iter"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/hold"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/wait"
	"github.com/fairlock/fairlock-go/token"
)

// lock is a lock as one client uses it, with its name, its keys in Redis and its settings. It is immutable. Mutex,
// Semaphore, KeyedSemaphore and RWMutex have a pointer to one, which is nil in their zero values.
type lock struct {
	client   *Client
	kind     Kind
	name     string
	permits  int    // of a semaphore or a read-write lock, that its tokens say; 0: a mutex
	key      string // of a keyed semaphore; "": of no one key
	redis    script.Lock
	wait     wait.Lock // of its waiters
	hold     hold.Env  // of its leases
	settings settings  // count instead of the client's
	invalid  error     // what is wrong with the name, the number of permits or an option; returned before anything is sent
}

// check returns an error if nothing is to be sent. refused is one that the method has found, such as bad input.
func (l *lock) check(ctx context.Context, refused error) error {
	if l == nil {
		return &FieldError{"lock", "must be made by a Client; the zero value is none"}
	}
	if err := errors.Join(l.invalid, refused); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errs.Ended(ctx)
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

// event returns the Event of an acquisition with a token, by a caller with that ctx.
func (l *lock) event(ctx context.Context, t token.Token) Event {
	weight, writer := t.Weight(), false
	if l.kind == KindRWMutex {
		weight, writer = 1, t.Weight() == tokens.WriterWeight
	}
	return Event{
		Ctx: ctx, Namespace: l.client.cfg.Namespace, ID: ID{l.kind, l.name}, Key: t.Terms().Key,
		Weight: weight, Writer: writer, Token: t,
	}
}

// handed handles the reply to a release.
func (l *lock) handed(t task.Task, h script.Handoff) { l.client.waiters.Handed(t, l.wait, h) }

// terms are what a request says for so many permits.
func (l *lock) terms(weight int) tokens.Terms {
	t := tokens.Terms{Weight: weight, Permits: l.permits}
	if l.kind == KindKeyedSemaphore {
		t.Key, t.KeyLimit, t.Share = l.key, l.settings.keyLimit, l.settings.share
	}
	return t
}

// newToken returns a token with these terms, whose lease can last for TTL, and for the minimum hold.
func (l *lock) newToken(terms tokens.Terms) (token.Token, error) {
	terms.TTL, terms.Flags, terms.Address = max(l.settings.ttl, l.settings.minHold), l.settings.flags, l.settings.address
	if l.settings.minHold > l.settings.ttl {
		terms.Flags |= tokens.MinHold
	}
	return token.Parse(tokens.New(l.client.cfg.Name, terms))
}

// leasesIn returns the leases of this lock that ctx carries, the innermost first.
func (l *lock) leasesIn(ctx context.Context) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for held := range leasesIn(ctx) {
			same := l != nil && held.lock.client == l.client && held.lock.kind == l.kind && held.lock.name == l.name
			if same && !yield(held) {
				return
			}
		}
	}
}

// heldBy returns a lease of this lock that ctx carries, and for whose end an acquisition of so many permits would wait;
// nil if there is none.
func (l *lock) heldBy(ctx context.Context, weight int) *Lease {
	if l.kind == KindSemaphore || l.kind == KindKeyedSemaphore {
		return nil
	}
	for held := range l.leasesIn(ctx) {
		readers := l.kind == KindRWMutex && weight == 1 && held.held.Token.Weight() == 1
		if !readers && held.Err() == nil {
			return held
		}
	}
	return nil
}

// do runs f under a lease.
func (l *lock) do(ctx context.Context, op string, weight int, input error, f func(context.Context) error) error {
	lease, err := l.acquire(ctx, op, weight, input)
	if err != nil {
		return err
	}
	return l.run(ctx, op, lease, f)
}

// tryDo runs f under a lease, if the lock is free.
func (l *lock) tryDo(ctx context.Context, op string, weight int, input error, f func(context.Context) error) error {
	lease, err := l.tryAcquire(ctx, op, weight, input)
	if err != nil {
		return err
	}
	return l.run(ctx, op, lease, f)
}

// run runs f under a lease, and unlocks it. Its error tells a loss of the lock once, also if f has returned it.
func (l *lock) run(ctx context.Context, op string, lease *Lease, f func(context.Context) error) (err error) {
	inner, cancel := lease.Context(ctx)
	defer func() { // also when f panics
		cancel()
		lost := lease.held.Unlock(ctx)
		switch {
		case lost == nil, errors.Is(lost, ErrDetached): // by f
		case errors.Is(err, lost):
			err = l.wrap(op, err)
		case errors.Is(lost, ErrLost):
			err = errors.Join(err, l.wrap(op, lost))
		default: // f has returned, and the lock may stay held
			err = errors.Join(err, l.wrap("unlock", lost))
		}
	}()
	if err := lease.Err(); err != nil {
		return err
	}
	return f(inner)
}

// perform runs an operation as a task, unless it is refused. Its ctx ends with the caller's, and with the client.
func perform[T any](
	ctx context.Context, l *lock, op string, refused error, run func(context.Context, task.Task) (T, error),
) (v T, err error) {
	defer func() { err = l.wrap(op, err) }()
	if err := l.check(ctx, refused); err != nil {
		return v, err
	}
	t, err := l.client.tasks.Begin()
	if err != nil {
		return v, err
	}
	defer t.End()
	ctx, cancel := task.Joined(ctx, l.client.tasks.Life())
	defer cancel()
	v, err = run(ctx, t)
	return v, call.OrEnded(ctx, err)
}

// snapshot reads the lock, with one holder at most.
func (l *lock) snapshot(ctx context.Context) (script.Snapshot, error) {
	return perform(ctx, l, "inspect", nil, func(ctx context.Context, _ task.Task) (s script.Snapshot, err error) {
		err = l.client.calls.Briefly(ctx, func(ctx context.Context) (err error) {
			s, err = l.redis.Inspect(ctx, 1, 0)
			return err
		})
		return s, err
	})
}

// shared is what all kinds of locks have.
type shared struct{ lock *lock }

// Resume takes over the lease of a Handle, with a new token, fence and handle, and this lock's TTL and minimum hold.
// ErrRevoked means that the lease has ended, or that the handle was used before. ctx bounds the request, 3 s at most.
func (s shared) Resume(ctx context.Context, h Handle) (*Lease, error) { return s.lock.resume(ctx, h) }

// LeaseFromContext returns the innermost lease of this lock, of any key, that ctx carries from the same Client, and
// false if there is none. It may have ended.
func (s shared) LeaseFromContext(ctx context.Context) (*Lease, bool) {
	for l := range s.lock.leasesIn(ctx) {
		return l, true
	}
	return nil, false
}
