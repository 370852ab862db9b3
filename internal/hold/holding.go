package hold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// Grant is a lock that Redis has granted.
type Grant struct {
	Caller    context.Context // of the acquisition, for its values
	Token     token.Token
	Fence     uint64
	Given     time.Duration // length of the lease
	Sent      time.Time     // when the request was sent after which the lease began: it is trusted from then on
	Handoff   bool          // a release handed the lock over
	Ambiguous bool          // an acquire of the token may still reach Redis
}

// Holding is one lease. It is renewed in the background until it ends, once and for one reason. It is safe for
// concurrent use.
type Holding struct {
	Grant
	Began time.Time

	env  *Env
	rest rest            // of its minimum hold
	life context.Context // ends with the lease; its cause is Err
	end  context.CancelCauseFunc
	// what the client's tasks know of it: until it ends, and again until it is released because it was lost
	entry task.Lease

	mu   sync.Mutex
	told bool // guarded by mu: Announce was called
	term term // guarded by mu
	// guarded by mu: why the latest renewal has failed, or call.ErrNoReply; nil if it has succeeded or was refused
	failure error
	timer   clock.Timer // guarded by mu: calls tick when the next action is due
	late    clock.Timer // guarded by mu: calls releaseLost; nil if that is not due

	unlock unlock
}

// unlock is the release of a lease by its holder.
type unlock struct {
	turn      chan struct{} // holds a value while a release is under way, which owns what follows
	ambiguous bool          // a release may have reached Redis without its reply coming back
	late      bool          // the release goes on in the background
	done      bool          // Redis has replied to a release
	err       error         // what it said
}

// Begin begins the lease of a grant. The error is a Lost if it has ended already, or if it began with a handoff and too
// little of it is left; or Closed. The caller calls Announce.
func Begin(env *Env, g Grant) (*Holding, error) {
	now := env.Clock.Now()
	h := &Holding{
		Grant: g, Began: now, env: env,
		rest:   env.restOf(g.Token, now),
		term:   term{ttl: env.TTL}.given(g.Sent, g.Given).planned(now),
		unlock: unlock{turn: make(chan struct{}, 1)},
	}
	least := time.Duration(1)
	if g.Handoff {
		h.term = h.term.afterHandoff(now)
		least = min(env.TTL, env.WaiterTTL) / 6 // for a renewal
	}
	if h.term.deadline.Sub(now) < least {
		return nil, errs.LostBy(errs.Expired)
	}
	if env.MinHold > g.Given { // else a crash would free the lock before that
		h.term.renewAt = now
	}
	h.life, h.end = context.WithCancelCause(context.Background())
	h.entry = task.Lease{
		Lock: env.Lock, Held: true, Began: now, Token: g.Token.Text(), End: h.close,
	}
	h.mu.Lock() // the end of the client may find it as soon as it is kept
	defer h.mu.Unlock()
	if err := env.Tasks.Keep(&h.entry); err != nil {
		return nil, err
	}
	h.setTimer(now)
	return h, nil
}

