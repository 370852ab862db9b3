package fairlock

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/hold"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/wait"
	"github.com/fairlock/fairlock-go/token"
)

// lock is a lock as one client uses it, with its name, its keys in Redis and its settings. It is immutable. Mutex,
// Semaphore, KeyedSemaphore and RWMutex have a pointer to one, which is nil in their zero values. What all of them can
// do is in shared.go.
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

// acquire waits for the lock, or only tries to get it.
func (l *lock) acquire(ctx context.Context, op string, weight int, try bool, input error) (*Lease, error) {
	caller := ctx
	return perform(ctx, l, op, untilShutdown, input, func(ctx context.Context, t task.Task) (*Lease, error) {
		if held := l.heldBy(ctx, weight); held != nil {
			if try {
				return nil, &HeldError{Reason: Held, Holder: held.held.Token.Client(), Err: ErrBusy}
			}
			return nil, ErrReentrant
		}
		tok, err := l.newToken(l.terms(weight))
		if err != nil {
			return nil, err
		}
		limited := l.client.calls.LimitedBySilence
		if try {
			limited = l.client.calls.Limited
		}
		ctx, cancel := limited(ctx)
		defer cancel()
		if l.settings.maxWait > 0 && !try {
			ctx, cancel = l.client.calls.WithTimeoutCause(ctx, l.settings.maxWait, ErrWaitTimeout)
			defer cancel()
		}
		return l.await(caller, ctx, t, tok, try)
	})
}

// await runs an acquisition until its lease begins or it leaves.
func (l *lock) await(caller, ctx context.Context, t task.Task, tok token.Token, try bool) (*Lease, error) {
	began, event, trace := l.client.cfg.Clock.Now(), l.event(caller, tok), l.client.cfg.Trace
	w := l.client.waiters.Join(t, l.wait, wait.Request{
		Token: tok, TTL: l.settings.ttl, MaxWaiters: l.settings.maxWaiters, MaxLine: l.settings.maxLine, Try: try,
	})
	defer w.Close()
	var lease *Lease
	var err error
	returns := false
	defer func() {
		if !returns && lease == nil { // a function of the user's has panicked
			w.Leave()
		}
	}()
	for queued := false; ; {
		switch step := w.Next(ctx); step.Kind {
		case wait.Queued:
			queued = true
			emit(trace.Queued, QueuedInfo{Event: event, Position: step.Reply.Position, Ticket: uint64(step.Reply.Ticket)})
			continue
		case wait.NotificationLost:
			emit(trace.NotificationLost, event)
			continue
		case wait.Granted:
			g := step.Grant
			lease, err = l.beginLease(hold.Grant{
				Caller: caller, Token: tok, Fence: g.Fence, Given: g.Given, Sent: g.Sent, Handoff: g.Handoff,
				Ambiguous: g.Ambiguous,
			})
			if err == nil {
				lease.granted(GrantedInfo{
					Event: event, Fence: g.Fence, Ticket: uint64(g.Ticket), Wait: lease.held.Began.Sub(began), Handoff: g.Handoff,
					Queued: queued,
				})
				returns = true
				return lease, nil
			}
			if errors.Is(err, ErrExpired) && !try { // the notification was late, or this process was paused
				continue
			}
		case wait.Left:
			err = l.whyLeft(step, tok)
		}
		emit(trace.Abandoned, AbandonedInfo{Event: event, Wait: l.client.cfg.Clock.Now().Sub(began), Err: err, Queued: queued})
		returns = true
		w.Leave()
		return nil, err
	}
}

