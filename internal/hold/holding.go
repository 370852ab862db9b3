// Package hold manages a lease from its grant to its end: its deadline, renewals, loss and release. It knows nothing of
// waiters.
package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// Redis is the lock in Redis. script.Lock has these methods.
type Redis interface {
	Renew(ctx context.Context, t token.Token, ttl time.Duration, fence uint64) (bool, error)
	Release(ctx context.Context, t token.Token, fence uint64, rest script.Rest) (script.Handoff, error)
	Leave(ctx context.Context, rest script.Rest, leaving ...script.Leaving) (script.Handoff, error)
}

// Env has the dependencies of a lock's leases. Its functions and the methods of Redis are not called under a mutex.
type Env struct {
	Tasks *task.Group
	Calls *call.Calls
	Clock clock.Clock
	Log   *slog.Logger

	Redis     Redis
	Lock      string        // the lock's name
	TTL       time.Duration // of a lease
	MinHold   time.Duration // 0: none
	WaiterTTL time.Duration
	Releases  *Releases // the client's; nil: releases are not resent

	Handed  func(task.Task, script.Handoff)              // gets each reply to a release
	Renewed func(g Grant, deadline time.Time, err error) // is called after a renewal
	// is called once, after Announce and when a lease has ended; nil: it was released
	Ended func(g Grant, held time.Duration, err error)
}

// Grant is a lock that Redis has granted to a caller.
type Grant struct {
	script.Grant

	Caller context.Context // of the acquisition, for its values
}

// Holding is one lease. It is safe for concurrent use. Its timer calls keep, which renews it. end ends it, once and for
// one reason.
type Holding struct {
	Grant
	Began time.Time

	env    *Env
	rest   rest            // of its minimum hold
	life   context.Context // ends with the lease; its cause is Err
	cancel context.CancelCauseFunc
	entry  task.Lease // its entry in the client's tasks until it ends

	mu        sync.Mutex
	announced bool // guarded by mu: Announce was called
	term      term // guarded by mu
	// guarded by mu: why the latest renewal has failed, or call.ErrNoReply; nil if the failure was not of Redis
	failure error
	timer   clock.Timer // guarded by mu: calls keep when the next action is due
	hurry   func()      // guarded by mu: makes releaseLater release a lost lease at once; nil if no release is due

	unlock chan unlock // contains the state, unless an Unlock is under way
}

// rest is the remaining part of a minimum hold after Unlock: the lock stays taken by another token until then. A copy
// of the release brings the same token.
type rest struct {
	until time.Time
	by    token.Token
}

// restOf returns the rest for a lease that began at that time.
func (env *Env) restOf(t token.Token, began time.Time) (r rest) {
	if env.MinHold > 0 {
		terms := t.Terms()
		terms.Flags = tokens.Released
		r.until = began.Add(env.MinHold)
		r.by, _ = token.Parse(tokens.New(t.Client(), terms)) // never fails: the other token has the same client and terms
	}
	return r
}

// unlock is the state of Unlock.
type unlock int

const (
	unsent unlock = iota
	unsure        // a release may have reached Redis; it goes on in the background
	done          // Redis has ended the lease
	gone          // Redis did not know the lease
)

// Begin begins the lease of a grant. The error is Closed, or a Lost if the lease has ended already or began with a
// handoff and is about to end. The caller calls Announce.
func Begin(env *Env, g Grant) (*Holding, error) {
	now := env.Clock.Now()
	h := &Holding{
		Grant: g, Began: now, env: env,
		rest:   env.restOf(g.Token, now),
		term:   term{ttl: env.TTL}.given(g.Sent, g.Given).planned(now),
		unlock: make(chan unlock, 1),
	}
	h.unlock <- unsent
	least := time.Duration(1)
	if g.Handoff {
		h.term = h.term.afterHandoff(now)
		least = min(env.TTL, env.WaiterTTL) / 6 // for a renewal
	}
	if h.term.deadline.Sub(now) < least {
		return nil, errs.LostBy(errs.Expired)
	}
	if env.MinHold > g.Given { // a crash must not free the lock earlier
		h.term.renewAt = now
	}
	h.life, h.cancel = context.WithCancelCause(context.Background())
	h.entry = task.Lease{
		Lock: env.Lock, Began: now, Token: g.Token.Text(), End: func() { h.end(task.Task{}, errs.Closed) },
	}
	h.mu.Lock() // the end of the client may find the lease as soon as it is kept
	defer h.mu.Unlock()
	if err := env.Tasks.Keep(&h.entry); err != nil {
		return nil, err
	}
	h.setTimerLocked(now)
	return h, nil
}

// Announce allows the end of the lease to be reported. If it has ended already, it is reported now.
func (h *Holding) Announce() {
	h.mu.Lock()
	h.announced = true
	over := h.life.Err() != nil
	h.mu.Unlock()
	if over {
		h.announceEnd(context.Cause(h.life))
	}
}

// Deadline returns the time at which the lease ends here if it is not renewed.
func (h *Holding) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term.deadline
}

// Life returns a ctx that ends with the lease, for the reason that Err returns.
func (h *Holding) Life() context.Context {
	h.expire()
	return h.life
}

// Err returns nil while the lock is held. Then it returns Unlocked, a Lost, Detached or Closed.
func (h *Holding) Err() error { return context.Cause(h.Life()) }