// Announce has the end of the lease reported. That is now if it has ended already.
func (h *Holding) Announce() {
	h.mu.Lock()
	h.told = true
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

// left returns how long the lease is still trusted.
func (h *Holding) left() time.Duration { return h.Deadline().Sub(h.env.Clock.Now()) }

// Life returns a ctx that ends with the lease, for the reason that Err returns.
func (h *Holding) Life() context.Context {
	h.expire()
	return h.life
}

// Err returns nil while the lock is held. Then it returns Unlocked, a Lost, Detached or Closed.
func (h *Holding) Err() error { return context.Cause(h.Life()) }

// Renew extends the lease to its TTL from now. It tries until ctx or the lease ends, also while Redis refuses.
func (h *Holding) Renew(ctx context.Context, t task.Task) error {
	ctx, cancel := task.Joined(ctx, h.life)
	defer cancel()
	ctx, cancel = h.env.Calls.WithTimeoutCause(ctx, h.left(), errs.Unreachable)
	defer cancel()
	err := h.env.Calls.Persist(ctx, h.env.Lock, func() error { return h.renew(ctx, t) })
	if cause := h.Err(); cause != nil {
		return cause
	}
	return err
}

// renew sends one renewal. A reply that comes after Unlock changes nothing: the script compares the token, so no
// renewal extends a lock that was released.
func (h *Holding) renew(ctx context.Context, t task.Task) error {
	sent := h.env.Clock.Now()
	asked := min(max(h.env.TTL, h.rest.until.Sub(sent)), h.Token.TTL())
	renewed := term{ttl: h.env.TTL}.given(sent, asked)
	h.noteRenewal(renewed, call.ErrNoReply)
	held, err := h.env.Redis.Renew(ctx, h.Token, asked, h.Fence)
	switch {
	case err != nil:
		h.renewalFailed(renewed, err)
	case !held:
		err = errs.LostBy(errs.Revoked)
		h.finish(err)
		h.leaveBehind(t)
	default:
		h.noteRenewal(renewed, nil)
		h.extend(renewed)
	}
	if h.life.Err() == nil || held {
		h.env.Renewed(h.Grant, h.Deadline(), err)
	}
	return err
}

// leaveBehind has Redis forget the token of a lease that it does not know: after a failover that lost the grant, the
// token is in the queue again, and would be granted the lock for nobody. So would an acquire that was sent again, or
// late. If the lease was resumed, another token holds the lock. Nothing is sent for one that was detached.
func (h *Holding) leaveBehind(t task.Task) {
	if context.Cause(h.life) != errs.Detached { //nolint:errorlint // the cause itself, not what it wraps
		h.env.giveBack(t, ending{token: h.Token, ambiguous: h.Ambiguous, lost: true})
	}
}

// noteRenewal notes why the latest renewal has failed; nil: it has not. renewed is what the lease would have become: an
// older renewal does not count when a later one has succeeded.
func (h *Holding) noteRenewal(renewed term, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !renewed.deadline.Before(h.term.deadline) {
		h.failure = failure
	}
}

// renewalFailed notes why a renewal has failed. What no further one can cure says nothing about the way to Redis.
func (h *Holding) renewalFailed(renewed term, err error) {
	if call.OriginOf(err) == call.Refused {
		h.env.Calls.Refused(h.env.Lock, err)
	}
	if call.OriginOf(err) != call.Permanent {
		h.noteRenewal(renewed, err)
		return
	}
	h.noteRenewal(renewed, nil)
	if h.life.Err() == nil {
		h.env.Log.Warn("a renewal failed; another follows until the lease ends",
			"lock", h.env.Lock, "token", h.Token, "err", err)
	}
}

// extend trusts the lease as renewed, unless it is trusted for longer.
func (h *Holding) extend(renewed term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil || !renewed.deadline.After(h.term.deadline) {
		return
	}
	now := h.env.Clock.Now()
	h.term = renewed.planned(now)
	h.setTimer(now)
}

// setTimer has the clock call tick when something is due. The caller holds mu.
func (h *Holding) setTimer(now time.Time) {
	if h.timer != nil {
		h.timer.Stop()
	}
	_, at := h.term.due(now)
	h.timer = h.env.Clock.AfterFunc(at.Sub(now), h.tick)
}

// tick renews or ends the lease, if that is due.
func (h *Holding) tick() {
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
		h.term = h.term.planned(now) // should the one that is sent now fail
	}
	if what != expiry {
		h.setTimer(now)
	}
	h.mu.Unlock()
	switch what {
	case renewal:
		_ = h.renew(h.life, t) // the next one follows, or the deadline
	case expiry:
		h.expire()
	case nothing:
	}
}

// expire ends the lease if its deadline has passed, without waiting for the timer.
func (h *Holding) expire() {
	h.mu.Lock()
	what, _ := h.term.due(h.env.Clock.Now())
	failure := h.failure
	h.mu.Unlock()
	if what != expiry {
		return
	}
	if t, err := h.env.Tasks.Begin(); err == nil { // so that Shutdown sees what follows the lease's end
		defer t.End()
	}
	reason := errs.Expired
	if call.OriginOf(failure) == call.Refused {
		reason = fmt.Errorf("%w: %w", errs.Expired, failure)
	} else if err := h.env.Calls.Failure(failure); err != nil {
		reason = fmt.Errorf("%w: %w", errs.Unreachable, err)
	}
	if h.finish(errs.LostBy(reason)) {
		h.releaseLater()
	}
}

// close ends the lease because its client is closed.
func (h *Holding) close() {
	h.finish(errs.Closed)
	h.stopLate()
}

// finish ends the lease with that cause, and reports whether it has: the lease may have ended before. It announces the
// end, unless the cause is Unlocked: then the caller does, when it knows what became of the lock.
func (h *Holding) finish(cause error) bool {
	h.mu.Lock()
	if h.life.Err() != nil {
		h.mu.Unlock()
		return false
	}
	h.end(cause)
	h.timer.Stop()
	told := h.told
	h.mu.Unlock()
	h.env.Tasks.Drop(&h.entry)
	if told && cause != errs.Unlocked { //nolint:errorlint // the cause itself, not what it wraps
		h.announceEnd(cause)
	}
	return true
}

// announceEnd logs a loss, and reports why the lease has ended: its cause, or if that is Unlocked, what Unlock has
// returned.
func (h *Holding) announceEnd(err error) {
	held := h.env.Clock.Now().Sub(h.Began)
	if errors.Is(err, errs.Lost) {
		h.env.Log.Warn("lock lost", "lock", h.env.Lock, "token", h.Token, "fence", h.Fence, "held", held, "err", err)
	}
	h.env.Ended(h.Grant, held, err)
}
