package fairlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Lease is one holding of a lock. It ends once, and for one reason: its holder calls Unlock, it is lost, or the Client is
// closed. Until then it is renewed in the background, unless Config.NoRenewal is set. It is safe for concurrent use.
//
// A lease ends here somewhat earlier than in Redis, because its time is counted from before the request was sent, less a
// safety margin. So Done closes before another client can get the lock, whether Redis answers or not.
//
// Outside a lock, LeaseFromContext returns a nil *Lease. Its Fence is 0.
type Lease struct {
	lock      *lock
	token     token.Token
	fence     uint64
	ambiguous bool // an acquire of the token may still reach Redis
	began     time.Time

	life context.Context // ends with the lease; its cause is Err
	end  context.CancelCauseFunc

	mu               sync.Mutex
	term             term      // guarded by mu
	failure          error     // guarded by mu: the error of the latest renewal; nil if it has succeeded
	tried            time.Time // guarded by mu: when the first renewal was sent since the latest that succeeded; zero if none was
	lastSixth        time.Time // guarded by mu: when the last sixth of the term began
	pending          int       // guarded by mu: number of renewals that are in flight
	resumed          bool      // guarded by mu: another Lease of this client has the token
	ambiguousRenewal bool      // guarded by mu: the latest renewal that ended had no reply, and may still arrive
	timer            Timer     // guarded by mu: calls tick when the next action is due
	late             Timer     // guarded by mu: calls releaseLost; nil if that is not due

	unlocking        chan struct{} // holds a value while a release is under way, which owns what follows
	ambiguousRelease bool          // a release may have reached Redis without its reply coming back
	released         bool          // Redis has replied to a release
	releaseErr       error         // what it said
}

// errNoReply stands for the error of a renewal that has no reply yet.
var errNoReply = errors.New("no answer to a renewal")

// lost returns an ErrLost with its reason.
func lost(reason error) error { return fmt.Errorf("%w: %w", ErrLost, reason) }

// newLease begins a lease that Redis gave after a request was sent then, by a handoff or a reply. It is ambiguous if an
// acquire of its token may still arrive. The error is ErrExpired if it has ended already, or ErrClosed.
func newLease(l *lock, g lua.Grant, sent time.Time, handoff, ambiguous bool) (*Lease, error) {
	now, ttl := l.rt.clock.Now(), l.cfg.TTL
	lease := &Lease{
		lock: l, token: g.Token, fence: g.Fence, ambiguous: ambiguous, began: now,
		term:      term{ttl: ttl, renews: !l.cfg.NoRenewal, deadline: trustedUntil(sent, g.Given, ttl)}.planned(now),
		unlocking: make(chan struct{}, 1),
	}
	if handoff {
		lease.term = lease.term.afterHandoff(now)
	}
	if !now.Before(lease.term.deadline) {
		return nil, lost(ErrExpired)
	}
	lease.lastSixth = lease.term.lastSixth(now)
	lease.life, lease.end = context.WithCancelCause(context.Background())
	lease.mu.Lock() // Close may find it as soon as it is kept
	defer lease.mu.Unlock()
	if err := l.rt.keep(lease); err != nil {
		return nil, err
	}
	lease.setTimer(now)
	return lease, nil
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.lock.name }

// Token returns the acquisition's token, with which another process can Resume the lease.
func (l *Lease) Token() token.Token { return l.token }

// Fence returns the number of this grant. It is greater than that of every earlier grant of this lock, and below 2^53. A
// resource that remembers the highest fence it has seen and refuses lower ones is safe even from a holder that does
// not know yet that its lease has ended. If the resource is to be read before it is written, show it the fence before
// the read.
func (l *Lease) Fence() uint64 {
	if l == nil {
		return 0
	}
	return l.fence
}

// Deadline returns the time at which the lease ends here if it is not renewed. In Redis it ends somewhat later.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.deadline
}

// Done returns a channel that is closed when the lease ends. It looks at the clock, so that a process that was paused
// finds the end of its lease at once.
func (l *Lease) Done() <-chan struct{} {
	l.expire()
	return l.life.Done()
}

