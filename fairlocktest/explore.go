package fairlocktest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
)

// ExploreConfig has the settings of Explore. The zero value is ready to use.
type ExploreConfig struct {
	// Seeds is how many runs there are, with the seeds 1 to Seeds. Default 100. The environment variable
	// FAIRLOCKTEST_SEEDS overrides it: a nightly run explores more.
	Seeds int

	// Faults are the kinds of fault to draw from. Default AllFaults. If nothing checks fences, use
	// AllFaults &^ OverlapFaults.
	Faults Faults

	// Duration is how long faults are injected, in simulated time. Default 1 min.
	Duration time.Duration

	// MaxOutage is how long a fault lasts at most, and how far Redis's clock steps. Default 30 s, which is three times
	// the default TTL. At least 100 ms.
	MaxOutage time.Duration

	// AllowNoLoss says that no lease of World.Work need be lost. Otherwise the test fails if all seeds have passed and no
	// lease was lost while it was held. Such a test would pass whatever the code does with a lost lease.
	AllowNoLoss bool
}

// seedsVariable is the environment variable that overrides ExploreConfig.Seeds.
const seedsVariable = "FAIRLOCKTEST_SEEDS"

func (cfg ExploreConfig) withDefaults() ExploreConfig {
	if cfg.Seeds <= 0 {
		cfg.Seeds = 100
	}
	if cfg.Faults &= AllFaults; cfg.Faults == 0 {
		cfg.Faults = AllFaults
	}
	if cfg.Duration <= 0 {
		cfg.Duration = time.Minute
	}
	if cfg.MaxOutage <= 0 {
		cfg.MaxOutage = 30 * time.Second
	}
	cfg.MaxOutage = max(cfg.MaxOutage, 100*time.Millisecond)
	return cfg
}

// Explore runs f once for each seed, in a subtest and a testing/synctest bubble of its own. Faults are injected while f
// runs. The function f makes its clients with World.Client, lets its code work, calls World.Heal, and asserts what must
// hold after any faults. Explore stops at the first seed whose run fails. It logs the faults and the leases of that
// run, and how to repeat it:
//
//	--- FAIL: TestDeposits/seed=4
//	    fairlocktest: seed 4 failed. The faults and the leases, in simulated time:
//	             8.002s      client-2 is granted mutex account:42, fence 1764000008002113
//	             9.377s  mutex account:42: it is released by force
//	             9.378s      client-1 is granted mutex account:42, fence 1764000009377420
//	            10.003s      client-2 learns that it has lost mutex account:42, fence 1764000008002113
//	            41.020s  all faults have ended
//	    To repeat it, in the directory of the test: go test -count=1 -run '^TestDeposits$/^seed=4$'
//
// The last line, which go test -v shows as well when all seeds have passed, says what they have tried:
//
//	100 seeds: 2,140 grants, 96 leases lost while held, 41 times two clients believed to hold one lock, 17 crashes
//
// The seed determines which kinds of fault a run has, how often each comes, when, on which client, and for how long.
// The same seed, configuration and clients give the same faults at the same times. What happens in between may differ:
// Go does not define which of two ready goroutines runs first. If a failure does not come back, repeat it with
// -count=20.
//
// f runs in a bubble, so its code must not use real connections or processes. It may sleep, which takes no real time. f
// must return within ten times Duration. Then t.Context ends and the clients are closed, and the goroutines that f has
// started must end within a further Duration. Do not call t.Run or t.Parallel in f. A panic in another goroutine than
// those of World.Work ends the process before the seed is logged. With go test -v, it is the seed of the last subtest
// that began.
//
// In a bubble, no time passes while a goroutine loops, or waits for a real connection. If a seed still runs shortly
// before the timeout of go test, by the system's clock, its seed and its story are written to stderr.
func Explore(t *testing.T, cfg ExploreConfig, f func(t *testing.T, w *World)) {
	t.Helper()
	if f == nil {
		t.Fatalf("fairlocktest: f must not be nil")
	}
	cfg = cfg.withDefaults()
	seeds := cfg.Seeds
	if s := os.Getenv(seedsVariable); s != "" {
		var err error
		if seeds, err = strconv.Atoi(s); err != nil || seeds < 1 {
			t.Fatalf("fairlocktest: %s must be a number from 1, not %q", seedsVariable, s)
		}
	}
	var tried tally
	defer func() {
		t.Helper()
		t.Log(tried.String())
	}()
	for seed := range seeds {
		if !explore(t, cfg, seed+1, &tried, f) {
			return
		}
	}
	if tried.seeds >= cfg.Seeds && !cfg.AllowNoLoss { // else -run or the environment has chosen some of them
		tried.judge(t)
	}
}

// explore runs f with one seed and reports whether it passed.
func explore(t *testing.T, cfg ExploreConfig, seed int, tried *tally, f func(t *testing.T, w *World)) bool {
	t.Helper()
	return t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
		var world atomic.Pointer[World]
		passed := false
		defer func() { // also after FailNow
			if w := world.Load(); w != nil && !passed && !t.Skipped() {
				t.Log(w.failed())
			}
		}()
		stop := watch(t, &world)
		defer stop()
		tried.begin()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, cfg, seed, tried)
			world.Store(w)
			defer w.close()
			f(t, w)
		})
		passed = true
	})
}

// watch tells the story of a run that does not end, shortly before go test's timeout ends the process. It goes by the
// system's clock, because in a bubble no time passes while a goroutine loops or waits for a real connection. The caller
// calls stop.
func watch(t *testing.T, world *atomic.Pointer[World]) (stop func()) {
	t.Helper()
	end, limited := t.Deadline()
	if !limited {
		return func() {}
	}
	system := clock.System{}
	left := end.Sub(system.Now())
	timer := system.AfterFunc(left-min(left/10, watchMargin), func() {
		if w := world.Load(); w != nil {
			fmt.Fprintln(os.Stderr, w.story(
				"still runs, shortly before go test's timeout: does it loop, or use a real connection? "+
					"In a bubble, no time passes meanwhile"))
		}
	})
	return func() { timer.Stop() }
}

// watchMargin is how long before go test's timeout a run that does not end is reported, at most.
const watchMargin = 10 * time.Second

// command returns the command that runs one test with one seed.
func command(name string, seed, seeds int) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	c := "go test -count=1 -run '" + strings.Join(parts, "/") + "'"
	if seed > seeds {
		c = fmt.Sprintf("%s=%d %s", seedsVariable, seed, c)
	}
	return c
}
