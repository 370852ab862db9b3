package judge

import (
	"cmp"
	"slices"
	"time"
)

// Spread is how long something took.
type Spread struct {
	N        int
	P50, P99 time.Duration // nearest rank; 0 if N is 0
}

func spread(all []time.Duration) Spread {
	slices.Sort(all)
	return Spread{N: len(all), P50: rank(all, 50), P99: rank(all, 99)}
}

func rank(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// handOffs are the times from the call of Unlock that made room for somebody until that one's Lock returned, if it was in
// the queue by then and no dead were in the way: so it is the lock that is measured, not the demand for it. What the
// dead are granted, or still hold, nobody sees; they hold nothing for certain once everything is held by others.
func (h history) handOffs() []time.Duration {
	var all []time.Duration
	passed := false    // dead waiters
	clear := int64(-1) // when nobody dead held anything
	for i, a := range h.grants {
		passed = passed || i > 0 && h.buried(h.grants[i-1], a)
		haunted := passed || slices.ContainsFunc(h.fallen, func(at int64) bool { return clear <= at && at < a.granted })
		if !haunted && a.giver != nil && a.giver.end == a.giver.unlocking && a.queued < a.due && a.due <= a.granted {
			all = append(all, time.Duration(a.granted-a.due))
		}
		if a.used >= h.capacity {
			passed, clear = false, a.granted
		}
	}
	return all
}

// buried reports whether a waiter that died stood between two that were served.
func (h history) buried(a, b *acquisition) bool {
	i, _ := slices.BinarySearchFunc(h.dead, a.place(), func(d *acquisition, place uint64) int { return cmp.Compare(d.ticket, place) })
	return i < len(h.dead) && h.dead[i].ticket <= b.place()
}

// waits are the times that Lock took.
func (h history) waits() []time.Duration {
	all := make([]time.Duration, len(h.grants))
	for i, a := range h.grants {
		all[i] = time.Duration(a.granted - a.asked)
	}
	return all
}
