// Package metrics tests what contrib/otel and contrib/prometheus have in common.
package metrics_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlock/fairlock-go/admin"
	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
)

// value is that of one series.
type value struct {
	kind    dto.MetricType
	sum     float64 // of a counter or gauge its value
	count   uint64
	buckets string // bounds, counts and exemplars
}

func (v value) String() string {
	if v.kind != dto.MetricType_HISTOGRAM {
		return fmt.Sprint(v.sum)
	}
	text := fmt.Sprintf("%d in %v", v.count, time.Duration(v.sum*float64(time.Second)).Round(time.Microsecond))
	if strings.Contains(v.buckets, "span_id") {
		text += ", with exemplar"
	}
	return text
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
				exemplar := map[string]string{}
				for _, l := range b.GetExemplar().GetLabel() {
					exemplar[l.GetName()] = l.GetValue()
				}
				v.buckets += fmt.Sprintln(b.GetUpperBound(), b.GetCumulativeCount(), exemplar)
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

// story returns each span of the Trace, such as "hold 1s-3s Error: lock is lost: lease expired (expired) after span 1",
// which is the span that it links to. Times begin with the test.
func story(began time.Time, spans []sdktrace.ReadOnlySpan) (all []string) {
	ids := map[trace.SpanID]int{}
	slices.SortFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { // spans that end together come in any order
		return cmp.Or(a.EndTime().Compare(b.EndTime()), strings.Compare(b.Name(), a.Name()),
			a.StartTime().Compare(b.StartTime()), strings.Compare(b.Status().Description, a.Status().Description))
	})
	for _, span := range spans {
		name, ours := strings.CutPrefix(span.Name(), "fairlock.")
		if !ours {
			continue
		}
		line := fmt.Sprintf("%s %v-%v", name, span.StartTime().Sub(began), span.EndTime().Sub(began))
		if span.Status().Code != codes.Unset {
			line += fmt.Sprintf(" %s: %s", span.Status().Code, span.Status().Description)
		}
		for _, a := range span.Attributes() {
			if a.Key == "error.type" {
				line += fmt.Sprintf(" (%s)", a.Value.AsString())
			}
		}
		for _, link := range span.Links() {
			line += fmt.Sprintf(" after span %d", ids[link.SpanContext.SpanID()])
		}
		all = append(all, line)
		ids[span.SpanContext().SpanID()] = len(all)
	}
	return all
}

// world is where something is counted.
type world struct {
	s      *fairlocktest.Server
	client *fairlocktest.Client // whose Trace is read
	m      fairlock.Mutex       // of client; other is the same
	other  fairlocktest.Lock
}

