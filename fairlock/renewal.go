package fairlock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// mostRenewals is how many renewals of a lease may be under way at once: one that hangs on a dead connection must not
// keep the next from being sent on another.
const mostRenewals = 3

// schedule sets the next renewal, at a third of what is left: early enough to fail twice. The caller holds mu.
func (l *Lease) schedule(now time.Time) {
	l.renewAt = now.Add(max(l.deadline.Sub(now)/3, l.ttl/30))
	l.arm(now)
}

// arm sets the one timer of the lease to what is due first. The caller holds mu.
func (l *Lease) arm(now time.Time) {
	next := l.deadline
	if !l.client.cfg.NoRenewal && l.renewals < mostRenewals && l.renewAt.Before(next) {
		next = l.renewAt
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timer = l.client.clock.AfterFunc(next.Sub(now), l.tick)
}

// tick does what is due: end the lease or renew it.
func (l *Lease) tick() {
	if l.client.enter() != nil {
		return
	}
	defer l.client.tasks.Done()
	l.expire()
	l.mu.Lock()
	now := l.client.clock.Now()
	if l.life.Err() != nil || now.Before(l.renewAt) || l.renewals == mostRenewals {
		l.mu.Unlock()
		return
	}
	l.renewals++
	l.schedule(now) // the next one, should this one hang or fail; the deadline otherwise
	l.mu.Unlock()

	_ = l.renew(l.life, l.client.rdb) // the next one, or the deadline, answers for it

	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewals--
	if l.life.Err() == nil {
		l.arm(l.client.clock.Now())
	}
}

// renew asks Redis once and draws the conclusion. An answer that comes after Unlock changes nothing: the script
// compares the token, so nothing extends a lock that was released.
func (l *Lease) renew(ctx context.Context, rdb redis.Scripter) error {
	sent := l.client.clock.Now()
	_, ok, err := l.redis.Via(rdb).Renew(ctx, l.Token(), l.ttl, l.fence)
	switch {
	case err != nil:
		l.failed(err)
	case !ok:
		err = lost(ErrTaken)
		l.lose(ErrTaken)
	default:
		l.extended(sent)
	}
	if l.life.Err() == nil || ok {
		call(l.client.trace.Renewed, RenewedInfo{Event: l.event(), Deadline: l.Deadline(), Err: err})
	}
	return err
}

func (l *Lease) failed(err error) {
	l.mu.Lock()
	over := l.life.Err() != nil
	l.failure = err
	l.mu.Unlock()
	if over {
		return // nobody needs it any more
	}
	l.client.log.Warn("renewal failed; tried again until the lease ends", "lock", l.name, "token", l.Token(), "err", err)
}

// extended believes in the lease for a TTL from when the renewal was sent.
func (l *Lease) extended(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := believed(sent, l.ttl, l.ttl)
	if l.life.Err() != nil || !until.After(l.deadline) {
		return
	}
	l.deadline, l.failure = until, nil
	l.schedule(l.client.clock.Now())
}

// Renew extends the lease to its TTL from now, for example before a step that matters. nil says that the lock is held
// until the new Deadline. ErrLost and ErrUnlocked say that it is not held. Any other error says that Redis could not
// be asked; the lease then lasts until its Deadline as before. ctx bounds it, and so does the lease.
func (l *Lease) Renew(ctx context.Context) error {
	return l.wrap("renew", l.renewNow(ctx))
}

func (l *Lease) renewNow(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if err := l.client.enter(); err != nil {
		return err
	}
	defer l.client.tasks.Done()
	left := l.Deadline().Sub(l.client.clock.Now())
	r := await(ctx, l.client, left, func(ctx context.Context, rdb redis.Scripter) (struct{}, error) {
		return struct{}{}, l.renew(ctx, rdb)
	}, func() {})
	if cause := l.Err(); cause != nil {
		return cause
	}
	return r.err
}
