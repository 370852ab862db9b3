package judge

import (
	"errors"
	"fmt"
)

// Verdict is what a history amounts to.
type Verdict struct {
	Grants      int
	ByClient    map[string]int // grants
	Violations  int            // waiters that were overtaken
	Overlaps    int            // holdings that began during another
	Regressions int            // fences that did not grow
	Lost        int            // leases that ended without their holder's doing, crashes not counted
	HandOff     Spread         // from a call of Unlock until the next waiter's Lock returned
	Wait        Spread         // from a call of Lock until it returned
	Crashes     []Crash        // in order
}

// Judge weighs a history. Its events may be in any order; those of one acquisition share an ID.
func Judge(events []Event) Verdict {
	h := gather(events)
	v := Verdict{
		Grants: len(h.grants), ByClient: map[string]int{}, Lost: h.lost,
		Violations: h.violations(), Overlaps: overlaps(h.grants), Regressions: regressions(h.grants),
		HandOff: spread(h.handOffs()), Wait: spread(h.waits()), Crashes: h.crashes(),
	}
	for _, a := range h.grants {
		v.ByClient[a.client]++
	}
	return v
}

// Err returns nil if the lock did what it promises, and did it at least once.
func (v Verdict) Err() error {
	if v.Grants == 0 {
		return errors.New("the lock was never granted")
	}
	if v.Violations+v.Overlaps+v.Regressions > 0 {
		return fmt.Errorf("the lock broke its promise: %d order violations, %d overlaps, %d fences that did not grow",
			v.Violations, v.Overlaps, v.Regressions)
	}
	return nil
}
