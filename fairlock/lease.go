package fairlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Lease is one holding of a lock. It ends once, for one reason: Unlock, loss, or the Client's Close. Until then it is
// renewed in the background, unless Config.NoRenewal is set. It is safe for concurrent use.
//
// A lease is believed in for a little less time than Redis grants it, counted from before the request was sent. So
// Done closes before anyone else can get the lock, whether Redis answers or not.
type Lease struct {
	lock
	token *lua.Leaving
	fence uint64
	began time.Time

	life context.Context // ends with the lease; its cause is Err
	end  context.CancelCauseFunc

	mu       sync.Mutex
	deadline time.Time // guarded by mu: until when it is believed
	renewAt  time.Time // guarded by mu: when the next renewal is due
	renewals int       // guarded by mu: under way
	failure  error     // guarded by mu: of the last renewal
	timer    Timer     // guarded by mu: the next thing due

	unlocking bool          // guarded by mu: an Unlock is under way
	turn      chan struct{} // guarded by mu: closed when it is done; nil if nobody waits for that
	settled   bool          // guarded by mu: Redis has answered to an Unlock
	verdict   error         // guarded by mu: what it said
}

// margin is by how much a lease ends earlier here than in Redis: for clocks that run at a different speed, for Redis's
// rounding to milliseconds, and for the time between the end and the holder's noticing.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// believed is until when a lease can be relied on that was given at some moment after sent.
func believed(sent time.Time, given, ttl time.Duration) time.Time {
	return sent.Add(given - margin(ttl))
}

// lost is an ErrLost with its reason.
func lost(why error) error { return fmt.Errorf("%w: %w", ErrLost, why) }

// newLease begins a lease that was given at some moment after sent. If it is over already it returns ErrExpired.
func newLease(l lock, t *lua.Leaving, fence uint64, sent time.Time, given time.Duration) (*Lease, error) {
	now := l.client.clock.Now()
	lease := &Lease{lock: l, token: t, fence: fence, began: now, deadline: believed(sent, given, l.ttl)}
	if !now.Before(lease.deadline) {
		return nil, lost(ErrExpired)
	}
	lease.life, lease.end = context.WithCancelCause(context.Background())
	lease.mu.Lock() // Close may find it as soon as it is kept
	defer lease.mu.Unlock()
	if err := l.client.keep(lease); err != nil {
		return nil, err
	}
	lease.schedule(now)
	return lease, nil
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.name }

// Token returns the acquisition's token: with it, another process can Resume the lease.
func (l *Lease) Token() token.Token { return l.token.Token }

// Fence returns the number of this grant, greater than that of every earlier grant of this lock, and below 2^53. A
// resource that remembers the highest fence it has seen and refuses lower ones is safe even from a holder that does
// not know yet that its lease is over; if it is to be read before it is written, it must be shown the fence before that.
func (l *Lease) Fence() uint64 { return l.fence }

// Deadline returns until when the lease is believed in, unless it is renewed: somewhat earlier than it ends in Redis.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Done returns a channel that is closed when the lease ends. It looks at the clock, so that a process that was paused
// finds its lease over at once.
func (l *Lease) Done() <-chan struct{} {
	l.expire()
	return l.life.Done()
}

// Err returns nil while the lock is held, then why it is not: ErrUnlocked, ErrLost with its reason, or ErrClosed.
func (l *Lease) Err() error {
	l.expire()
	return context.Cause(l.life)
}

// Context returns a copy of parent that ends when the lease does; context.Cause tells why. Its deadline and its values
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

// LeaseFromContext returns the lease under which a ctx is, such as that of Do's f: for its fence, or its token. Of
// several, one Do within another, it is the innermost. It is nil if there is none.
func LeaseFromContext(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// expire ends the lease if its deadline has passed, without waiting for the timer.
func (l *Lease) expire() {
	l.mu.Lock()
	over := !l.client.clock.Now().Before(l.deadline)
	why := l.expiry()
	l.mu.Unlock()
	if over {
		l.lose(why)
	}
}

// expiry is the reason for which a lease ends at its deadline. The caller holds mu.
func (l *Lease) expiry() error {
	switch {
	case l.failure != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, l.failure)
	case l.renewals > 0:
		return fmt.Errorf("%w: no answer to a renewal", ErrUnreachable)
	default:
		return ErrExpired
	}
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
	l.client.drop(l)
	return true
}

// lose ends the lease because of why.
func (l *Lease) lose(why error) {
	cause := lost(why)
	if l.finish(cause) {
		l.reportLoss(cause)
	}
}

func (l *Lease) reportLoss(cause error) {
	held := l.client.clock.Now().Sub(l.began)
	l.client.log.Warn("lock lost", "lock", l.name, "token", l.Token(), "fence", l.fence, "held", held, "err", cause)
	call(l.client.trace.Lost, LostInfo{Event: l.event(), Fence: l.fence, Held: held, Err: cause})
}

func (l *Lease) event() Event { return l.lock.event(l.Token()) }
