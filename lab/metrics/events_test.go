// Package metrics tests what contrib/otel and contrib/prometheus have in common.
package metrics_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/fairlock/fairlock-go/admin"
	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// value is that of one series.
type value struct {
	kind    dto.MetricType
	sum     float64 // of a counter or gauge its value
	count   uint64
	buckets string // bounds and counts
}

func (v value) String() string {
	if v.kind == dto.MetricType_HISTOGRAM {
		return fmt.Sprintf("%d in %v", v.count, time.Duration(v.sum*float64(time.Second)).Round(time.Microsecond))
	}
	return fmt.Sprint(v.sum)
}

// values returns those of all series by name and labels. Labels without a value are left out, as Prometheus does, and
// series that are 0, because OpenTelemetry has none before the first value.
func values(t *testing.T, registry *prometheus.Registry) map[string]value {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]value{}
	for _, f := range families {
		if f.GetName() == "target_info" { // about the process
			continue
		}
		for _, m := range f.GetMetric() {
			series := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					series += " " + l.GetName() + "=" + l.GetValue()
				}
			}
			h := m.GetHistogram()
			v := value{f.GetType(), m.GetCounter().GetValue() + m.GetGauge().GetValue() + h.GetSampleSum(), h.GetSampleCount(),
				""}
			for _, b := range h.GetBucket() {
				v.buckets += b.String() + "\n"
			}
			if v.sum != 0 || v.count != 0 {
				found[series] = v
			}
		}
	}
	return found
}

// short leaves out of a series what is the same in most.
var short = strings.NewReplacer(
	" fairlock_namespace=fairlock", "", " fairlock_kind=mutex", "", " fairlock_handoff=false", "", "fairlock_", "",
	"error_type=", "")

// world is where something is counted.
type world struct {
	s      *fairlocktest.Server
	client *fairlocktest.Client // whose Trace is read
	m      fairlock.Mutex       // of client; other is the same
	other  fairlocktest.Lock
}

// held returns a lease of the mutex.
func (w world) held(t *testing.T) *fairlock.Lease {
	t.Helper()
	lease, err := w.m.TryLock(t.Context())
	require.NoError(t, err)
	return lease
}

// waiting has somebody wait for the mutex. It returns how that ended, once it has.
func (w world) waiting(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.m.Do(ctx, func(context.Context) error { return nil }) }()
	synctest.Wait()
	return done
}

