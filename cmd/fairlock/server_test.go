//go:build unix

package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/doctor"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// decode reads JSON that has these fields and no others.
func decode(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(v), text)
}

// examined is a report of fairlock doctor --json.
type examined struct {
	Namespace string
	ACL       string
	Checks    []struct {
		Check, Server, Result, Found, Advice string
		Values                               map[string]any
	}
	Problems, Warnings, Unchecked int
}

// examine calls fairlock doctor and expects an exit code.
func (f fixture) examine(code int, args ...string) (e examined) {
	f.t.Helper()
	r := f.call(append([]string{"doctor", "--json"}, args...)...)
	require.Equal(f.t, code, r.code, "%s%s", r.out, r.errs)
	decode(f.t, r.out, &e)
	return e
}

// found is what a check has found.
func (e examined) found(check string) string {
	for _, c := range e.Checks {
		if c.Check == check {
			return c.Found
		}
	}
	return ""
}

// with are the checks with that result.
func (e examined) with(result doctor.Result) (checks []string) {
	for _, c := range e.Checks {
		if c.Result == string(result) {
			checks = append(checks, c.Check)
		}
	}
	return checks
}

func TestDoctor_ExitCodes(t *testing.T) {
	f := newFixture(t)
	t.Run("in order", func(t *testing.T) {
		// Whatever a busy machine makes slow is not in the slow log.
		s := redistest.Start(t, "--appendonly", "yes", "--slowlog-log-slower-than", "-1")
		f := f.in(t).at("unix://" + s.Addr())
		e := f.examine(0, "--namespace", "billing")
		assert.Equal(t, doctor.Checks(), e.with(doctor.OK))
		assert.Equal(t, []any{"billing", doctor.ACLLine("fairlock", "billing"), s.Addr()}, []any{e.Namespace, e.ACL, e.Checks[0].Server})
		assert.Zero(t, s.Client().DBSize(t.Context()).Val(), "nothing is left")
		shown := f.done("doctor")
		assert.Contains(t, shown, "\n0 problems, 0 warnings, 0 unchecked\n")
		assert.Contains(t, shown, "\n"+doctor.ACLLine("fairlock", f.namespace)+"\n")
		assert.NotContains(t, shown, "\x1b")
	})
	t.Run("a problem", func(t *testing.T) {
		s := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
		e := f.in(t).at("unix://" + s.Addr()).examine(exitFailure)
		assert.Equal(t, []string{"eviction"}, e.with(doctor.Problem))
		assert.Equal(t, 1, e.Problems)
		assert.Contains(t, e.found("eviction"), "allkeys-lru")
	})
	t.Run("out of reach", func(t *testing.T) {
		f := f.in(t).at("unix:///no/such/socket")
		e := f.examine(exitUnreachable)
		assert.Equal(t, []string{"reachable"}, e.with(doctor.Problem))
		r := f.call("doctor")
		assert.Contains(t, r.out, "problem    reachable")
		assert.Regexp(t, `^fairlock: [^\n]+\n$`, r.errs)
	})
}

// measured is a result of fairlock bench --json.
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

// A user with the least rights may measure.
func TestBench_Measures(t *testing.T) {
	f := newFixture(t)
	f = f.at(user(t, server, f.namespace, strings.Join(strings.Fields(doctor.ACLLine("x", f.namespace))[6:], " ")))
	var m measured
	decode(t, f.done("bench", "--kind", "semaphore", "--permits", "3", "--contenders", "4", "--clients", "2", "--duration", "300ms", "--json"), &m)
	assert.Equal(t, []any{"semaphore", 3, 4, 2, 5, false}, []any{m.Kind, m.Permits, m.Contenders, m.Clients, m.Rounds, m.Interrupted})
	require.Len(t, m.Workloads, 3)
	for i, name := range []string{"pairs-in-turn", "pairs-at-once", "handoffs"} {
		assert.Equal(t, name, m.Workloads[i].Workload)
	}
	assert.Positive(t, m.Workloads[0].Fairlock.Ops)
	assert.Empty(t, f.redis().Keys(t.Context(), f.namespace+":*").Val(), "nothing is left")
	assert.Contains(t, f.done("bench", "--contenders", "2", "--clients", "2", "--duration", "100ms"), "hand-offs of one lock among 2")
}

func TestBench_Interrupted(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client()
	f := newFixture(t).at("unix://" + s.Addr())
	keys := func(suffix string) bool { return len(rdb.Keys(t.Context(), f.namespace+":*"+suffix).Val()) > 0 }
	r := f.start(f.command("bench", "--contenders", "2", "--clients", "2", "--duration", "1h"))
	f.until("it warms up", func() bool { return keys(":lock") })
	r.signal(os.Interrupt)
	require.Equal(t, result{code: exitInterrupted}, r.wait(), "there is nothing to print")
	r = f.start(f.command("bench", "--json", "--contenders", "2", "--clients", "2", "--duration", "20s"))
	f.until("it has warmed up", func() bool { return strings.Contains(rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_publish:") })
	f.until("round 1 measures the floor", func() bool { return keys(":floor") })
	r.signal(os.Interrupt)
	got := r.wait()
	require.Equal(t, result{out: got.out}, got)
	var m measured
	decode(t, got.out, &m)
	assert.True(t, m.Interrupted)
	assert.Positive(t, m.Workloads[0].Floor.Ops)
	assert.False(t, keys(""), "nothing is left")
}

func TestDemo_ExitsWith0(t *testing.T) {
	f := newFixture(t).at("")
	f.env = slices.DeleteFunc(f.env, func(v string) bool { return strings.HasPrefix(v, envNamespace) })
	shown := f.done("demo", "--kind", "rw", "--clients", "3", "--workers", "2", "--duration", "300ms", "--ttl", "500ms", "--patience", "500ms")
	require.Contains(t, shown, "ok  every writer alone, everybody in order")
}
