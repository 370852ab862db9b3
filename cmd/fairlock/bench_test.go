package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
)

// measured is a result as a script reads it.
type measured struct {
	Kind                                 string
	Permits, Contenders, Clients, Rounds int
	Interrupted                          bool
	Workloads                            []struct {
		Workload        string
		Fairlock, Floor struct {
			Ops       int
			Seconds   float64
			PerSecond float64 `json:"per_second"`
			P50us     float64 `json:"p50_us"`
			P90us     float64 `json:"p90_us"`
			P99us     float64 `json:"p99_us"`
			MaxUs     float64 `json:"max_us"`
		}
		Ratio struct{ All, Low, High float64 }
	}
}

func readResult(t *testing.T, out string) measured {
	t.Helper()
	var m measured
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&m), out)
	return m
}

func TestBenchMeasuresEveryKind(t *testing.T) {
	for kind, permits := range map[string]int{"mutex": 0, "semaphore": 3, "rw": 0} {
		t.Run(kind, func(t *testing.T) {
			s := redistest.Start(t)
			args := []string{"bench", "--kind", kind, "--contenders", "8", "--clients", "2", "--duration", "600ms"}
			if permits > 0 {
				args = append(args, "--permits", "3")
			}
			r := call(t, serverURL(s), append(args, "--json")...)
			require.Zero(t, r.code, r.errs)
			require.Empty(t, r.errs)
			m := readResult(t, r.out)
			assert.Equal(t, []any{kind, permits, 8, 2, 5, false}, []any{m.Kind, m.Permits, m.Contenders, m.Clients, m.Rounds, m.Interrupted})
			require.Len(t, m.Workloads, 3)
			for i, name := range []string{"pairs-in-turn", "pairs-at-once", "handoffs"} {
				w := m.Workloads[i]
				assert.Equal(t, name, w.Workload)
				assert.Positive(t, w.Fairlock.Ops)
				assert.Positive(t, w.Floor.Ops)
				assert.Positive(t, w.Floor.MaxUs)
				assert.Positive(t, w.Ratio.All)
			}
			assert.Zero(t, s.Client().DBSize(t.Context()).Val(), "nothing is left")

			r = call(t, serverURL(s), args...)
			require.Zero(t, r.code, r.errs)
			assert.Contains(t, r.out, "hand-offs of one lock among 8")
			assert.Contains(t, r.out, "of the floor (")
		})
	}
}

// A user with the least rights may measure.
func TestBenchNeedsNoMoreRightsThanLocks(t *testing.T) {
	s := redistest.Start(t)
	rules := strings.Join(strings.Fields(examine(t, 0, serverURL(s)).ACL)[6:], " ")
	r := call(t, acl(t, s, rules), "bench", "--contenders", "2", "--clients", "2", "--duration", "300ms")
	assert.Zero(t, r.code, r.errs)
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

// meanwhile runs bench, and does something to it when its time has come.
func meanwhile(t *testing.T, s *redistest.Server, duration string, when func() bool, do func(*running)) result {
	t.Helper()
	r := begin(t, command(t, serverURL(s), "bench", "--json", "--contenders", "8", "--clients", "2", "--duration", duration))
	require.Eventually(t, when, soon, time.Millisecond)
	do(r)
	return r.wait()
}

// measuring reports whether what happens on the server counts: warming up ends with hand-offs and messages, and the first
// round begins with the floor's keys.
func measuring(t *testing.T, observer *redis.Client) func() bool {
	t.Helper()
	return func() bool {
		return calls(t, observer, "publish") > 0 && len(observer.Keys(t.Context(), "*:floor").Val()) > 0
	}
}

func interrupt(r *running) { r.signal(os.Interrupt) }

func TestBenchInterruptedPrintsWhatItHas(t *testing.T) {
	s := redistest.Start(t)
	observer := s.Client()
	r := meanwhile(t, s, "60s", measuring(t, observer), interrupt)
	assert.Zero(t, r.code)
	assert.Empty(t, r.errs)
	m := readResult(t, r.out)
	assert.True(t, m.Interrupted)
	assert.Zero(t, m.Rounds)
	assert.Positive(t, m.Workloads[0].Floor.Ops)
	assert.Zero(t, observer.DBSize(t.Context()).Val(), "nothing is left")
}

func TestBenchInterruptedBeforeItHasAnythingExitsWith130(t *testing.T) {
	s := redistest.Start(t)
	observer := s.Client()
	r := meanwhile(t, s, "1h", func() bool { return calls(t, observer, "evalsha") > 10 }, interrupt)
	assert.Equal(t, result{code: exitInterrupted}, r)
	assert.Zero(t, observer.DBSize(t.Context()).Val(), "nothing is left")
}

func TestBenchOnAServerThatDiesPrintsWhatItHas(t *testing.T) {
	s := redistest.Start(t)
	observer, begun := s.Client(), false
	counting := measuring(t, observer)
	r := meanwhile(t, s, "12s", func() bool { // the floor's first turn is over
		begun = begun || counting()
		return begun && len(observer.Keys(t.Context(), "*:lock").Val()) > 0
	}, func(*running) { s.Kill() })
	assert.Equal(t, exitUnreachable, r.code)
	assert.Regexp(t, `^fairlock: [^\n]+\n$`, r.errs)
	m := readResult(t, r.out)
	assert.False(t, m.Interrupted)
	assert.Positive(t, m.Workloads[0].Floor.Ops)
}

func TestBenchCalledWrongly(t *testing.T) {
	s := redistest.Start(t)
	for why, args := range map[string][]string{
		"extra":             {"extra"},
		"kind":              {"--kind", "spinlock"},
		"permits is 0":      {"--kind", "semaphore", "--permits", "0"},
		"--kind semaphore":  {"--permits", "5"},
		"contenders is 0":   {"--contenders", "0"},
		"clients is 0":      {"--clients", "0"},
		"at least 100ms":    {"--duration", "99ms"},
		"invalid argument":  {"--duration", "ten"},
		"invalid Namespace": {"--namespace", "a{b"},
	} {
		refused(t, call(t, serverURL(s), append([]string{"bench"}, args...)...), exitUsage, why)
	}
	refused(t, call(t, "unix:///nowhere", "bench"), exitUnreachable, "/nowhere")
}
