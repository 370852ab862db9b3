package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlock/fairlock-go/chaos/history"
)

// most is how much of the processor's time a long history may take, of all cores together: so nothing depends on what
// else the machine does.
const most = 10 * time.Second

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var use unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// longHistory is what 64 workers did with so many locks, 40,000 acquisitions in all, most of which are four operations
// or more.
func longHistory(locks int) ([]history.Event, history.Run) {
	return simulate(simConfig{
		seed: 1, locks: locks, processes: 8, workers: 8, calls: 40000, unknown: 0.05, astray: 0.001, impatient: 0.02,
		kills: 1, stops: 2, cuts: 2,
	})
}

func TestALongHistoryIsJudgedWithinTenSeconds(t *testing.T) {
	for name, locks := range map[string]int{"eight locks": 8, "one lock": 1} {
		t.Run(name, func(t *testing.T) {
			events, run := longHistory(locks)
			from, spent := time.Now(), processorTime(t)
			report := history.Check(events, run)
			took, spent := time.Since(from), processorTime(t)-spent
			require.True(t, report.Assert(t))
			assert.Less(t, spent, most)
			t.Logf("%d events judged in %v, %v of the processor's time", len(events), took, spent)
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, locks := range map[string]int{"eight": 8, "one": 1} {
		events, run := longHistory(locks)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				history.Check(events, run)
			}
		})
	}
}
