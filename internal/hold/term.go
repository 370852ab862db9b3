package hold

import "time"

// term says until when a lease is trusted, and when it is renewed. It is immutable: its methods return another one.
type term struct {
	ttl      time.Duration // requested by a renewal, unless a minimum hold lasts longer
	deadline time.Time     // the lease is trusted until then
	ends     time.Time     // in Redis, not before
	renewAt  time.Time     // the next renewal is due then
}

// safetyMargin is the part of TTL that is not relied on. It covers clocks of different speeds, Redis's rounding to
// milliseconds, and the time until a holder notices the end of its lease.
func safetyMargin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// given sets until when the lease is trusted. Redis gave it for d, after a request was sent at that time.
func (t term) given(sent time.Time, d time.Duration) term {
	t.ends = sent.Add(d)
	t.deadline = t.ends.Add(-safetyMargin(max(d, t.ttl)))
	return t
}

// planned sets the next renewal after a third of the remaining time, so that two renewals may fail. If a minimum hold
// lasts longer than TTL, it is a third of TTL. It is not sooner than a thirtieth of TTL, or a third of a second, from
// now.
func (t term) planned(now time.Time) term {
	t.renewAt = now.Add(max(min(t.deadline.Sub(now), t.ttl)/3, min(t.ttl/30, time.Second/3)))
	return t
}

// MaxFirst is the longest time from a handoff to the first renewal.
const MaxFirst = 500 * time.Millisecond

// afterHandoff sets the first renewal of a lease that began with a handoff. The remaining time may be much less than
// TTL, and a short outage would end the lease. Work that takes less than MaxFirst costs no renewal.
func (t term) afterHandoff(now time.Time) term {
	t.renewAt = now.Add(min(MaxFirst, t.deadline.Sub(now)/3))
	return t
}

// action is what is due for a lease.
type action int

const (
	nothing action = iota
	renewal
	expiry
)

// due returns the action that is due now. If there is none, at is when the next one is due.
func (t term) due(now time.Time) (what action, at time.Time) {
	switch {
	case !now.Before(t.deadline):
		return expiry, now
	case !now.Before(t.renewAt):
		return renewal, now
	case t.renewAt.Before(t.deadline):
		return nothing, t.renewAt
	default:
		return nothing, t.deadline
	}
}
