package judge

import (
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

// handOffs are the times from a holder's call of Unlock until the Lock of the next one returned, if that one was in
// the queue by then and nobody dead stood between them: so it is the lock that is measured, not the demand for it.
func (h history) handOffs() []time.Duration {
	var all []time.Duration
	for i := range len(h.grants) - 1 {
		from, to := h.grants[i], h.grants[i+1]
		if from.end == from.unlocking && to.queued < from.unlocking && !h.buried(from, to, "") {
			all = append(all, time.Duration(to.granted-from.unlocking))
		}
	}
	return all
}

// waits are the times that Lock took.
func (h history) waits() []time.Duration {
	all := make([]time.Duration, len(h.grants))
	for i, a := range h.grants {
		all[i] = time.Duration(a.granted - a.asked)
	}
	return all
}