// held returns a lease of the mutex.
func (w world) held(ctx context.Context, t *testing.T) *fairlock.Lease {
	t.Helper()
	lease, err := w.m.Lock(ctx)
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

// delayed delays the replies to the client, which has its connection and the scripts.
func (w world) delayed(t *testing.T, d time.Duration) {
	t.Helper()
	require.NoError(t, w.client.Mutex("before").Do(t.Context(), func(context.Context) error { return nil }))
	w.client.Link.Delay(0, d)
}

// waitsAndFails waits for the mutex twice: one wait ends in time, one is granted the lock.
func (w world) waitsAndFails(ctx context.Context, t *testing.T) {
	t.Helper()
	other := w.other.HoldAs("other")
	done := w.waiting(ctx)
	_, err := w.client.Mutex("x", fairlock.WithMaxWait(time.Second)).Lock(ctx)
	require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
	require.NoError(t, other.Unlock(ctx))
	require.NoError(t, <-done)
}

// events are what metrics and spans tell of. The caller's span is in ctx.
var events = []struct {
	name string
	do   func(ctx context.Context, t *testing.T, w world)
}{
	{"free, after 10 ms", func(ctx context.Context, t *testing.T, w world) {
		w.delayed(t, 10*time.Millisecond)
		w.held(ctx, t)
	}},
	{"free, before 10 ms", func(ctx context.Context, t *testing.T, w world) {
		w.delayed(t, 10*time.Millisecond-1)
		w.held(ctx, t)
	}},
	{"busy", func(ctx context.Context, t *testing.T, w world) {
		w.other.HoldAs("other")
		_, err := w.m.TryLock(ctx)
		require.ErrorIs(t, err, fairlock.ErrBusy)
	}},
	{"waiting", func(ctx context.Context, _ *testing.T, w world) {
		w.other.HoldAs("other")
		w.waiting(ctx)
		w.waiting(ctx)
	}},
	{"notification lost", func(ctx context.Context, t *testing.T, w world) {
		other := w.other.HoldAs("other")
		done := w.waiting(ctx)
		time.Sleep(3 * time.Second / 2) // the subscription is up, and a heartbeat has found the waiter queued since
		w.client.Link.DropNotifications()
		require.NoError(t, other.Unlock(ctx))
		require.NoError(t, <-done)
	}},
	{"wait times out", func(ctx context.Context, t *testing.T, w world) { w.waitsAndFails(ctx, t) }},
	{"refused, while it waits", func(ctx context.Context, t *testing.T, w world) {
		w.s.Semaphore("x", 2).HoldAs("other")
		x := w.client.Semaphore("x", 2)
		time.AfterFunc(time.Second/2, func() {
			id := fairlock.ID{Kind: fairlock.KindSemaphore, Name: "x"}
			assert.NoError(t, admin.New(w.s.Link().Redis(), "").Resize(context.Background(), id, 1))
		})
		_, err := x.Acquire(ctx, 2)
		require.Error(t, err)
	}},
	{"renewed", func(ctx context.Context, t *testing.T, w world) {
		lease := w.held(ctx, t)
		time.Sleep(bounds.DefaultTTL / 2)
		require.NoError(t, lease.Unlock(ctx))
	}},
	{"revoked", func(ctx context.Context, t *testing.T, w world) {
		lease := w.held(ctx, t)
		w.other.ForceRelease()
		require.ErrorIs(t, lease.Unlock(ctx), fairlock.ErrRevoked)
		require.ErrorIs(t, lease.Unlock(ctx), fairlock.ErrRevoked)
	}},
	{"unreachable", func(ctx context.Context, t *testing.T, w world) {
		lease := w.held(ctx, t)
		w.client.Link.Cut()
		<-lease.Done()
	}},
	{"Unlock refused, then not", func(ctx context.Context, t *testing.T, w world) {
		lease := w.held(ctx, t)
		w.s.Miniredis.SetError("ERR no \xff") // OTLP would refuse a batch with this byte
		require.ErrorContains(t, lease.Unlock(ctx), "ERR no")
		w.s.Miniredis.SetError("")
		require.NoError(t, lease.Unlock(ctx))
	}},
	{"resumed from another process", func(ctx context.Context, t *testing.T, w world) {
		other := w.other.HoldAs("other")
		lease, err := w.m.Resume(ctx, other.Handle())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(ctx))
		_, err = w.m.Resume(ctx, other.Handle())
		require.ErrorIs(t, err, fairlock.ErrRevoked)
	}},
	{"resumed twice in its own process", func(ctx context.Context, t *testing.T, w world) {
		w.delayed(t, 20*time.Millisecond) // so that each wait has a span
		first := w.held(ctx, t)
		second, err := w.m.Resume(ctx, first.Handle())
		require.NoError(t, err)
		third, err := w.m.Resume(ctx, second.Handle())
		require.NoError(t, err)
		for _, lease := range []*fairlock.Lease{second, third, first} {
			_, err := lease.Detach()
			require.NoError(t, err)
		}
	}},
	{"closed", func(ctx context.Context, t *testing.T, w world) {
		w.held(ctx, t)
		lease, err := w.client.RWMutex("x").RLock(ctx)
		require.NoError(t, err)
		_, err = lease.Detach()
		require.NoError(t, err)
		done := w.waiting(ctx)
		time.Sleep(time.Second)
		w.client.Close()
		require.ErrorIs(t, <-done, fairlock.ErrClosed)
	}},
	{"names", func(_ context.Context, t *testing.T, w world) {
		for _, name := range []string{"account:1", "account:2", ":", "\xff:"} {
			_, err := w.client.Mutex(name).Lock(t.Context())
			require.NoError(t, err)
		}
	}},
	{"the caller is not sampled", func(ctx context.Context, t *testing.T, w world) {
		caller := trace.SpanContextFromContext(ctx)
		w.waitsAndFails(trace.ContextWithSpanContext(ctx, caller.WithTraceFlags(0)), t)
	}},
	{"the caller has no span", func(_ context.Context, t *testing.T, w world) { w.waitsAndFails(t.Context(), t) }},
	{"the caller is another process", func(ctx context.Context, t *testing.T, w world) {
		ctx = trace.ContextWithRemoteSpanContext(t.Context(), trace.SpanContextFromContext(ctx))
		require.NoError(t, w.m.Do(ctx, func(context.Context) error { return nil }))
	}},
}

// exemplar is that of a sampled span.
func exemplar(ctx context.Context) prometheus.Labels {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsSampled() {
		return nil
	}
	return prometheus.Labels{"trace_id": span.TraceID().String(), "span_id": span.SpanID().String()}
}

// Each event is counted once, with its duration, and the gauges are what is there. The metrics of contrib/prometheus
// have the names, types, labels, buckets, values and exemplars that OpenTelemetry's exporter makes of those of
// contrib/otel. A wait and a lease have a span each if the caller has one that is sampled. What fails has the status of
// an error, with its type; a busy try and a Detach are answers. A lock that was free within 10 ms has no span of its
// wait.
//
//fairlock:promise Inspect and Trace
func TestEvents(t *testing.T) {
	name := func(lock string) string { return lock[:max(0, strings.LastIndex(lock, ":"))] } // of x none
	var text strings.Builder
	for _, event := range events {
		synctest.Test(t, func(t *testing.T) {
			registry, theirs := prometheus.NewRegistry(), prometheus.NewRegistry()
			metrics := promfairlock.New(promfairlock.Config{Name: name, Exemplar: exemplar})
			require.NoError(t, registry.Register(metrics))
			exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(theirs), otelprometheus.WithoutScopeInfo())
			require.NoError(t, err)
			spans := tracetest.NewSpanRecorder()
			tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
			both, err := otelfairlock.New(otelfairlock.Config{
				MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)), TracerProvider: tracers, Name: name,
			})
			require.NoError(t, err)
			s := fairlocktest.NewServer(t)
			client := s.Client(fairlock.Config{Trace: fairlock.JoinTraces(metrics.Trace(), both)})
			began := time.Now()
			ctx, _ := tracers.Tracer("caller").Start(t.Context(), "caller")
			event.do(ctx, t, world{s, client, client.Mutex("x"), s.Mutex("x")})
			synctest.Wait()

			ours := values(t, registry)
			assert.Equal(t, ours, values(t, theirs), event.name)
			var lines []string
			for series, v := range ours {
				lines = append(lines, short.Replace(series)+": "+v.String())
			}
			slices.Sort(lines)
			for _, span := range story(began, spans.Ended()) {
				lines = append(lines, "span "+span)
			}
			fmt.Fprintf(&text, "%s\n\t%s\n", event.name, strings.Join(lines, "\n\t"))
		})
	}
	golden.Equal(t, "events.txt", text.String())
}
