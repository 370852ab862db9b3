package judge

import (
	"errors"
	"fmt"
)

// Verdict is what a history amounts to.
type Verdict struct {
	Grants      int
	ByClient    map[string]int // grants
	ByWeight    map[int]int    // grants
	Peak        int            // the most that was held at once: weights
	Together    int            // and how many held at once, at most
	Violations  int            // waiters that were overtaken
	Overlaps    int            // holdings that began while too much was held for them
	Regressions int            // fences that did not grow
	Lost        int            // leases that ended without their holder's doing, crashes not counted
	HandOff     Spread         // from the call of Unlock that made room for a waiter until its Lock returned
	Wait        Spread         // from a call of Lock until it returned
	Crashes     []Crash        // in order
}

// Judge weighs the history of a lock of that capacity. Its events may be in any order; those of one acquisition share an
// ID.
func Judge(events []Event, capacity int) Verdict {
	h := gather(events, capacity)
	v := Verdict{
		Grants: len(h.grants), ByClient: map[string]int{}, ByWeight: map[int]int{}, Lost: h.lost,
		Violations: h.violations(), Overlaps: h.overlaps(), Regressions: h.regressions(),
		HandOff: spread(h.handOffs()), Wait: spread(h.waits()), Crashes: h.crashes(),
	}
	for _, a := range h.grants {
		v.ByClient[a.client]++
		v.ByWeight[a.weight]++
		v.Peak = max(v.Peak, a.used)
		v.Together = max(v.Together, a.beside)
	}
	return v
}

// Err returns nil if the lock did what it promises, and did it at least once.
func (v Verdict) Err() error {
	if v.Grants == 0 {
		return errors.New("the lock was never granted")
	}
	if v.Violations+v.Overlaps+v.Regressions > 0 {
		return fmt.Errorf("the lock broke its promise: %d order violations, %d holdings too many, %d fences that did not grow",
			v.Violations, v.Overlaps, v.Regressions)
	}
	return nil
}
