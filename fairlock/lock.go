package fairlock

import (
	"cmp"
	"context"
	"errors"
	"time"

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
	permits  int    // of a semaphore or a read-write lock, as its tokens say; 0: a mutex
	key      string // of a keyed semaphore; "": no key
	redis    script.Lock
	wait     wait.Lock // of its waiters
	hold     hold.Env  // of its leases
	settings settings  // instead of the client's
	invalid  error     // of the name, the number of permits or an option; returned before anything is sent
}

// check returns the error of a call that sends nothing. refused is an error that the method has found, such as bad
// input.
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

// event returns the Event of an acquisition by token t. ctx is the caller's.
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

// terms returns the terms of a request for weight permits.
func (l *lock) terms(weight int) tokens.Terms {
	t := tokens.Terms{Weight: weight, Permits: l.permits}
	if l.kind == KindKeyedSemaphore {
		t.Key, t.KeyLimit, t.Share = l.key, l.settings.keyLimit, l.settings.share
	}
	return t
}

// newToken returns a token with these terms. Its lease can last for TTL and for the minimum hold.
func (l *lock) newToken(terms tokens.Terms) (token.Token, error) {
	terms.TTL, terms.Flags, terms.Address = max(l.settings.ttl, l.settings.minHold), l.settings.flags, l.settings.address
	if l.settings.minHold > l.settings.ttl {
		terms.Flags |= tokens.MinHold
	}
	return token.Parse(tokens.New(l.client.cfg.Name, terms))
}

// Whether a call waits for the lock, or fails with ErrBusy if it is not free or has waiters.
const waits, tries = false, true

// do runs f under a lease.
func (l *lock) do(
	ctx context.Context, try bool, op string, weight int, input error, f func(context.Context) error,
) error {
	lease, err := l.acquire(ctx, try, op, weight, input)
	if err != nil {
		return err
	}
	return l.run(ctx, op, lease, f)
}

// run runs f under a lease, and unlocks it. Its error contains a loss of the lock once, even if f has returned it.
func (l *lock) run(ctx context.Context, op string, lease *Lease, f func(context.Context) error) (err error) {
	inner, cancel := lease.Context(ctx)
	defer func() { // also when f panics
		cancel()
		err = l.outcome(op, err, lease.held.Unlock(ctx))
	}()
	if err := lease.Err(); err != nil {
		return err
	}
	return f(inner)
}

// outcome returns the error of a Do whose function has returned err. unlocked is the error of Unlock.
func (l *lock) outcome(op string, err, unlocked error) error {
	switch {
	case unlocked == nil, errors.Is(unlocked, ErrDetached): // by f
		return err
	case errors.Is(err, unlocked):
		return l.wrap(op, err)
	case errors.Is(unlocked, ErrLost):
		return errors.Join(err, l.wrap(op, unlocked))
	default: // f has returned, and the lock may stay held
		return errors.Join(err, l.wrap("unlock", unlocked))
	}
}

// perform runs f as a task, unless refused is an error. The ctx of f ends with the caller's, and with the client.
func (l *lock) perform(
	ctx context.Context, op string, refused error, run func(context.Context, task.Task) error,
) (err error) {
	defer func() { err = l.wrap(op, err) }()
	if err := l.check(ctx, refused); err != nil {
		return err
	}
	t, err := l.client.tasks.Begin()
	if err != nil {
		return err
	}
	defer t.End()
	ctx, cancel := task.Joined(ctx, l.client.tasks.Life())
	defer cancel()
	return call.OrEnded(ctx, run(ctx, t))
}

// inspect reads the lock, with at most the given number of holders.
func (l *lock) inspect(ctx context.Context, op string, holders int) (s script.Snapshot, err error) {
	err = l.perform(ctx, op, nil, func(ctx context.Context, _ task.Task) error {
		return l.client.calls.Briefly(ctx, func(ctx context.Context) (err error) {
			s, err = l.redis.Inspect(ctx, holders, 0)
			return err
		})
	})
	return s, err
}

// shared has the methods of all kinds of locks.
type shared struct{ lock *lock }

// Name returns the lock's name. For a key, it is the name of the keyed semaphore.
func (s shared) Name() string {
	if s.lock == nil {
		return ""
	}
	return s.lock.name
}

