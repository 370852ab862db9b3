package fairlocktest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// SetAdvanceTimeout sets how long Clock.Advance waits for a function, for one test.
func SetAdvanceTimeout(t *testing.T, d time.Duration) {
	t.Helper()
	was := advanceTimeout
	advanceTimeout = d
	t.Cleanup(func() { advanceTimeout = was })
}

// Inject injects a fault. Steps and delays are 1 s.
func Inject(w *World, kind Faults, lasts time.Duration, target int) {
	w.begin(fault{kind: kind, target: target, lasts: lasts, step: time.Second,
		delays: [2]time.Duration{time.Second, time.Second}})
}

// Faults returns the faults that have occurred, and not what has become of leases.
func (w *World) Faults() []string {
	w.noting.Lock()
	defer w.noting.Unlock()
	return slices.DeleteFunc(slices.Clone(w.history), func(note string) bool { return strings.Contains(note, "s      ") })
}

// Schedule returns the kinds of fault of a seed, and whether Redis's clock steps back.
func Schedule(seed int, cfg ExploreConfig) (kinds Faults, back bool) {
	for _, f := range draw(cfg.withDefaults(), seed) {
		kinds |= f.kind
		back = back || f.kind == ClockStep && f.step < 0
	}
	return kinds, back
}

// Tried returns the last line of the Explore, as of now.
func (w *World) Tried() string { return w.tally.String() }