// Err returns nil while the lock is held. Then it returns ErrUnlocked, ErrLost with its reason, or ErrClosed.
func (l *Lease) Err() error {
	l.expire()
	return context.Cause(l.life)
}

// Context returns a copy of parent that also ends when the lease does. context.Cause tells why, and LeaseFromContext finds
// the lease in it. The caller must call cancel when it is done with it.
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

// LeaseFromContext returns the lease of a ctx that Do has passed to its function, or that Lease.Context has returned. With
// one Do inside another, it returns the lease of the inner one. Outside a lock it returns nil, whose Fence is 0, and a
// resource that checks fences refuses that.
func LeaseFromContext(ctx context.Context) *Lease {
	for l := range leasesIn(ctx) {
		return l
	}
	return nil
}

// Renew extends the lease to its TTL from now, for example before a step that matters. Nil means that the lock is held
// until the new Deadline. ErrLost and ErrUnlocked mean that it is not held. After any other error, such as one of ctx, the
// lease lasts until its Deadline as before, unless its Client was closed. Renew returns when ctx or the lease ends. If ctx
// ends while Renew waits for Redis, the renewal has failed, and Trace.Renewed is called.
func (l *Lease) Renew(ctx context.Context) error {
	_, err := performUntilClosed(ctx, l.lock, "renew", l.Err(), func(ctx context.Context, t task) (none struct{}, err error) {
		ctx, cancel := l.lock.rt.withTimeout(ctx, l.left())
		defer cancel()
		err = orEnded(ctx, l.renew(ctx, t))
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
func (l *Lease) renew(ctx context.Context, t task) error {
	sent := l.lock.rt.clock.Now()
	l.renewalSent(sent)
	reply, err := l.lock.redis.Renew(ctx, l.token, l.lock.cfg.TTL, l.fence)
	l.renewalEnded(err)
	if err == nil {
		l.lock.rt.outage.succeeded(l)
	}
	until := trustedUntil(sent, l.lock.cfg.TTL, l.lock.cfg.TTL)
	switch {
	case err != nil:
		l.renewalFailed(ctx, until, err)
	case !reply.Held:
		err = lost(ErrTaken)
		l.lose(ErrTaken)
		if reply.Fence != 0 || l.ambiguous { // an acquire that was sent again, or late, has the lock for nobody, or may get it
			l.lock.giveBack(t, l.token, reply.Fence, l.ambiguous)
		}
	default:
		l.extend(until)
	}
	if l.life.Err() == nil || reply.Held {
		call(l.lock.rt.trace.Renewed, RenewedInfo{Event: l.event(), Deadline: l.Deadline(), Err: err})
	}
	return err
}

// renewalSent and renewalEnded keep account of renewals that may arrive in Redis after the lease has ended here.
func (l *Lease) renewalSent(now time.Time) {
	l.mu.Lock()
	begins := l.noReply(now)
	l.pending++
	if l.tried.IsZero() {
		l.tried, l.failure = now, errNoReply
	}
	failure := l.failure
	l.mu.Unlock()
	if begins {
		l.lock.rt.outage.begun("renewal", l.lock.name, failure)
	}
}

func (l *Lease) renewalEnded(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending--
	if err == nil || lua.OriginOf(err) == lua.NoReply {
		l.ambiguousRenewal = err != nil
	}
}

// renewalFailed remembers the failure, unless a renewal that was sent later has succeeded. until is what the lease would
// have been extended to.
func (l *Lease) renewalFailed(ctx context.Context, until time.Time, err error) {
	rt := l.lock.rt
	err = rt.named(err)
	refused := lua.OriginOf(err) == lua.Permanent
	l.mu.Lock()
	latest := !until.Before(l.term.deadline)
	if latest {
		l.failure = err
	}
	held := l.life.Err() == nil
	// A ctx of Renew that has ended says nothing about Redis.
	begins := held && latest && !refused && ctx.Err() == nil && rt.outage.failed(l)
	l.mu.Unlock()
	switch {
	case begins:
		rt.outage.begun("renewal", l.lock.name, err)
	case held && refused:
		rt.log.Warn("Redis refuses a renewal; another follows until the lease ends",
			"lock", l.lock.name, "token", l.token, "err", err)
	}
}

// noReply looks at the renewals that were sent before, when another is sent: two without a reply are an outage. It reports whether
// one begins with that. The caller holds mu, and logs it.
func (l *Lease) noReply(now time.Time) (begins bool) {
	if !errors.Is(l.failure, errNoReply) {
		return false
	}
	l.failure = l.lock.rt.named(errNoReply)
	return l.pending > 1 && now.Sub(l.tried) >= longest && l.lock.rt.outage.failed(l)
}

// longest is how long a reply may take until its lack is taken for an outage: a TTL may be shorter than a round trip.
const longest = time.Second

// extend trusts the lease until then, unless it is trusted for longer.
func (l *Lease) extend(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil || !until.After(l.term.deadline) {
		return
	}
	now := l.lock.rt.clock.Now()
	l.term.deadline, l.failure, l.tried = until, nil, time.Time{}
	l.term = l.term.planned(now)
	l.lastSixth = l.term.lastSixth(now)
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
	t, err := l.lock.rt.begin()
	if err != nil {
		return
	}
	defer t.end()
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
	now := l.lock.rt.clock.Now()
	what, _ := l.term.due(now)
	reason := ErrExpired
	// A process that has no CPU sends its renewals late, and finds the end late.
	early, prompt := !l.tried.After(l.lastSixth), now.Sub(l.term.deadline) <= safetyMargin(l.term.ttl)
	if l.failure != nil && early && prompt {
		reason = fmt.Errorf("%w: %w", ErrUnreachable, l.failure)
	}
	l.mu.Unlock()
	if what != expiry {
		return
	}
	if t, err := l.lock.rt.begin(); err == nil { // so that Shutdown sees what follows the lease's end
		defer t.end()
	}
	if l.lose(reason) {
		l.releaseLater()
	}
}

// releaseLater has a lease that has expired here released when its safety margin is over: until then its holder may not
// have stopped. Without that, a renewal or an acquire that arrives late would keep the lock for nobody, for a whole TTL. If
// none can arrive, nothing is sent: the lease ends by itself, or another process has resumed it.
func (l *Lease) releaseLater() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resumed || l.pending == 0 && !l.ambiguousRenewal && !l.ambiguous || l.lock.rt.keep(l) != nil {
		return
	}
	over := l.term.deadline.Add(safetyMargin(l.term.ttl))
	l.late = l.lock.rt.clock.AfterFunc(over.Sub(l.lock.rt.clock.Now()), l.releaseLost)
}

// wasResumed notes that another Lease of this client has the token: this one must not release it any more.
func (l *Lease) wasResumed() {
	if l.stopLate() {
		l.lock.rt.drop(l)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumed = true
}

// releaseLost releases the lease in the background, if that is due, without waiting for the timer.
func (l *Lease) releaseLost() {
	t, err := l.lock.rt.begin()
	if err != nil {
		return
	}
	defer t.end()
	if l.stopLate() {
		l.lock.rt.drop(l)
		l.lock.giveBack(t, l.token, l.fence, l.ambiguous)
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

// close ends the lease because its Client is closed.
func (l *Lease) close() {
	l.finish(ErrClosed)
	l.stopLate()
}

// lose ends the lease without its holder's doing, and reports whether it has: the lease may have ended before.
func (l *Lease) lose(reason error) bool {
	cause := lost(reason)
	first := l.finish(cause)
	if first {
		l.announceLoss(cause)
	}
	return first
}

// finish ends the lease with that cause, and reports whether it has: the lease may have ended before.
func (l *Lease) finish(cause error) bool {
	l.mu.Lock()
	if l.life.Err() != nil {
		l.mu.Unlock()
		return false
	}
	l.end(cause)
	l.timer.Stop()
	l.lock.rt.outage.forget(l)
	l.mu.Unlock()
	l.lock.rt.drop(l)
	return true
}

// announceLoss logs the loss, and calls Trace.Lost.
func (l *Lease) announceLoss(cause error) {
	rt := l.lock.rt
	held := rt.clock.Now().Sub(l.began)
	rt.log.Warn("lock lost", "lock", l.lock.name, "token", l.token, "fence", l.fence, "held", held, "err", cause)
	call(rt.trace.Lost, LostInfo{Event: l.event(), Fence: l.fence, Held: held, Err: cause})
}

func (l *Lease) event() Event { return l.lock.event(l.token) }

// Unlock ends the lease and releases the lock, which hands it to the first waiter. The lease ends for its holder when
// Unlock is called.
//
// Nil means that the lock is released, perhaps by an earlier call or by one whose reply was lost. ErrLost means that this
// lease did not hold it any more. A later holder keeps the lock. ErrClosed means that the Client was closed before Redis
// replied. The lock may stay held until its TTL ends. After any other error the lock may stay held, for no longer than its
// TTL, and Unlock can be called again.
//
// If a reply was lost, Unlock cannot always tell a released lock from a lost one. It returns nil then, or ErrLost if Redis
// refused the same request meanwhile, as it does during a failover.
//
// Only the values of ctx count. Unlock works after ctx has ended. If Redis cannot be reached, or cannot release the lock
// now, Unlock tries until the lease would have ended. After that, and after a loss, the lock is released in the background if
// a request may still arrive that would keep it.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.lock.wrap("unlock", l.unlock(ctx))
}

func (l *Lease) unlock(ctx context.Context) error {
	t, closed := l.lock.rt.begin() // before the lease ends, so that Shutdown sees one or the other
	if closed == nil {
		defer t.end()
	}
	l.expire()
	if !l.finish(ErrUnlocked) {
		if cause := context.Cause(l.life); cause != ErrUnlocked { //nolint:errorlint // the cause itself, not what it wraps
			l.releaseLost() // its holder has stopped
			return cause
		}
	}
	replied, err := l.release(ctx, t, closed)
	switch {
	case !replied:
	case err != nil:
		l.announceLoss(err)
	default:
		held := l.lock.rt.clock.Now().Sub(l.began)
		call(l.lock.rt.trace.Released, ReleasedInfo{Event: l.event(), Fence: l.fence, Held: held})
	}
	return err
}

// release sends the release until Redis replies, or the lease would have ended. replied means that Redis has replied now,
// not to an earlier Unlock. No callback is called here: it may call Unlock.
func (l *Lease) release(ctx context.Context, t task, closed error) (replied bool, err error) {
	l.unlocking <- struct{}{} // an earlier Unlock is bounded
	defer func() { <-l.unlocking }()
	if l.released {
		return false, l.releaseErr
	}
	if closed != nil {
		return false, closed
	}
	rt := l.lock.rt
	left := l.left()
	if left <= 0 {
		return false, lost(ErrExpired)
	}
	ctx, cancel := rt.withTimeout(withValues{rt.leaves, ctx}, left)
	defer cancel()
	var h lua.Handoff
	err = rt.retry(ctx, func() (err error) {
		h, err = l.lock.release(ctx, l.token, l.fence, l.ambiguous)
		// go-redis resends by itself what Redis refuses for a while: then no copy has released the lock.
		l.ambiguousRelease = l.ambiguousRelease || h.Ambiguous && lua.OriginOf(err) != lua.Unavailable
		return err
	})
	if err != nil {
		if l.left() <= 0 { // else another Unlock can follow
			l.lock.giveBack(t, l.token, l.fence, l.ambiguous)
		}
		return false, err
	}
	l.released = true
	l.lock.queues.handoff(t, l.lock, h)
	if !h.Released && !l.ambiguousRelease {
		l.releaseErr = lost(ErrTaken)
	}
	return true, l.releaseErr
}
