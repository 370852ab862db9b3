package promfairlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// bubble runs a test in simulated time, on a server in memory.
func bubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, fairlocktest.NewServer(t)) })
}

// gather returns what a scrape of the collectors has. It fails the test if the scrape does, or if promlint complains.
func gather(t *testing.T, collectors ...prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, registry.Register(c))
	}
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := registry.Gather()
	require.NoError(t, err)
	return families
}

// values returns the values of all series that are not 0, by name and labels; of a histogram its count. The name is
// without "fairlock_", a label is its value alone, and the namespace, which is the default one, is left out.
func values(t *testing.T, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, f := range gather(t, collectors...) {
		for _, m := range f.GetMetric() {
			name, namespace := strings.TrimPrefix(f.GetName(), "fairlock_"), ""
			for _, l := range m.GetLabel() { // in order of their names
				switch {
				case l.GetName() == "fairlock_namespace":
					namespace = l.GetValue()
				case l.GetName() == "fairlock_handoff":
					name += map[string]string{"false": "", "true": " handoff"}[l.GetValue()]
				case l.GetValue() != "":
					name += " " + l.GetValue()
				}
			}
			require.Equal(t, "fairlock", namespace, name) // so that collectors of two namespaces can be registered
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				found[name] = value
			}
		}
	}
	return found
}

// A second one that is equal is refused as client_golang's metrics are, and the first can be used instead.
func TestMetrics_AlreadyRegistered(t *testing.T) {
	registry, first := prometheus.NewRegistry(), promfairlock.New(promfairlock.Config{})
	require.NoError(t, registry.Register(first))
	var already prometheus.AlreadyRegisteredError
	require.ErrorAs(t, registry.Register(promfairlock.New(promfairlock.Config{})), &already)
	assert.Same(t, first, already.ExistingCollector)
}

// Losses can be counted by their increase from the beginning: the series are there, at 0, once there is a lease.
func TestMetrics_LossesBeginAtZero(t *testing.T) {
	metrics := promfairlock.New(promfairlock.Config{})
	metrics.Trace().Granted(fairlock.GrantedInfo{})
	var types []string
	for _, f := range gather(t, metrics) {
		for _, m := range f.GetMetric() {
			if f.GetName() == "fairlock_lease_losses_total" {
				types = append(types, m.GetLabel()[0].GetValue())
			}
		}
	}
	assert.Equal(t, []string{"expired", "refused", "revoked", "unreachable"}, types)
}

// Each value has the exemplar of its caller's ctx, unless client_golang would panic for the values.
func TestMetrics_Exemplar(t *testing.T) {
	metrics := promfairlock.New(promfairlock.Config{Exemplar: func(ctx context.Context) prometheus.Labels {
		if id, ok := ctx.Value(traceID{}).(string); ok {
			return prometheus.Labels{"trace_id": id}
		}
		return nil
	}})
	id := strings.Repeat("é", prometheus.ExemplarMaxRunes-len("trace_id"))
	for _, caller := range []any{nil, "\xff", id + "é", id} {
		e := fairlock.Event{Ctx: context.WithValue(t.Context(), traceID{}, caller)}
		metrics.Trace().Granted(fairlock.GrantedInfo{Event: e})
		metrics.Trace().Renewed(fairlock.RenewedInfo{Event: e})
		metrics.Trace().Ended(fairlock.EndedInfo{Event: e, Err: fairlock.ErrLost})
		var found []string
		for _, f := range gather(t, metrics) {
			for _, m := range f.GetMetric() {
				all := []*dto.Exemplar{m.GetCounter().GetExemplar()}
				for _, b := range m.GetHistogram().GetBucket() {
					all = append(all, b.GetExemplar())
				}
				for _, e := range slices.DeleteFunc(all, func(e *dto.Exemplar) bool { return e == nil }) {
					found = append(found, fmt.Sprint(f.GetName(), " ", e.GetLabel()[0].GetValue()))
				}
			}
		}
		if caller != id {
			assert.Empty(t, found, caller)
			continue
		}
		assert.Equal(t, []string{
			"fairlock_hold_duration_seconds " + id, "fairlock_lease_losses_total " + id, "fairlock_lease_renewals_total " + id,
			"fairlock_wait_duration_seconds " + id,
		}, found)
	}
}

// What an uncontended lock gives is counted without memory of its own.
func TestMetrics_NoAllocation(t *testing.T) {
	trace := promfairlock.New(promfairlock.Config{Name: func(lock string) string { return lock }}).Trace()
	e := fairlock.Event{Ctx: t.Context(), Namespace: "fairlock", ID: fairlock.ID{Kind: "mutex", Name: "x"}}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		trace.Granted(fairlock.GrantedInfo{Event: e})
		trace.Renewed(fairlock.RenewedInfo{Event: e})
		trace.Ended(fairlock.EndedInfo{Event: e})
	}))
}

// Goroutines that meet new labels at once count in the same series.
func TestMetrics_NewLabelsAtOnce(t *testing.T) {
	metrics := promfairlock.New(promfairlock.Config{Name: func(lock string) string { return lock }})
	trace, want := metrics.Trace(), map[string]float64{}
	var workers sync.WaitGroup
	for i := range 8 {
		want[fmt.Sprint("leases mutex ", i)], want[fmt.Sprint("wait_duration_seconds mutex ", i)] = 8, 8
		workers.Go(func() {
			for j := range 8 {
				trace.Granted(fairlock.GrantedInfo{Event: fairlock.Event{
					Ctx: t.Context(), Namespace: "fairlock", ID: fairlock.ID{Kind: "mutex", Name: fmt.Sprint((i + j) % 8)},
				}})
			}
		})
	}
	workers.Wait()
	assert.Equal(t, want, values(t, metrics))
}
