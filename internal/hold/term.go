package hold

import "time"

// term says until when a lease is trusted, and when it is renewed. It is a value: its methods return another one.
type term struct {
	ttl      time.Duration // which a renewal asks for, if no minimum hold lasts for longer
	deadline time.Time     // the lease is trusted until then
	ends     time.Time     // in Redis, not before
	renewAt  time.Time     // the next renewal is due then
}

// safetyMargin is the part of TTL that is not relied on: for clocks that run at a different speed, for Redis's rounding
// to milliseconds, and for the time between the end of the lease and its holder's noticing.
func safetyMargin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// given sets for how long the lease is trusted. Redis gave it for d, after a request was sent then.
func (t term) given(sent time.Time, d time.Duration) term {
	t.ends = sent.Add(d)
	t.deadline = t.ends.Add(-safetyMargin(max(d, t.ttl)))
	return t
}

// planned sets the next renewal: when a third of what is left has passed, or of TTL if a minimum hold lasts for longer,
// so that two renewals may fail; and not sooner than a thirtieth of TTL, or a third of a second, from now.
func (t term) planned(now time.Time) term {
	t.renewAt = now.Add(max(min(t.deadline.Sub(now), t.ttl)/3, min(t.ttl/30, time.Second/3)))
	return t
}

// MaxFirst is how long after a handoff the first renewal is due at the latest.
const MaxFirst = 500 * time.Millisecond

// afterHandoff sets the first renewal of a lease that began with a handoff. What is left of it may be much less than
// TTL, and an outage that a lease of TTL survives would end it. Work that takes less than MaxFirst costs no renewal.
func (t term) afterHandoff(now time.Time) term {
	t.renewAt = now.Add(min(MaxFirst, t.deadline.Sub(now)/3))
	return t
}

// action is what is due of a lease.
type action int

const (
	nothing action = iota
	renewal
	expiry
)

// due returns what is due now. If that is nothing, at is when something will be.
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
