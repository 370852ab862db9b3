// Package metrics tests what contrib/otel and contrib/prometheus have in common.
package metrics_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// family is a metric without its help text, and without series whose values are all 0: OpenTelemetry has none before the first
// value. Labels without a value are left out, as Prometheus does.
type family struct {
	kind   dto.MetricType
	series map[string]series // by labels
}

type series struct {
	value   float64 // of a histogram its sum
	count   uint64
	buckets string // bounds and counts
}

func families(t *testing.T, registry *prometheus.Registry) map[string]family {
	t.Helper()
	all, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]family{}
	for _, f := range all {
		if f.GetName() == "target_info" { // about the process
			continue
		}
		found[f.GetName()] = family{f.GetType(), map[string]series{}}
		for _, m := range f.GetMetric() {
			var labels, buckets []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			for _, b := range m.GetHistogram().GetBucket() {
				buckets = append(buckets, b.String())
			}
			s := series{
				m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum(),
				m.GetHistogram().GetSampleCount(), strings.Join(buckets, "\n"),
			}
			if s.value != 0 || s.count != 0 {
				found[f.GetName()].series[strings.Join(labels, " ")] = s
			}
		}
	}
	return found
}

// everything lets each kind of event happen, and returns while a lock is held and waited for.
func everything(t *testing.T, s *fairlocktest.Server, client *fairlocktest.Client) {
	t.Helper()
	ctx := t.Context()
	m := client.Mutex("account:1")
	nothing := func(context.Context) error { return nil }
	require.NoError(t, m.Do(ctx, func(context.Context) error {
		time.Sleep(fairlock.DefaultTTL) // renewals
		return nil
	}))
	held := s.Mutex("account:1").HoldAs("holder")
	require.ErrorIs(t, m.TryDo(ctx, nothing), fairlock.ErrBusy)
	require.ErrorIs(t, m.WithMaxWait(time.Second).Do(ctx, nothing), fairlock.ErrWaitTimeout)
	time.AfterFunc(time.Second, func() { assert.NoError(t, held.Unlock(ctx)) })
	require.NoError(t, m.Do(ctx, nothing)) // a handoff

	held = s.Mutex("account:1").HoldAs("holder")
	client.Link.DropNotifications()
	time.AfterFunc(time.Second, func() { assert.NoError(t, held.Unlock(ctx)) })
	require.NoError(t, m.Do(ctx, nothing))
	client.Link.Mend()

	lease, err := client.RWMutex("catalog").RLock(ctx)
	require.NoError(t, err)
	s.RWMutex("catalog").ForceRelease()
	require.ErrorIs(t, lease.Renew(ctx), fairlock.ErrTaken)
	lease, err = client.RWMutex("catalog").Lock(ctx)
	require.NoError(t, err)
	client.Link.Cut()
	<-lease.Done()
	client.Link.Mend()

	lease, err = client.Semaphore("gpu", 2).Acquire(ctx, 2)
	require.NoError(t, err)
	require.NoError(t, lease.Detach())

	_, err = m.Lock(ctx)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := m.Lock(ctx)
		assert.Error(t, err, "it waits until the test ends")
	}()
	synctest.Wait()
	t.Cleanup(func() { client.Close(); <-ended })
}

// run returns what both modules export of the same events.
func run(t *testing.T, name func(string) string, options ...otelprometheus.Option) (ours, otels map[string]family) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		metrics := promfairlock.New(promfairlock.Config{Name: name})
		require.NoError(t, registry.Register(metrics))

		theirs := prometheus.NewRegistry()
		exporter, err := otelprometheus.New(append(options, otelprometheus.WithRegisterer(theirs))...)
		require.NoError(t, err)
		trace, err := otelfairlock.New(otelfairlock.Config{
			MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)), Name: name,
		})
		require.NoError(t, err)

		s := fairlocktest.NewServer(t)
		everything(t, s, s.Client(fairlock.Config{Trace: fairlock.JoinTraces(metrics.Trace(), trace)}))
		ours, otels = families(t, registry), families(t, theirs)
	})
	return ours, otels
}

// The metrics of contrib/prometheus have the names, types, labels, buckets and values that OpenTelemetry's exporter makes of
// those of contrib/otel.
func TestNames_AreThoseOfOpenTelemetry(t *testing.T) {
	group := func(lock string) string {
		before, _, found := strings.Cut(lock, ":")
		if !found {
			return ""
		}
		return before
	}
	for name, config := range map[string]func(string) string{"without names": nil, "with names": group} {
		t.Run(name, func(t *testing.T) {
			ours, otels := run(t, config, otelprometheus.WithoutScopeInfo())
			require.Len(t, ours, 7)
			for name, f := range ours {
				assert.NotEmpty(t, f.series, name)
				assert.Equal(t, otels[name], f, name)
			}
			assert.Equal(t, slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(otels)))
		})
	}
}

// By default, the exporter adds the labels of the instrumentation scope, and no others.
func TestNames_OfTheScope(t *testing.T) {
	ours, otels := run(t, nil)
	scope := regexp.MustCompile(`otel_scope_\w+=\S+ ?`)
	for name, f := range ours {
		var labels []string
		for l := range otels[name].series {
			without := strings.TrimSpace(scope.ReplaceAllString(l, ""))
			assert.NotEqual(t, l, without)
			labels = append(labels, without)
		}
		assert.ElementsMatch(t, slices.Collect(maps.Keys(f.series)), labels, name)
	}
}

// Both in one registry make a scrape fail as a whole, once there was a lock.
func TestNames_NotBothInOneRegistry(t *testing.T) {
	for name, options := range map[string][]otelprometheus.Option{
		"with scope": nil, "without scope": {otelprometheus.WithoutScopeInfo()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry, metrics := prometheus.NewRegistry(), promfairlock.New(promfairlock.Config{})
				require.NoError(t, registry.Register(metrics))
				exporter, err := otelprometheus.New(append(options, otelprometheus.WithRegisterer(registry))...)
				require.NoError(t, err)
				trace, err := otelfairlock.New(otelfairlock.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter))})
				require.NoError(t, err)
				client := fairlocktest.NewServer(t).Client(fairlock.Config{Trace: fairlock.JoinTraces(metrics.Trace(), trace)})
				scrape := func() int {
					w := httptest.NewRecorder()
					promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
					return w.Code
				}
				assert.Equal(t, http.StatusOK, scrape())
				require.NoError(t, client.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
				assert.Equal(t, http.StatusInternalServerError, scrape())
			})
		})
	}
}