// Renew extends the lease to its TTL from now. It tries until ctx or the lease ends, even while Redis refuses. A
// request that hangs until the deadline at the beginning does not count if keep has renewed the lease meanwhile.
func (h *Holding) Renew(ctx context.Context, t task.Task) error {
	ctx, cancel := task.Joined(ctx, h.life)
	defer cancel()
	deadline := h.Deadline()
	ctx, cancel = h.env.Calls.WithTimeoutCause(ctx, deadline.Sub(h.env.Clock.Now()), errs.Unreachable)
	defer cancel()
	err := h.env.Calls.Persist(ctx, h.env.Lock, func() error { return h.renew(ctx, t) })
	if cause := h.Err(); cause != nil {
		return cause
	}
	if errors.Is(err, errs.Unreachable) && h.Deadline().After(deadline) {
		return nil
	}
	return err
}

// keep renews or ends the lease, if that is due. The timer calls it until the lease ends.
func (h *Holding) keep() {
	t, err := h.env.Tasks.Begin()
	if err != nil {
		return
	}
	defer t.End()
	h.mu.Lock()
	if h.life.Err() != nil {
		h.mu.Unlock()
		return
	}
	now := h.env.Clock.Now()
	what, _ := h.term.due(now)
	if what == renewal {
		h.term = h.term.planned(now) // in case this renewal fails
	}
	if what != expiry {
		h.setTimerLocked(now)
	}
	h.mu.Unlock()
	switch what {
	case renewal:
		_ = h.renew(h.life, t) // after an error, the next renewal or the deadline follows
	case expiry:
		h.expire()
	case nothing:
	}
}

// setTimerLocked starts the timer that calls keep when something is due.
func (h *Holding) setTimerLocked(now time.Time) {
	if h.timer != nil {
		h.timer.Stop()
	}
	_, at := h.term.due(now)
	h.timer = h.env.Clock.AfterFunc(at.Sub(now), h.keep)
}

// renew sends one renewal. A reply that comes after Unlock changes nothing: the script compares the token, so no
// renewal extends a lock that was released.
func (h *Holding) renew(ctx context.Context, t task.Task) error {
	sent := h.env.Clock.Now()
	asked := min(max(h.env.TTL, h.rest.until.Sub(sent)), h.Token.TTL())
	renewed := term{ttl: h.env.TTL}.given(sent, asked)
	h.note(renewed, false, call.ErrNoReply)
	held, err := h.env.Redis.Renew(ctx, h.Token, asked, h.Fence)
	switch origin := call.OriginOf(err); {
	case err == nil && !held:
		err = errs.LostBy(errs.Revoked)
		h.end(t, err)
	case err == nil:
		h.note(renewed, true, nil)
	case origin == call.Permanent: // it is not a failure of the connection
		h.note(renewed, false, nil)
		if h.life.Err() == nil {
			h.env.Log.Warn("a renewal failed; another follows until the lease ends",
				"lock", h.env.Lock, "token", h.Token, "err", err)
		}
	default:
		if origin == call.Refused {
			h.env.Calls.Refused(h.env.Lock, err)
		}
		h.note(renewed, false, err)
	}
	if h.life.Err() == nil {
		h.env.Renewed(h.Grant, h.Deadline(), err)
	}
	return err
}

// note records the outcome of a renewal. renewed is the extended term. An older renewal does not count when a later one
// has succeeded.
func (h *Holding) note(renewed term, extended bool, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil || renewed.deadline.Before(h.term.deadline) {
		return
	}
	h.failure = failure
	if extended {
		now := h.env.Clock.Now()
		h.term = renewed.planned(now)
		h.setTimerLocked(now)
	}
}

// expire ends the lease if its deadline has passed, without waiting for the timer.
func (h *Holding) expire() {
	h.mu.Lock()
	what, _ := h.term.due(h.env.Clock.Now())
	failure := h.failure
	h.mu.Unlock()
	if what != expiry || h.life.Err() != nil {
		return
	}
	t, err := h.env.Tasks.Begin() // so that Shutdown waits for the requests that follow the end
	if err != nil {
		h.end(t, errs.Closed)
		return
	}
	defer t.End()
	reason := errs.Expired
	if call.OriginOf(failure) == call.Refused {
		reason = fmt.Errorf("%w: %w", errs.Expired, failure)
	} else if err := h.env.Calls.Failure(failure); err != nil {
		reason = fmt.Errorf("%w: %w", errs.Unreachable, err)
	}
	h.end(t, errs.LostBy(reason))
}

// end ends the lease for that reason, and reports whether it did: it may have ended before. After a loss, it releases
// the lock in the background. It announces the end. After Unlocked, the caller sends the release, and announces its
// outcome.
func (h *Holding) end(t task.Task, cause error) bool {
	h.mu.Lock()
	if h.life.Err() != nil {
		h.mu.Unlock()
		return false
	}
	h.cancel(cause)
	h.timer.Stop()
	margin, announced := h.term.ends.Sub(h.env.Clock.Now()), h.announced
	expired := errors.Is(cause, errs.Lost) && !errors.Is(cause, errs.Revoked)
	ctx := h.env.Tasks.Life()
	if expired {
		ctx, h.hurry = context.WithCancel(ctx)
	}
	h.mu.Unlock()
	h.env.Tasks.Drop(&h.entry)
	switch {
	case cause == errs.Unlocked: //nolint:errorlint // the cause itself, not what it wraps
		return true
	case expired:
		h.releaseLater(ctx, t, margin)
	case errors.Is(cause, errs.Revoked):
		h.leaveBehind(t)
	}
	if announced {
		h.announceEnd(cause)
	}
	return true
}

// announceEnd logs a loss, and reports the end of the lease with its cause, or after Unlocked with the error of Unlock.
func (h *Holding) announceEnd(err error) {
	held := h.env.Clock.Now().Sub(h.Began)
	if errors.Is(err, errs.Lost) {
		h.env.Log.Warn("lock lost", "lock", h.env.Lock, "token", h.Token, "fence", h.Fence, "held", held, "err", err)
	}
	h.env.Ended(h.Grant, held, err)
}