// whyLeft returns the error of a waiter that has left. It names a holder if that can be of interest. Otherwise it says
// what Redis failed with.
func (l *lock) whyLeft(left wait.Step, tok token.Token) error {
	err, reply := left.Err, left.Reply
	switch {
	case err != nil:
	case reply.Outcome == script.Full && reply.Why == script.WhyKey:
		err = &QueueFullError{Waiting: reply.Position, Limit: l.settings.maxLine, Key: l.key}
	case reply.Outcome == script.Full:
		err = &QueueFullError{Waiting: reply.Position, Limit: l.settings.maxWaiters}
	case reply.Outcome == script.Resized:
		err = &CapacityError{Want: tok.Weight(), Have: reply.Permits}
	default:
		err = ErrBusy
	}
	holder, _ := token.Parse(reply.Holder) // zero if another program has written the key
	named := errors.Is(err, ErrWaitTimeout) || errors.Is(err, ErrBusy) || errors.Is(err, context.DeadlineExceeded)
	held := named && !holder.IsZero()
	if held {
		e := &HeldError{Reason: Held, Holder: holder.Client(), Err: err}
		if reply.Outcome == script.Busy {
			e.Reason = BusyReason(reply.Why)
		}
		e.Released = e.Reason != AtKeyLimit && holder.Terms().Flags&tokens.Released != 0
		if e.Released && reply.Outcome == script.Busy {
			e.Free = max(reply.RetryAfter, 0)
		}
		err = e
	}
	if left.Failure != nil && (!held || errors.Is(left.Failure, ErrRefused)) {
		err = &errs.Tried{Err: err, Failure: left.Failure, Lasted: l.client.cfg.Clock.Now().Sub(left.Failing)}
	}
	return err
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

// do runs f under a lease. Its error tells a loss of the lock once, also if f has returned it.
func (l *lock) do(
	ctx context.Context, op string, weight int, try bool, input error, f func(context.Context) error,
) (err error) {
	lease, err := l.acquire(ctx, op, weight, try, input)
	if err != nil {
		return err
	}
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

// until says what ends an operation besides its caller's ctx.
type until bool

const (
	untilClosed   until = false // the end of the client
	untilShutdown until = true  // also Shutdown, unless the caller holds a lease
)

// perform runs an operation as a task, unless it is refused.
func perform[T any](
	ctx context.Context, l *lock, op string, end until, refused error, run func(context.Context, task.Task) (T, error),
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
	never := ctx.Done() == nil
	ctx, cancel, err := l.client.until(ctx, end)
	if err != nil {
		return v, err
	}
	defer cancel()
	if never { // nothing but Redis has to end the call
		ctx = dispatch.Blocking(ctx)
	}
	v, err = run(ctx, t)
	return v, call.OrEnded(ctx, err)
}

// resume takes over the lease of a handle, with a token of its own: the other process sends nothing that touches it.
func (l *lock) resume(ctx context.Context, h Handle) (*Lease, error) {
	old, fence, input := h.parse()
	if input == nil && l != nil {
		terms := old.Terms()
		same := (terms.Permits == 0) == (l.permits == 0) && (terms.Key == "") == (l.kind != KindKeyedSemaphore) &&
			(l.key == "" || l.key == terms.Key)
		input = require(same, "handle", "is of another kind of lock, or of another key")
	}
	caller := ctx
	return perform(ctx, l, "resume", untilShutdown, input, func(ctx context.Context, t task.Task) (*Lease, error) {
		tok, err := l.newToken(old.Terms()) // its permits, and its key, limit and share
		if err != nil {
			return nil, err
		}
		began := l.client.cfg.Clock.Now()
		lease, err := l.takeOver(caller, ctx, t, old, fence, tok)
		if err != nil {
			waited := l.client.cfg.Clock.Now().Sub(began)
			err = call.OrEnded(ctx, err)
			emit(l.client.cfg.Trace.Abandoned, AbandonedInfo{Event: l.event(caller, tok), Wait: waited, Err: err})
			return nil, err
		}
		lease.granted(GrantedInfo{Event: l.event(caller, tok), Fence: lease.Fence(), Wait: lease.held.Began.Sub(began)})
		return lease, nil
	})
}

// takeOver has Redis pass a lease on to a token of this client. If that does not come to a lease here, the token
// leaves.
func (l *lock) takeOver(caller, ctx context.Context, t task.Task, old token.Token, fence uint64,
	by token.Token) (*Lease, error) {
	var sent time.Time
	var resumed uint64
	ambiguous := false
	err := l.client.calls.Briefly(ctx, func(ctx context.Context) (err error) {
		var again bool
		sent = l.client.cfg.Clock.Now()
		resumed, again, err = l.redis.Resume(ctx, old, fence, by.TTL(), by)
		ambiguous = ambiguous || again
		return err
	})
	if err == nil && resumed == 0 {
		err = errs.LostBy(ErrRevoked)
	}
	var lease *Lease
	if err == nil {
		lease, err = l.beginLease(hold.Grant{
			Caller: caller, Token: by, Fence: resumed, Given: by.TTL(), Sent: sent, Ambiguous: ambiguous,
		})
	}
	if err != nil && (ambiguous || resumed > 0 || script.Aborted(err)) {
		l.hold.Abandon(t, by, sent)
	}
	return lease, err
}

// snapshot reads the lock, with one holder at most.
func (l *lock) snapshot(ctx context.Context) (script.Snapshot, error) {
	return perform(ctx, l, "inspect", untilClosed, nil,
		func(ctx context.Context, _ task.Task) (s script.Snapshot, err error) {
			err = l.client.calls.Briefly(ctx, func(ctx context.Context) (err error) {
				s, err = l.redis.Inspect(ctx, 1, 0)
				return err
			})
			return s, err
		})
}
