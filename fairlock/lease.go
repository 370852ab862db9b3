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

// Lease is one holding of a lock. It ends once, for one reason: Unlock, loss, or the Client's Close. Until then it is
// renewed in the background, unless Config.NoRenewal is set. It is safe for concurrent use.
//
// A lease is trusted for a little less time than Redis grants it, counted from before the request was sent. So Done
// closes before another client can get the lock, whether Redis answers or not.
//
// The Fence of a nil *Lease is 0. LeaseFromContext returns one outside a lock.
type Lease struct {
	lock      *lock
	token     token.Token
	weight    int // 0: not known
	fence     uint64
	ambiguous bool // an acquire of the token may still reach Redis
	began     time.Time

	life context.Context // ends with the lease; its cause is Err
	end  context.CancelCauseFunc

	mu       sync.Mutex
	deadline time.Time // guarded by mu: until when it is trusted
	renewAt  time.Time // guarded by mu: when the next renewal is due
	failure  error     // guarded by mu: of the latest renewal, if it has not succeeded
	timer    Timer     // guarded by mu: calls tick when the next action is due

	unlocking  chan struct{} // holds a value while a release is under way, which owns what follows
	sent       bool          // a release may have reached Redis without its reply coming back
	released   bool          // Redis has replied to a release
	releaseErr error         // what it said
}

// safetyMargin is the part of TTL that is not relied on: for clocks that run at a different speed, for Redis's rounding
// to milliseconds, and for the time between the end of the lease and its holder's noticing.
func safetyMargin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// trustedUntil is how long a lease can be relied on that was given after sent.
func trustedUntil(sent time.Time, given, ttl time.Duration) time.Time {
	return sent.Add(given - safetyMargin(ttl))
}

// errNoReply is the failure of a renewal that is under way.
var errNoReply = errors.New("no answer to a renewal")

// lost is an ErrLost with its reason.
func lost(reason error) error { return fmt.Errorf("%w: %w", ErrLost, reason) }

// newLease begins a lease that was given after sent. The error is ErrExpired if it has ended already, or ErrClosed.
func newLease(
	l *lock, t token.Token, weight int, fence uint64, sent time.Time, given time.Duration,
) (*Lease, error) {
	now := l.client.clock.Now()
	lease := &Lease{
		lock: l, token: t, weight: weight, fence: fence, began: now, deadline: trustedUntil(sent, given, l.cfg.TTL),
		unlocking: make(chan struct{}, 1),
	}
	if !now.Before(lease.deadline) {
		return nil, lost(ErrExpired)
	}
	lease.life, lease.end = context.WithCancelCause(context.Background())
	lease.mu.Lock() // Close may find it as soon as it is kept
	defer lease.mu.Unlock()
	if err := l.client.keep(lease); err != nil {
		return nil, err
	}
	lease.planRenewal(now)
	lease.setTimer(now)
	return lease, nil
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.lock.name }

// Token returns the acquisition's token: with it, another process can Resume the lease.
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

// Deadline returns until when the lease is trusted, unless it is renewed: somewhat earlier than it ends in Redis.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Done returns a channel that is closed when the lease ends. It looks at the clock, so a process that was paused finds
// its lease ended at once.
func (l *Lease) Done() <-chan struct{} {
	l.expire()
	return l.life.Done()
}

// Err returns nil while the lock is held, then why it is not: ErrUnlocked, ErrLost with its reason, or ErrClosed.
func (l *Lease) Err() error {
	l.expire()
	return context.Cause(l.life)
}

