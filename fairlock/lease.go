package fairlock

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/fairlock/fairlock-go/internal/hold"
	"github.com/fairlock/fairlock-go/token"
)

// Lease is one holding of a lock. It is renewed in the background until it ends by Unlock, Detach, a loss or the end of
// the Client.
type Lease struct {
	lock *lock
	held *hold.Holding
}

// beginLease begins the lease of a grant. The caller calls granted.
func (l *lock) beginLease(g hold.Grant) (*Lease, error) {
	held, err := hold.Begin(&l.hold, g)
	if err != nil {
		return nil, err
	}
	return &Lease{l, held}, nil
}

// granted tells Trace that the lease has begun. Its end is reported only after that.
func (l *Lease) granted(info GrantedInfo) {
	returns := false
	defer func() {
		if !returns { // the callback has panicked, so the caller does not get the lease
			_ = l.held.Unlock(context.WithoutCancel(info.Ctx))
		}
	}()
	emit(l.lock.client.cfg.Trace.Granted, info)
	l.held.Announce()
	returns = true
}

// renewed tells Trace of a renewal.
func (l *lock) renewed(g hold.Grant, deadline time.Time, err error) {
	emit(l.client.cfg.Trace.Renewed, RenewedInfo{Event: l.event(g.Caller, g.Token), Deadline: deadline, Err: err})
}

// ended tells Trace of the end of a lease.
func (l *lock) ended(g hold.Grant, held time.Duration, err error) {
	emit(l.client.cfg.Trace.Ended, EndedInfo{Event: l.event(g.Caller, g.Token), Fence: g.Fence, Held: held, Err: err})
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.lock.name }

// Token returns the lease's token, which identifies it in Redis, in logs and in Trace.
func (l *Lease) Token() token.Token { return l.held.Token }

// Handle returns the Handle by which another process can Resume the lease.
func (l *Lease) Handle() Handle { return newHandle(l.held.Token, l.held.Fence) }

// Format prints the lock's name and the redacted token for every verb, even of a copy. Without it, fmt would print the
// whole token.
func (l Lease) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), l.lock.name+" "+l.held.Token.String())
}

// LogValue returns the lock's name, the fence and the client's name, for log/slog. It does not show the token.
func (l Lease) LogValue() slog.Value {
	return slog.GroupValue(slog.String("lock", l.lock.name), slog.Uint64("fence", l.held.Fence),
		slog.String("client", l.lock.client.cfg.Name))
}

// Fence returns the number of this grant, below 2^53. A resource that refuses fences below the highest it has seen is
// safe from holders that have not noticed the end of their leases. If you read before you write, send the fence before
// the read.
func (l *Lease) Fence() uint64 { return l.held.Fence }

// Deadline returns when the lease ends here without another renewal. In Redis it ends somewhat later.
func (l *Lease) Deadline() time.Time { return l.held.Deadline() }

// Done returns a channel that is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} { return l.held.Life().Done() }

// Err returns nil while the lock is held. Then it returns ErrUnlocked, ErrLost with its reason, ErrDetached, or
// ErrClosed.
func (l *Lease) Err() error { return l.held.Err() }

// Waiting returns the number of waiters, for a holder that can stop early, for example between two items of a batch. It
// sends one small request. ctx bounds it, 3 s at most.
func (l *Lease) Waiting(ctx context.Context) (int, error) {
	snapshot, err := l.lock.inspect(ctx, "waiting", 0)
	return snapshot.Alive, err
}

// Context returns a copy of parent that also ends when the lease does. context.Cause says why. LeaseFromContext returns
// the lease. The caller must call cancel.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(parent)
	ctx := &leaseContext{inner, l, cancel}
	ctx.look()
	life := l.held.Life()
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// LeaseFromContext returns the innermost lease of a ctx that comes from Do or Lease.Context, and false if there is
// none.
func LeaseFromContext(ctx context.Context) (*Lease, bool) {
	for l := range leasesIn(ctx) {
		return l, true
	}
	return nil, false
}

// Renew extends the lease to its TTL from now, for example before a step that matters. It tries until ctx or the lease
// ends. After nil the lock is held until the new Deadline. After ErrLost or ErrUnlocked it is not held. After any other
// error, such as one of ctx, the Deadline is as before.
func (l *Lease) Renew(ctx context.Context) error {
	return l.lock.perform(ctx, "renew", l.Err(), l.held.Renew)
}

// Detach ends the lease here without releasing the lock, and returns its Handle. It does no I/O. The lock stays held in
// Redis for the rest of TTL, so another process should resume the lease before Deadline. If none does, a delayed
// duplicate of the acquire request may keep the lock held for one TTL more. An error means that the lease had ended. In
// the function of Do, Detach ends its ctx, and Do returns without a release and without an error of its own.
func (l *Lease) Detach() (Handle, error) {
	if err := l.held.Detach(); err != nil {
		return "", l.lock.wrap("detach", err)
	}
	return l.Handle(), nil
}

// Unlock ends the lease and releases the lock, which hands it to the first waiter. It uses only the values of ctx, so
// it works after ctx has ended. It tries until the lease would have ended, for TTL at most, and then returns
// ErrUnreachable. If Redis refuses, it tries for 3 s, and then returns ErrRefused. In both cases the release goes on in
// the background.
//
// After nil the lock is released, perhaps by an earlier call. ErrLost means that the lease no longer held it,
// ErrDetached that nothing was sent. After any other error the lock may stay held for the rest of its TTL, and Unlock
// can be called again. If a request was sent twice, Unlock cannot tell a released lock from a lost one. It then returns
// nil.
func (l *Lease) Unlock(ctx context.Context) error { return l.lock.wrap("unlock", l.held.Unlock(ctx)) }

// leaseContext is a ctx that carries a lease.
type leaseContext struct {
	context.Context // ends with the lease, by a timer or by end
	lease           *Lease
	end             context.CancelCauseFunc
}

// Done looks at the clock, as the lease's Done does: after a pause of the process its timer is late.
func (c *leaseContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err looks at the clock, as the lease's Err does.
func (c *leaseContext) Err() error {
	c.look()
	return c.Context.Err()
}

// look ends the ctx if the lease has ended.
func (c *leaseContext) look() {
	if cause := c.lease.Err(); cause != nil {
		c.end(cause)
	}
}

type leaseContextKey struct{}

// Value returns c for leaseContextKey, by which enclosing finds it.
func (c *leaseContext) Value(key any) any {
	if key == (leaseContextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// enclosing returns the innermost leaseContext of ctx, or nil.
func enclosing(ctx context.Context) *leaseContext {
	c, _ := ctx.Value(leaseContextKey{}).(*leaseContext)
	return c
}

// leasesIn returns the leases that ctx carries, the innermost first.
func leasesIn(ctx context.Context) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for c := enclosing(ctx); c != nil && yield(c.lease); {
			c = enclosing(c.Context)
		}
	}
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

// heldBy returns the lease in ctx that an acquisition of weight permits would deadlock on, or nil.
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

// heldIn reports whether ctx carries a held lease of this client.
func (c *Client) heldIn(ctx context.Context) bool {
	for l := range leasesIn(ctx) {
		if l.lock.client == c && l.Err() == nil {
			return true
		}
	}
	return false
}