// Resume takes over the lease of a Handle, with a new token and fence, and this lock's TTL and minimum hold. ErrRevoked
// means that the lease has ended, or that the handle was used before. ctx bounds it, 3 s at most.
func (s shared) Resume(ctx context.Context, h Handle) (*Lease, error) { return s.lock.resume(ctx, h) }

// LeaseFromContext returns the innermost lease of this lock, of any key, that ctx carries from this Client. It may have
// ended. It returns false if there is none.
func (s shared) LeaseFromContext(ctx context.Context) (*Lease, bool) {
	for l := range s.lock.leasesIn(ctx) {
		return l, true
	}
	return nil, false
}

// acquisition is a call that may begin a lease, and its waiter. The waiter leaves at the end of the call if no lease
// has begun, even after a panic in a function of the user.
type acquisition struct {
	lock   *lock
	task   task.Task
	ctx    context.Context // ends with the caller's, and with Shutdown, or for a caller with a lease with the client
	cancel func()
	event  Event // of the caller's ctx and the new token
	began  time.Time

	waiter *wait.Waiter  // nil: a lease is resumed
	try    bool          // it does not wait
	ticket script.Ticket // 0: it was never queued
	begun  bool          // the lease
}

// acquire begins a lease when the lock is granted.
func (l *lock) acquire(caller context.Context, try bool, op string, weight int, input error) (_ *Lease, err error) {
	defer func() { err = l.wrap(op, err) }()
	if err := l.check(caller, input); err != nil {
		return nil, err
	}
	if held := l.heldBy(caller, weight); held != nil && try {
		return nil, &HeldError{Reason: Held, Holder: held.held.Token.Client(), Err: ErrBusy}
	} else if held != nil {
		return nil, ErrReentrant
	}
	a, err := l.begin(caller, l.terms(weight))
	if err != nil {
		return nil, err
	}
	defer a.end()
	ctx := a.ctx
	if l.settings.maxWait > 0 && !try {
		var cancel func()
		ctx, cancel = l.client.calls.WithCancelAfter(ctx, l.settings.maxWait, ErrWaitTimeout)
		defer cancel()
	}
	a.join(try)
	lease, err := a.next(ctx)
	return lease, a.left(err)
}

// resume takes over the lease of a handle, with a new token, so that late requests of the other process cannot touch
// it.
func (l *lock) resume(caller context.Context, h Handle) (_ *Lease, err error) {
	defer func() { err = l.wrap("resume", err) }()
	old, fence, input := h.parse()
	terms := old.Terms()
	if input == nil && l != nil {
		same := (terms.Permits == 0) == (l.permits == 0) && (terms.Key == "") == (l.kind != KindKeyedSemaphore) &&
			(l.key == "" || l.key == terms.Key)
		input = require(same, "handle", "is of another kind of lock, or of another key")
	}
	if err := l.check(caller, input); err != nil {
		return nil, err
	}
	a, err := l.begin(caller, terms) // the permits, key, limit and share of the old token
	if err != nil {
		return nil, err
	}
	defer a.end()
	lease, err := a.takeOver(old, fence)
	return lease, a.left(call.OrEnded(a.ctx, err))
}

// begin begins an acquisition by a new token with these terms, unless Shutdown refuses it. The caller calls end.
func (l *lock) begin(caller context.Context, terms tokens.Terms) (*acquisition, error) {
	c := l.client
	until := c.tasks.Open()
	if c.heldIn(caller) { // a holder may need another lock for its work
		until = c.tasks.Life()
	}
	if until.Err() != nil {
		return nil, ErrClosed
	}
	tok, err := l.newToken(terms)
	if err != nil {
		return nil, err
	}
	t, err := c.tasks.Begin()
	if err != nil {
		return nil, err
	}
	a := &acquisition{lock: l, task: t, event: l.event(caller, tok), began: c.cfg.Clock.Now()}
	a.ctx, a.cancel = task.Joined(caller, until)
	return a, nil
}

// end ends the acquisition.
func (a *acquisition) end() {
	if a.waiter != nil {
		if !a.begun {
			a.waiter.Leave()
		}
		a.waiter.Close()
	}
	a.cancel()
	a.task.End()
}

// maxSilence is how long a call waits for the lock while no server has ever answered, because the address may be wrong.
const maxSilence = 10 * time.Second

