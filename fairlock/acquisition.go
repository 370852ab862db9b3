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

// acquisition is a call that may begin a lease, and its waiter. The waiter leaves at the end of the call if no lease
// has begun, also if a function of the user's panics.
type acquisition struct {
	lock   *lock
	task   task.Task
	ctx    context.Context // ends with the caller's, and with Shutdown, or the client if the caller holds a lease
	cancel func()
	event  Event // of the caller's ctx and the new token
	began  time.Time

	waiter *wait.Waiter  // nil: a lease is resumed
	ticket script.Ticket // 0: it was never queued
	begun  bool          // the lease
}

// acquire waits in order until the lock is granted, and begins the lease.
func (l *lock) acquire(caller context.Context, op string, weight int, input error) (_ *Lease, err error) {
	defer func() { err = l.wrap(op, err) }()
	if err := l.check(caller, input); err != nil {
		return nil, err
	}
	if l.heldBy(caller, weight) != nil {
		return nil, ErrReentrant
	}
	a, err := l.begin(caller, l.terms(weight))
	if err != nil {
		return nil, err
	}
	defer a.end()
	ctx := a.ctx
	if l.settings.maxWait > 0 {
		var cancel func()
		ctx, cancel = l.client.calls.WithTimeoutCause(ctx, l.settings.maxWait, ErrWaitTimeout)
		defer cancel()
	}
	a.join(false)
	for {
		lease, err := a.next(ctx)
		if errors.Is(err, ErrExpired) { // the notification was late, or this process was paused
			continue
		}
		return lease, a.left(err)
	}
}

// tryAcquire begins the lease if the lock is free and nobody waits for it.
func (l *lock) tryAcquire(caller context.Context, op string, weight int, input error) (_ *Lease, err error) {
	defer func() { err = l.wrap(op, err) }()
	if err := l.check(caller, input); err != nil {
		return nil, err
	}
	if held := l.heldBy(caller, weight); held != nil {
		return nil, &HeldError{Reason: Held, Holder: held.held.Token.Client(), Err: ErrBusy}
	}
	a, err := l.begin(caller, l.terms(weight))
	if err != nil {
		return nil, err
	}
	defer a.end()
	a.join(true)
	lease, err := a.next(a.ctx)
	return lease, a.left(err)
}

// resume takes over the lease of a handle, with a token of its own: the other process sends nothing that touches it.
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
	a, err := l.begin(caller, terms) // its permits, and its key, limit and share
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

// maxSilence is for how long a call waits for the lock while no server has ever answered: the address may be wrong.
const maxSilence = 10 * time.Second

// join registers the waiter of the acquisition; try: one that does not queue.
func (a *acquisition) join(try bool) {
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

// next waits until the lock is granted, and begins the lease. After an ErrExpired it can be called again.
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
			return a.lease(step.Grant)
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
		Queued: a.ticket != 0,
	})
	return lease, nil
}

// left tells Trace that no lease has begun because of err, and returns err.
func (a *acquisition) left(err error) error {
	if err != nil {
		waited := a.lock.client.cfg.Clock.Now().Sub(a.began)
		emit(a.lock.client.cfg.Trace.Abandoned, AbandonedInfo{Event: a.event, Wait: waited, Err: err, Queued: a.ticket != 0})
	}
	return err
}

// takeOver passes a lease on to the token of the acquisition. If that does not come to a lease here, the token leaves.
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

// whyLeft returns the error of a waiter that has left. It says what Redis failed with, and names a holder if that can
// be of interest.
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