// Context returns a copy of parent that ends when the lease does; context.Cause returns why. Its deadline and its values
// are parent's, and LeaseFromContext finds the lease in it. The caller must call cancel when it is done with it.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, leaseKey{}, l))
	if err := l.Err(); err != nil {
		cancel(err)
	}
	stop := context.AfterFunc(l.life, func() { cancel(context.Cause(l.life)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

type leaseKey struct{}

// LeaseFromContext returns the lease that a ctx belongs to, such as that of Do's f: for its fence, or its token. With one
// Do inside another, it is the inner one's. Outside a lock it is nil, and its Fence is 0, which a resource that checks
// fences refuses.
func LeaseFromContext(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// Renew extends the lease to its TTL from now, for example before a step that matters. Nil means that the lock is held
// until the new Deadline. ErrLost and ErrUnlocked mean that it is not held. After any other error, such as one of ctx, the
// lease lasts until its Deadline as before, unless its Client was closed. Renew returns when ctx or the lease ends. If ctx
// ends while Renew waits for Redis, that counts as a failed renewal: it is logged, and Trace.Renewed is called.
func (l *Lease) Renew(ctx context.Context) error {
	_, err := request(ctx, l.lock, "renew", l.Err(), func(ctx context.Context) (none struct{}, err error) {
		ctx, cancel := l.lock.client.withTimeout(ctx, l.left())
		defer cancel()
		err = orEnded(ctx, l.renew(ctx))
		if cause := l.Err(); cause != nil {
			return none, cause
		}
		return none, err
	})
	return err
}

// left is for how long the lease is trusted.
func (l *Lease) left() time.Duration { return l.Deadline().Sub(l.lock.client.clock.Now()) }

// renew sends one renewal. A reply that comes after Unlock changes nothing: the script compares the token, so no renewal
// extends a lock that was released.
func (l *Lease) renew(ctx context.Context) error {
	sent := l.lock.client.clock.Now()
	reply, err := l.lock.redis.Renew(ctx, l.token, l.lock.cfg.TTL, l.fence)
	until := trustedUntil(sent, l.lock.cfg.TTL, l.lock.cfg.TTL)
	switch {
	case err != nil:
		l.renewalFailed(until, err)
	case !reply.Held:
		err = lost(ErrTaken)
		trusted := l.lose(ErrTaken)
		if reply.Fence != 0 { // an acquire that was sent again, or late, was granted the lock for nobody
			l.lock.giveBack(l.token, reply.Fence)
		} else if trusted {
			l.reportLoss()
		}
	default:
		l.extend(until)
	}
	if l.life.Err() == nil || reply.Held {
		call(l.lock.client.trace.Renewed, RenewedInfo{Event: l.event(), Deadline: l.Deadline(), Err: err})
	}
	return err
}

// reportLoss reports to Redis that the lease was lost, unless it has ended by the wall clock, which goes on while a machine is
// suspended.
func (l *Lease) reportLoss() {
	if l.lock.client.clock.Now().Round(0).Before(l.Deadline().Round(0)) {
		l.lock.reportLoss(l.token, l.fence)
	}
}

// renewalFailed remembers the failure, unless a renewal that was sent later has succeeded. until is what the lease would
// have been extended to.
func (l *Lease) renewalFailed(until time.Time, err error) {
	l.mu.Lock()
	over := l.life.Err() != nil
	if !until.Before(l.deadline) {
		l.failure = err
	}
	l.mu.Unlock()
	if !over {
		l.lock.client.log.Warn("renewal failed; another follows until the lease ends",
			"lock", l.lock.name, "token", l.token, "err", err)
	}
}

// extend trusts the lease until then, unless it is trusted for longer.
func (l *Lease) extend(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil || !until.After(l.deadline) {
		return
	}
	l.deadline, l.failure = until, nil
	now := l.lock.client.clock.Now()
	l.planRenewal(now)
	l.setTimer(now)
}

// action is what is due of a lease.
type action int

const (
	nothing action = iota
	renewal
	expiry
)

// due returns what is due of a lease now, and if that is nothing, when something will be.
func due(now, renewAt, deadline time.Time) (action, time.Time) {
	switch {
	case !now.Before(deadline):
		return expiry, now
	case !now.Before(renewAt):
		return renewal, now
	case renewAt.Before(deadline):
		return nothing, renewAt
	default:
		return nothing, deadline
	}
}

// nextRenewal is when a lease is renewed next: when a third of what is left of it has passed, so that two renewals may
// fail.
func nextRenewal(now, deadline time.Time, ttl time.Duration) time.Time {
	return now.Add(max(deadline.Sub(now)/3, ttl/30))
}

// planRenewal sets when the next renewal is due, should the one that is sent now fail. The caller holds mu.
func (l *Lease) planRenewal(now time.Time) {
	l.renewAt = l.deadline
	if !l.lock.cfg.NoRenewal {
		l.renewAt = nextRenewal(now, l.deadline, l.lock.cfg.TTL)
	}
}

// setTimer has tick called when something is due. The caller holds mu.
func (l *Lease) setTimer(now time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	_, at := due(now, l.renewAt, l.deadline)
	l.timer = l.lock.client.clock.AfterFunc(at.Sub(now), l.tick)
}

// tick does what is due.
func (l *Lease) tick() {
	if l.lock.client.enter() != nil {
		return
	}
	defer l.lock.client.tasks.Done()
	l.mu.Lock()
	if l.life.Err() != nil {
		l.mu.Unlock()
		return
	}
	now := l.lock.client.clock.Now()
	what, _ := due(now, l.renewAt, l.deadline)
	if what == renewal {
		l.planRenewal(now)
		if l.failure == nil {
			l.failure = errNoReply
		}
	}
	if what != expiry {
		l.setTimer(now)
	}
	l.mu.Unlock()
	switch what {
	case renewal:
		_ = l.renew(l.life) // the next one follows, or the deadline
	case expiry:
		l.expire()
	case nothing:
	}
}

// expire ends the lease if its deadline has passed, without waiting for the timer.
func (l *Lease) expire() {
	l.mu.Lock()
	what, _ := due(l.lock.client.clock.Now(), l.renewAt, l.deadline)
	reason := ErrExpired
	if l.failure != nil {
		reason = fmt.Errorf("%w: %w", ErrUnreachable, l.failure)
	}
	l.mu.Unlock()
	if what == expiry {
		l.lose(reason)
	}
}

// lose ends the lease without its holder's doing, and reports whether it had not ended before.
func (l *Lease) lose(reason error) bool {
	cause := lost(reason)
	first := l.finish(cause)
	if first {
		l.announceLoss(cause)
	}
	return first
}

// finish ends the lease with that cause, if it has not ended, and reports whether it did.
func (l *Lease) finish(cause error) bool {
	l.mu.Lock()
	if l.life.Err() != nil {
		l.mu.Unlock()
		return false
	}
	l.end(cause)
	l.timer.Stop()
	l.mu.Unlock()
	l.lock.client.drop(l)
	return true
}

// announceLoss tells the user: by the log and by Trace.
func (l *Lease) announceLoss(cause error) {
	c := l.lock.client
	held := c.clock.Now().Sub(l.began)
	c.log.Warn("lock lost", "lock", l.lock.name, "token", l.token, "fence", l.fence, "held", held, "err", cause)
	call(c.trace.Lost, LostInfo{Event: l.event(), Fence: l.fence, Held: held, Err: cause})
}

func (l *Lease) event() Event { return l.lock.event(l.token, l.weight) }

// Unlock ends the lease and releases the lock, which hands it to the first waiter. The lease ends for its holder when
// Unlock is called.
//
// Nil means that the lock is released, perhaps by an earlier call or one whose reply was lost. ErrLost means that this
// lease held it no longer; a later holder keeps it. ErrClosed means that the Client was closed before Redis replied: the
// lock may stay held until its TTL ends. After any other error the lock may stay held, for no longer than its TTL, and
// Unlock can be called again.
//
// After a lost reply, Unlock cannot always tell a released lock from a lost one, and returns nil; or ErrLost, if Redis
// refused the same request meanwhile (failover).
//
// ctx carries values only: Unlock works after ctx has ended. If Redis cannot be reached, or cannot release the lock now,
// Unlock tries until the lease would have ended.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.lock.wrap("unlock", l.unlock(ctx))
}

func (l *Lease) unlock(ctx context.Context) error {
	l.expire()
	if !l.finish(ErrUnlocked) {
		if cause := context.Cause(l.life); cause != ErrUnlocked { //nolint:errorlint // the cause itself, not what it wraps
			return cause
		}
	}
	replied, err := l.release(ctx)
	switch {
	case !replied:
	case err != nil:
		l.announceLoss(err)
		l.reportLoss()
	default:
		held := l.lock.client.clock.Now().Sub(l.began)
		call(l.lock.client.trace.Released, ReleasedInfo{Event: l.event(), Fence: l.fence, Held: held})
	}
	return err
}

// release sends the release until Redis replies, or the lease would have ended. replied means that Redis has replied now,
// not to an earlier Unlock. No callback is called here: it may call Unlock.
func (l *Lease) release(ctx context.Context) (replied bool, err error) {
	l.unlocking <- struct{}{} // an earlier Unlock is bounded
	defer func() { <-l.unlocking }()
	if l.released {
		return false, l.releaseErr
	}
	c := l.lock.client
	if err := c.enter(); err != nil {
		return false, err
	}
	defer c.tasks.Done()
	left := l.left()
	if left <= 0 {
		return false, lost(ErrExpired)
	}
	ctx, cancel := c.withTimeout(withValues{c.leaves, ctx}, left)
	defer cancel()
	var h lua.Handoff
	err = c.retry(ctx, func() (err error) {
		if l.ambiguous {
			h, err = l.lock.redis.Leave(ctx, l.token, true)
		} else {
			h, err = l.lock.redis.Release(ctx, l.token, l.fence)
		}
		// go-redis resends by itself what Redis refuses for a while: then no copy has released the lock.
		l.sent = l.sent || h.Ambiguous && lua.OriginOf(err) != lua.Unavailable
		return err
	})
	if err != nil {
		return false, err
	}
	l.released = true
	c.handoff(l.lock, h)
	if !h.Released && !l.sent {
		l.releaseErr = lost(ErrTaken)
	}
	return true, l.releaseErr
}
