package sim

import (
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// The rules for Lease.Wanted: it closes only if somebody waits or has waited while the lock was held. If somebody waits, it
// closes within a third of TTL, if not at once.

// noteWaiters notes since when somebody waits, and who is the first. The caller holds mu.
func (o *observer) noteWaiters(l *observed, next contents) {
	now := o.world.now()
	if len(next.Waiters) == 0 {
		l.waiting = 0
		return
	}
	l.waited = now
	if l.waiting == 0 {
		l.waiting = now
	}
	if len(l.Waiters) == 0 || l.Waiters[0].Token != next.Waiters[0].Token {
		l.headSince = now
	}
}

// checkWanted checks what a lease with that TTL tells its holder, who has had it since then.
func (p *process) checkWanted(c *call, lease *fairlock.Lease, length time.Duration, since int64) {
	if lease.Wanted() == nil || lease.Err() != nil {
		return
	}
	o, now := p.world.observer, p.world.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.locks[slices.IndexFunc(o.locks, func(l *observed) bool { return l.name == c.lock })]
	granted := o.grants[original(c.token)]
	select {
	case <-lease.Wanted():
		if l.waited < granted { // a waiter of before was there when the lock was granted, too
			c.fail("a lease is wanted that was granted at %v, and nobody has waited since %v", time.Duration(granted), time.Duration(l.waited))
		}
	default:
		unknown := time.Duration(now - max(l.waiting, since))
		if l.waiting > 0 && unknown > length/3+atOnce && !p.noRenewal {
			o.suspect(lease.Token().Text(), now, "somebody waits, and its lease does not know that after "+unknown.String(), 0)
		}
	}
}
