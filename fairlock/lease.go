package fairlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// Lease is one holding of a lock. It is renewed in the background until it ends, once and for one reason: Unlock, Detach, a loss,
// or the end of the Client.
type Lease struct {
	lock      *lock
	caller    context.Context // of the acquisition, for Trace
	token     token.Token
	fence     uint64
	ambiguous bool // an acquire of the token may still reach Redis
	began     time.Time
	kept      time.Time   // the lock stays taken until then; zero if it has no minimum hold
	rest      token.Token // has the lock for the rest of the minimum hold

	held, lost task.Lease // what the client's tasks know of it: until it ends, and then until it is released because it was lost

	life context.Context // ends with the lease; its cause is Err
	end  context.CancelCauseFunc

	mu      sync.Mutex
	told    bool  // guarded by mu: Trace.Granted has returned
	term    term  // guarded by mu
	failure error // guarded by mu: why the latest renewal has failed, or call.ErrNoReply; nil if it has succeeded or was refused
	timer   Timer // guarded by mu: calls tick when the next action is due
	late    Timer // guarded by mu: calls releaseLost; nil if that is not due

	wanted chan struct{} // guarded by mu: closed once somebody waits; nil until Wanted is called
	looks  Timer         // guarded by mu: begins the next look; nil before the first one

	unlocking        chan struct{} // holds a value while a release is under way, which owns what follows
	ambiguousRelease bool          // a release may have reached Redis without its reply coming back
	released         bool          // Redis has replied to a release
	releaseErr       error         // what it said
}

// newLease begins a lease that Redis gave after a request was sent then, by a handoff or a reply. It is ambiguous if an
// acquire of its token may still arrive. The error is ErrExpired if it has ended already, or ErrClosed.
// The caller calls granted.
func newLease(caller context.Context, l *lock, g script.Grant, sent time.Time, handoff, ambiguous bool) (*Lease, error) {
	now := l.rt.clock.Now()
	lease := &Lease{
		lock: l, caller: caller, token: g.Token, fence: g.Fence, ambiguous: ambiguous, began: now,
		term:      term{ttl: l.settings.ttl}.given(sent, g.Given).planned(now),
		unlocking: make(chan struct{}, 1),
	}
	if l.settings.minHold > 0 {
		rest, err := newRest(l.cfg.Name, g.Token)
		if err != nil {
			return nil, err
		}
		lease.kept, lease.rest = now.Add(l.settings.minHold), rest
	}
	if handoff {
		lease.term = lease.term.afterHandoff(now)
	}
	if !now.Before(lease.term.deadline) {
		return nil, errs.LostBy(ErrExpired)
	}
	lease.life, lease.end = context.WithCancelCause(context.Background())
	lease.mu.Lock() // Close may find it as soon as it is kept
	defer lease.mu.Unlock()
	lease.held = task.Lease{Lock: l.name, Held: true, Began: now, Token: g.Token.Text(), End: func() { lease.finish(ErrClosed) }}
	if err := l.rt.tasks.Keep(&lease.held); err != nil {
		return nil, err
	}
	lease.setTimer(now)
	return lease, nil
}

// granted calls Trace.Granted, and then the callback for the end of the lease, if it has ended meanwhile.
func (l *Lease) granted(info GrantedInfo) {
	emit(l.lock.rt.trace.Granted, info)
	l.mu.Lock()
	l.told = true
	over := l.life.Err() != nil
	l.mu.Unlock()
	if over {
		l.announceEnd(context.Cause(l.life))
	}
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.lock.name }

// Token returns the lease's token, which identifies it in Redis, in logs and in Trace.
func (l *Lease) Token() token.Token { return l.token }

// Handle returns what another process needs to Resume the lease.
func (l *Lease) Handle() Handle { return newHandle(l.token, l.fence) }

// Fence returns the number of this grant, below 2^53. A resource that remembers the highest fence it has seen, and refuses lower
// ones, is safe even from a holder that does not know yet that its lease has ended. If it is to be read before it is written,
// show it the fence before the read.
func (l *Lease) Fence() uint64 { return l.fence }

// Deadline returns the time at which the lease ends here if it is not renewed. In Redis it ends somewhat later.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.deadline
}