// join registers the waiter of the acquisition.
func (a *acquisition) join(try bool) {
	a.try = try
	s := a.lock.settings
	r := wait.Request{
		Token: a.event.Token, TTL: s.ttl, MaxWaiters: s.maxWaiters, MaxLine: s.maxLine, Try: try,
		Began: a.began, MaxOutage: s.maxOutage, MaxSilence: maxSilence,
	}
	if try {
		r.MaxOutage = cmp.Or(r.MaxOutage, call.RequestLimit)
	}
	a.waiter = a.lock.client.waiters.Join(a.task, a.lock.wait, r)
}

// next waits until the lock is granted, and begins the lease.
func (a *acquisition) next(ctx context.Context) (*Lease, error) {
	trace := a.lock.client.cfg.Trace
	for {
		switch step := a.waiter.Next(ctx); step.Kind {
		case wait.Queued:
			a.ticket = step.Reply.Ticket
			emit(trace.Queued, QueuedInfo{Event: a.event, Position: step.Reply.Position, Ticket: uint64(a.ticket)})
		case wait.NotificationLost:
			emit(trace.NotificationLost, a.event)
		case wait.Granted:
			lease, err := a.lease(step.Grant)
			if errors.Is(err, ErrExpired) && !a.try { // the notification was late, or this process was paused
				continue
			}
			return lease, err
		case wait.Left:
			return nil, a.lock.whyLeft(step, a.event.Token)
		}
	}
}

// lease begins the lease of a grant.
func (a *acquisition) lease(g script.Grant) (*Lease, error) {
	lease, err := a.lock.beginLease(hold.Grant{Grant: g, Caller: a.event.Ctx})
	if err != nil {
		return nil, err
	}
	a.begun = true
	lease.granted(GrantedInfo{
		Event: a.event, Fence: g.Fence, Ticket: uint64(a.ticket), Wait: lease.held.Began.Sub(a.began), Handoff: g.Handoff,
	})
	return lease, nil
}

// left tells Trace that the acquisition has ended with err, and returns err.
func (a *acquisition) left(err error) error {
	if err != nil {
		waited := a.lock.client.cfg.Clock.Now().Sub(a.began)
		info := AbandonedInfo{Event: a.event, Wait: waited, Err: err, Ticket: uint64(a.ticket)}
		emit(a.lock.client.cfg.Trace.Abandoned, info)
	}
	return err
}

// takeOver passes a lease to the token of the acquisition. If no lease begins here, the token leaves.
func (a *acquisition) takeOver(old token.Token, fence uint64) (lease *Lease, err error) {
	l, g := a.lock, script.Grant{Token: a.event.Token, Given: a.event.Token.TTL()}
	err = l.client.calls.Briefly(a.ctx, func(ctx context.Context) (err error) {
		var again bool
		g.Sent = l.client.cfg.Clock.Now()
		g.Fence, again, err = l.redis.Resume(ctx, old, fence, g.Given, g.Token)
		g.Ambiguous = g.Ambiguous || again
		return err
	})
	if err == nil && g.Fence == 0 {
		err = errs.LostBy(ErrRevoked)
	}
	if err == nil {
		lease, err = a.lease(g)
	}
	if err != nil && (g.Ambiguous || g.Fence > 0 || script.Aborted(err)) {
		l.hold.Abandon(a.task, g.Token, g.Sent)
	}
	return lease, err
}

// whyLeft returns the error of a waiter that has left, with the last error of Redis, and a holder if that helps.
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
	if left.Failure != nil {
		err = &errs.Tried{Err: err, Failure: left.Failure, Lasted: l.client.cfg.Clock.Now().Sub(left.Unserved)}
	}
	if named && !holder.IsZero() {
		e := &HeldError{Reason: Held, Holder: holder.Client(), Err: err}
		if reply.Outcome == script.Busy {
			e.Reason, e.Free = BusyReason(reply.Why), max(reply.RetryAfter, 0)
		}
		e.Released = e.Reason != AtKeyLimit && holder.Terms().Flags&tokens.Released != 0
		err = e
	}
	return err
}

// Kind is a kind of lock.
type Kind string

// The kinds of locks.
const (
	KindMutex          Kind = "mutex"
	KindSemaphore      Kind = "semaphore"
	KindKeyedSemaphore Kind = "keyed"
	KindRWMutex        Kind = "rwmutex"
)

// ID identifies a lock in a namespace.
type ID struct {
	Kind Kind
	Name string
}