// Each event is counted once, with its duration, and the gauges are what is there. The metrics of contrib/prometheus
// have the names, types, labels, buckets and values that OpenTelemetry's exporter makes of those of contrib/otel.
func TestMetrics(t *testing.T) {
	name := func(lock string) string { return lock[:max(0, strings.LastIndex(lock, ":"))] } // of x none
	for event, c := range map[string]struct {
		do   func(t *testing.T, w world)
		want []string
	}{
		"free": {func(t *testing.T, w world) {
			require.NoError(t, w.m.Do(t.Context(), func(context.Context) error { time.Sleep(time.Second); return nil }))
		}, []string{"hold_duration_seconds: 1 in 1s", "wait_duration_seconds: 1 in 0s"}},
		"held": {func(t *testing.T, w world) { w.held(t) }, []string{"leases: 1", "wait_duration_seconds: 1 in 0s"}},
		"busy": {func(t *testing.T, w world) {
			w.other.HoldAs("other")
			_, err := w.m.TryLock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrBusy)
		}, []string{"wait_duration_seconds busy: 1 in 0s"}},
		"waiting": {func(t *testing.T, w world) {
			w.other.HoldAs("other")
			w.waiting(t.Context())
			w.waiting(t.Context())
		}, []string{"waiters: 2"}},
		"handoff": {func(t *testing.T, w world) {
			other := w.other.HoldAs("other")
			done := w.waiting(t.Context())
			time.Sleep(time.Second)
			require.NoError(t, other.Unlock(t.Context()))
			require.NoError(t, <-done)
		}, []string{"hold_duration_seconds: 1 in 0s", "wait_duration_seconds handoff=true: 1 in 1s"}},
		"notification lost": {func(t *testing.T, w world) {
			other := w.other.HoldAs("other")
			done := w.waiting(t.Context())
			time.Sleep(3 * time.Second / 2) // the subscription is up, and a heartbeat has found the waiter queued since
			w.client.Link.DropNotifications()
			require.NoError(t, other.Unlock(t.Context()))
			require.NoError(t, <-done)
		}, []string{"hold_duration_seconds: 1 in 0s", "notification_losses_total: 1", "wait_duration_seconds: 1 in 2.01s"}},
		"wait times out": {func(t *testing.T, w world) {
			w.other.HoldAs("other")
			_, err := w.client.Mutex("x", fairlock.WithMaxWait(time.Second)).Lock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
		}, []string{"wait_duration_seconds wait_timeout: 1 in 1s"}},
		"refused, while it waits": {func(t *testing.T, w world) {
			w.s.Semaphore("x", 2).HoldAs("other")
			x := w.client.Semaphore("x", 2)
			time.AfterFunc(time.Second/2, func() {
				id := fairlock.ID{Kind: fairlock.KindSemaphore, Name: "x"}
				assert.NoError(t, admin.New(w.s.Link().Redis(), "").Resize(context.Background(), id, 1))
			})
			_, err := x.Acquire(t.Context(), 2)
			require.Error(t, err)
		}, []string{"wait_duration_seconds capacity kind=semaphore: 1 in 1s"}},
		"renewed": {func(t *testing.T, w world) {
			lease := w.held(t)
			time.Sleep(bounds.DefaultTTL / 2)
			require.NoError(t, lease.Unlock(t.Context()))
		}, []string{"hold_duration_seconds: 1 in 5s", "lease_renewals_total: 1", "wait_duration_seconds: 1 in 0s"}},
		"revoked": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.other.ForceRelease()
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrRevoked)
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrRevoked)
		}, []string{"hold_duration_seconds revoked: 1 in 0s", "lease_losses_total revoked: 1",
			"wait_duration_seconds: 1 in 0s"}},
		"unreachable": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.client.Link.Cut()
			<-lease.Done()
		}, []string{
			"hold_duration_seconds unreachable: 1 in 9.898s", "lease_losses_total unreachable: 1",
			"lease_renewals_total unreachable: 8", "wait_duration_seconds: 1 in 0s",
		}},
		"Unlock refused, then not": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.s.Miniredis.SetError("ERR no")
			require.ErrorContains(t, lease.Unlock(t.Context()), "ERR no")
			w.s.Miniredis.SetError("")
			require.NoError(t, lease.Unlock(t.Context()))
		}, []string{"hold_duration_seconds refused: 1 in 3s", "wait_duration_seconds: 1 in 0s"}},
		"resumed": {func(t *testing.T, w world) {
			other := w.other.HoldAs("other")
			lease, err := w.m.Resume(t.Context(), other.Handle())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
			_, err = w.m.Resume(t.Context(), other.Handle())
			require.ErrorIs(t, err, fairlock.ErrRevoked)
		}, []string{"hold_duration_seconds: 1 in 0s", "wait_duration_seconds revoked: 1 in 0s",
			"wait_duration_seconds: 1 in 0s"}},
		"closed": {func(t *testing.T, w world) {
			w.held(t)
			lease, err := w.client.RWMutex("x").RLock(t.Context())
			require.NoError(t, err)
			_, err = lease.Detach()
			require.NoError(t, err)
			done := w.waiting(t.Context())
			time.Sleep(time.Second)
			w.client.Close()
			require.ErrorIs(t, <-done, fairlock.ErrClosed)
		}, []string{
			"hold_duration_seconds closed: 1 in 1s", "hold_duration_seconds detached kind=rwmutex: 1 in 0s",
			"wait_duration_seconds closed: 1 in 1s", "wait_duration_seconds kind=rwmutex: 1 in 0s",
			"wait_duration_seconds: 1 in 0s",
		}},
		"names": {func(t *testing.T, w world) {
			for _, name := range []string{"account:1", "account:2", ":", "\xff:"} {
				_, err := w.client.Mutex(name).Lock(t.Context())
				require.NoError(t, err)
			}
		}, []string{
			"leases name=account: 2", "leases name=\ufffd: 1", "leases: 1", "wait_duration_seconds name=account: 2 in 0s",
			"wait_duration_seconds name=\ufffd: 1 in 0s", "wait_duration_seconds: 1 in 0s",
		}},
	} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry, theirs := prometheus.NewRegistry(), prometheus.NewRegistry()
				metrics := promfairlock.New(promfairlock.Config{Name: name})
				require.NoError(t, registry.Register(metrics))
				exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(theirs), otelprometheus.WithoutScopeInfo())
				require.NoError(t, err)
				trace, err := otelfairlock.New(otelfairlock.Config{
					MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)), Name: name,
				})
				require.NoError(t, err)
				s := fairlocktest.NewServer(t)
				client := s.Client(fairlock.Config{Trace: fairlock.JoinTraces(metrics.Trace(), trace)})
				c.do(t, world{s, client, client.Mutex("x"), s.Mutex("x")})
				synctest.Wait()

				ours := values(t, registry)
				assert.Equal(t, ours, values(t, theirs))
				var got []string
				for series, v := range ours {
					got = append(got, short.Replace(series)+": "+v.String())
				}
				slices.Sort(got)
				assert.Equal(t, c.want, got)
			})
		})
	}
}