// Done returns a channel that is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} {
	l.expire()
	return l.life.Done()
}

// Err returns nil while the lock is held. Then it returns ErrUnlocked, ErrLost with its reason, ErrDetached, or ErrClosed.
func (l *Lease) Err() error {
	l.expire()
	return context.Cause(l.life)
}

// Context returns a copy of parent that also ends when the lease does. context.Cause tells why. LeaseFromContext finds the lease
// in it. The caller must call cancel when it is done with it.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(&leaseContext{parent, l})
	if err := l.Err(); err != nil {
		cancel(err)
	}
	stop := context.AfterFunc(l.life, func() { cancel(context.Cause(l.life)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// LeaseFromContext returns the lease of a ctx that Do has passed to its function, or that Lease.Context has returned: the
// innermost, if there are several. It reports false if there is none.
func LeaseFromContext(ctx context.Context) (*Lease, bool) {
	for l := range leasesIn(ctx) {
		return l, true
	}
	return nil, false
}

// Renew extends the lease to its TTL from now, for example before a step that matters. Nil means that the lock is held until the
// new Deadline, ErrLost and ErrUnlocked that it is not held. After any other error, such as one of ctx, the lease lasts until its
// Deadline as before. While Redis does not serve Renew, it tries until ctx or the lease ends.
func (l *Lease) Renew(ctx context.Context) error {
	_, err := performUntilClosed(ctx, l.lock, "renew", l.Err(), func(ctx context.Context, t task.Task) (none struct{}, err error) {
		rt := l.lock.rt
		ctx, cancel := task.Joined(ctx, l.life)
		defer cancel()
		ctx, cancel = rt.calls.WithTimeoutCause(ctx, l.left(), ErrUnreachable)
		defer cancel()
		err = rt.calls.Attempt(ctx, func() error { return l.renew(ctx, t) })
		if cause := l.Err(); cause != nil {
			return none, cause
		}
		return none, err
	})
	return err
}

// left returns how long the lease is still trusted.
func (l *Lease) left() time.Duration { return l.Deadline().Sub(l.lock.rt.clock.Now()) }

// renew sends one renewal. A reply that comes after Unlock changes nothing: the script compares the token, so no renewal
// extends a lock that was released.
func (l *Lease) renew(ctx context.Context, t task.Task) error {
	sent := l.lock.rt.clock.Now()
	asked := min(max(l.lock.settings.ttl, l.kept.Sub(sent)), l.token.TTL())
	renewed := term{ttl: l.lock.settings.ttl}.given(sent, asked)
	l.noteRenewal(renewed, call.ErrNoReply)
	held, err := l.lock.redis.Renew(ctx, l.token, asked, l.fence)
	switch {
	case err != nil:
		l.renewalFailed(renewed, err)
	case !held:
		err = errs.LostBy(ErrTaken)
		l.lose(ErrTaken)
		l.leaveBehind(t)
	default:
		l.noteRenewal(renewed, nil)
		l.extend(renewed)
	}
	if l.life.Err() == nil || held {
		emit(l.lock.rt.trace.Renewed, RenewedInfo{Event: l.event(), Deadline: l.Deadline(), Err: err})
	}
	return err
}

// leaveBehind has Redis forget the token of a lease that it does not know: after a failover that lost the grant, the token is in the
// queue again, and would be granted the lock for nobody. So would an acquire that was sent again, or late. If the lease was resumed,
// another token holds the lock. Nothing is sent for one that was detached.
func (l *Lease) leaveBehind(t task.Task) {
	if context.Cause(l.life) != ErrDetached { //nolint:errorlint // the cause itself, not what it wraps
		l.lock.giveBack(t, ending{token: l.token, ambiguous: l.ambiguous})
	}
}

// noteRenewal notes why the latest renewal has failed; nil: it has not. renewed is what the lease would have become: an older
// renewal does not count when a later one has succeeded.
func (l *Lease) noteRenewal(renewed term, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !renewed.deadline.Before(l.term.deadline) {
		l.failure = failure
	}
}

// renewalFailed notes why a renewal has failed. A refusal says nothing about the way to Redis.
func (l *Lease) renewalFailed(renewed term, err error) {
	if call.OriginOf(err) != call.Permanent {
		l.noteRenewal(renewed, err)
		return
	}
	l.noteRenewal(renewed, nil)
	if l.life.Err() == nil {
		l.lock.rt.log.Warn("Redis refuses a renewal; another follows until the lease ends",
			"lock", l.lock.name, "token", l.token, "err", err)
	}
}

// extend trusts the lease as renewed, unless it is trusted for longer.
func (l *Lease) extend(renewed term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil || !renewed.deadline.After(l.term.deadline) {
		return
	}
	now := l.lock.rt.clock.Now()
	l.term = renewed.planned(now)
	l.setTimer(now)
}

// setTimer has the clock call tick when something is due. The caller holds mu.
func (l *Lease) setTimer(now time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	_, at := l.term.due(now)
	l.timer = l.lock.rt.clock.AfterFunc(at.Sub(now), l.tick)
}

// tick renews or ends the lease, if that is due.
func (l *Lease) tick() {
	t, err := l.lock.rt.tasks.Begin()
	if err != nil {
		return
	}
	defer t.End()
	l.mu.Lock()
	if l.life.Err() != nil {
		l.mu.Unlock()
		return
	}
	now := l.lock.rt.clock.Now()
	what, _ := l.term.due(now)
	if what == renewal {
		l.term = l.term.planned(now) // should the one that is sent now fail
	}
	if what != expiry {
		l.setTimer(now)
	}
	l.mu.Unlock()
	switch what {
	case renewal:
		_ = l.renew(l.life, t) // the next one follows, or the deadline
	case expiry:
		l.expire()
	case nothing:
	}
}

// expire ends the lease if its deadline has passed, without waiting for the timer.
func (l *Lease) expire() {
	l.mu.Lock()
	what, _ := l.term.due(l.lock.rt.clock.Now())
	failure := l.failure
	l.mu.Unlock()
	if what != expiry {
		return
	}
	if t, err := l.lock.rt.tasks.Begin(); err == nil { // so that Shutdown sees what follows the lease's end
		defer t.End()
	}
	reason := ErrExpired
	if err := l.lock.rt.calls.Failure(failure); err != nil {
		reason = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if l.lose(reason) {
		l.releaseLater()
	}
}

// releaseLater has a lease that has expired here released when its safety margin is over: until then its holder may not
// have stopped. Without that, a renewal or an acquire that arrives late would keep the lock for nobody, for a whole TTL.
func (l *Lease) releaseLater() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = task.Lease{Began: l.began, Token: l.token.Text(), End: func() { l.stopLate() }}
	if l.lock.rt.tasks.Keep(&l.lost) != nil {
		return
	}
	l.late = l.lock.rt.clock.AfterFunc(l.term.ends.Sub(l.lock.rt.clock.Now()), l.releaseLost)
}

// releaseLost releases the lease in the background, if that is due, without waiting for the timer.
func (l *Lease) releaseLost() {
	t, err := l.lock.rt.tasks.Begin()
	if err != nil {
		return
	}
	defer t.End()
	if l.stopLate() {
		l.lock.rt.tasks.Drop(&l.lost)
		l.lock.giveBack(t, l.ending())
	}
}

// stopLate reports whether the release of a lost lease was due. It is not due any more.
func (l *Lease) stopLate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late == nil {
		return false
	}
	l.late.Stop()
	l.late = nil
	return true
}

func (l *Lease) ending() ending { return ending{l.token, l.fence, l.ambiguous, l.kept, l.rest} }

// lose ends the lease without its holder's doing, and reports whether it has: the lease may have ended before.
func (l *Lease) lose(reason error) bool {
	return l.finish(errs.LostBy(reason))
}

// finish ends the lease with that cause, and reports whether it has: the lease may have ended before. It announces the end,
// unless the cause is ErrUnlocked: then the caller does, when it knows what became of the lock.
func (l *Lease) finish(cause error) bool {
	l.mu.Lock()
	if l.life.Err() != nil {
		l.mu.Unlock()
		return false
	}
	l.end(cause)
	l.timer.Stop()
	if l.looks != nil {
		l.looks.Stop()
	}
	told := l.told
	l.mu.Unlock()
	l.lock.rt.tasks.Drop(&l.held)
	if told && cause != ErrUnlocked { //nolint:errorlint // the cause itself, not what it wraps
		l.announceEnd(cause)
	}
	return true
}

// announceEnd logs a loss, and tells Trace why the lease has ended: for its cause, or if that is ErrUnlocked, with what the Unlock
// has returned.
func (l *Lease) announceEnd(err error) {
	rt, held := l.lock.rt, l.lock.rt.clock.Now().Sub(l.began)
	if errors.Is(err, ErrLost) {
		rt.log.Warn("lock lost", "lock", l.lock.name, "token", l.token, "fence", l.fence, "held", held, "err", err)
	}
	emit(rt.trace.Ended, EndedInfo{Event: l.event(), Fence: l.fence, Held: held, Err: err})
}

func (l *Lease) event() Event { return l.lock.event(l.caller, l.token) }

// Detach ends the lease here without releasing the lock, and returns its Handle. It does no I/O. In Redis the lock stays held
// until its TTL ends: another process should resume the lease before Deadline. An error means that the lease had ended before. If
// the function of Do calls Detach, its ctx ends, and Do does not release the lock, which is no error.
func (l *Lease) Detach() (Handle, error) {
	l.expire()
	l.finish(ErrDetached)
	if cause := context.Cause(l.life); cause != ErrDetached { //nolint:errorlint // the cause itself, not what it wraps
		return "", l.lock.wrap("detach", cause)
	}
	return l.Handle(), nil
}

// Unlock ends the lease and releases the lock, which hands it to the first waiter. It works after ctx has ended, of which only
// the values count. It tries until the lease would have ended, and for TTL at most. Then it returns ErrUnreachable, and the lease
// is released in the background.
//
// Nil means that the lock is released, perhaps by an earlier call. ErrLost means that this lease did not hold it any more.
// ErrDetached means that nothing was sent. After any other error the lock may stay held for the rest of its TTL, and Unlock can
// be called again. If a reply was lost, Unlock cannot always tell a released lock from a lost one. It returns nil then, or
// ErrLost if Redis refused the same request meanwhile, as it does during a failover.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.lock.wrap("unlock", l.unlock(ctx))
}

func (l *Lease) unlock(ctx context.Context) error {
	t, closed := l.lock.rt.tasks.Begin() // before the lease ends, so that Shutdown sees one or the other
	if closed == nil {
		defer t.End()
	}
	l.expire()
	first := l.finish(ErrUnlocked)
	if !first {
		if cause := context.Cause(l.life); cause != ErrUnlocked { //nolint:errorlint // the cause itself, not what it wraps
			l.releaseLost() // its holder has stopped
			return cause
		}
	}
	err := l.release(ctx, t, closed)
	if first {
		l.announceEnd(err)
	}
	return err
}

// release sends the release until Redis replies, or the lease would have ended. No callback is called here: it may call
// Unlock.
func (l *Lease) release(ctx context.Context, t task.Task, closed error) error {
	l.unlocking <- struct{}{} // an earlier Unlock is bounded
	defer func() { <-l.unlocking }()
	if l.released {
		return l.releaseErr
	}
	if closed != nil {
		return closed
	}
	rt := l.lock.rt
	left := l.left()
	if left <= 0 {
		return errs.LostBy(ErrExpired)
	}
	var h script.Handoff
	err := rt.calls.Finish(ctx, min(left, l.lock.settings.ttl), func(ctx context.Context) (err error) {
		h, err = l.lock.release(ctx, l.ending())
		// go-redis resends by itself what Redis refuses for a while: then no copy has released the lock.
		l.ambiguousRelease = l.ambiguousRelease || h.Ambiguous && call.OriginOf(err) != call.Unavailable
		return err
	})
	if err != nil {
		if l.left() <= 0 { // else another Unlock can follow
			l.lock.giveBack(t, l.ending())
		}
		return err
	}
	l.released = true
	l.lock.queues.handoff(t, l.lock, h)
	if !h.Released {
		l.leaveBehind(t)
	}
	if !h.Released && !l.ambiguousRelease {
		l.releaseErr = errs.LostBy(ErrTaken)
	}
	return l.releaseErr
}
