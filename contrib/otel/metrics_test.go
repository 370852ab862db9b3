package otelfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	apimetric "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

const second = time.Second

// world is where something is counted.
type world struct {
	s      *fairlocktest.Server
	client *fairlocktest.Client // whose Trace is read
	m      fairlock.Mutex       // of client; w.lock is the same
	lock   fairlocktest.Lock
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
	go func() {
		lease, err := w.m.Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// refuses is a hook that has Redis refuse a request.
type refuses struct{ err error }

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func (refuses) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *refuses) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.err != nil {
			cmd.SetErr(r.err)
			return r.err
		}
		return next(ctx, cmd)
	}
}
func (refuses) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Each event is counted once, with its duration, and the gauges are what is there.
func TestMetrics_CountOnce(t *testing.T) {
	bubbles(t, map[string]struct {
		do   func(t *testing.T, w world)
		want []string
	}{
		"free": {func(t *testing.T, w world) {
			require.NoError(t, w.m.Do(t.Context(), func(context.Context) error { time.Sleep(second); return nil }))
		}, []string{"hold.duration: 1 in 1s", "leases: 0", "wait.duration handoff=false: 1 in 0s"}},
		"held": {func(t *testing.T, w world) { w.held(t) }, []string{"leases: 1", "wait.duration handoff=false: 1 in 0s"}},
		"busy": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			_, err := w.m.TryLock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrBusy)
		}, []string{"wait.duration error.type=busy handoff=false: 1 in 0s"}},
		"handoff": {func(t *testing.T, w world) {
			other := w.lock.HoldAs("other")
			done := w.waiting(t.Context())
			pass(second)
			require.NoError(t, other.Unlock(t.Context()))
			require.NoError(t, <-done)
		}, []string{"hold.duration: 1 in 0s", "leases: 0", "wait.duration handoff=true: 1 in 1s", "waiters: 0"}},
		"waiting": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			w.waiting(t.Context())
			w.waiting(t.Context())
		}, []string{"waiters: 2"}},
		"canceled": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			ctx, cancel := context.WithCancel(t.Context())
			done := w.waiting(ctx)
			pass(second)
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
		}, []string{"wait.duration error.type=canceled handoff=false: 1 in 1s", "waiters: 0"}},
		"wait times out": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			_, err := w.m.WithMaxWait(second).Lock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
		}, []string{"wait.duration error.type=wait_timeout handoff=false: 1 in 1s", "waiters: 0"}},
		"queue full": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			w.lock.CrashQueued("waiter", time.Minute)
			_, err := w.m.WithMaxWaiters(1).Lock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrQueueFull)
		}, []string{"wait.duration error.type=queue_full handoff=false: 1 in 0s"}},
		"capacity": {func(t *testing.T, w world) {
			w.s.Semaphore("x", 2).HoldAs("other")
			_, err := w.client.Semaphore("x", 3).TryAcquire(t.Context(), 1)
			require.Error(t, err)
		}, []string{"wait.duration error.type=capacity handoff=false: 1 in 0s"}},
		"capacity, while it waits": {func(t *testing.T, w world) {
			w.s.Semaphore("x", 2).HoldAs("other")
			x := w.client.Semaphore("x", 2)
			time.AfterFunc(second/2, func() { assert.NoError(t, x.Resize(context.Background(), 1)) })
			_, err := x.Acquire(t.Context(), 2)
			require.Error(t, err)
		}, []string{"wait.duration error.type=capacity handoff=false: 1 in 1s", "waiters: 0"}},
		"renewed": {func(t *testing.T, w world) {
			lease := w.held(t)
			pass(4 * second)
			require.NoError(t, lease.Renew(t.Context()))
			require.NoError(t, lease.Unlock(t.Context()))
		}, []string{
			"hold.duration: 1 in 4s", "lease.renewals: 2", "leases: 0", "wait.duration handoff=false: 1 in 0s",
		}},
		"taken": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.lock.ForceRelease()
			pass(4 * second)
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrTaken)
		}, []string{
			"hold.duration error.type=taken: 1 in 3.299333s", "lease.losses error.type=taken: 1", "leases: 0",
			"wait.duration handoff=false: 1 in 0s",
		}},
		"unreachable": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.client.Link.Cut()
			pass(fairlock.DefaultTTL)
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrUnreachable)
		}, []string{
			"hold.duration error.type=unreachable: 1 in 9.898s", "lease.losses error.type=unreachable: 1",
			"lease.renewals error.type=unreachable: 8", "leases: 0", "wait.duration handoff=false: 1 in 0s",
		}},
		"found lost by Unlock": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.lock.ForceRelease()
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrTaken)
		}, []string{
			"hold.duration error.type=taken: 1 in 0s", "lease.losses error.type=taken: 1", "leases: 0",
			"wait.duration handoff=false: 1 in 0s",
		}},
		"Unlock fails, then succeeds": {func(t *testing.T, w world) {
			lease := w.held(t)
			hook := &refuses{refusal("ERR no")}
			w.client.Redis.AddHook(hook)
			require.ErrorContains(t, lease.Unlock(t.Context()), "ERR no")
			hook.err = nil
			require.NoError(t, lease.Unlock(t.Context()))
		}, []string{
			"hold.duration error.type=refused: 1 in 0s", "leases: 0", "wait.duration handoff=false: 1 in 0s",
		}},
		"refused": {func(t *testing.T, w world) {
			w.client.Redis.AddHook(&refuses{refusal("NOPERM no")})
			_, err := w.m.Lock(t.Context())
			require.ErrorContains(t, err, "NOPERM")
		}, []string{"wait.duration error.type=refused handoff=false: 1 in 0s"}},
		"resumed": {func(t *testing.T, w world) {
			other := w.lock.HoldAs("other")
			lease, err := w.m.Resume(t.Context(), other.Token())
			require.NoError(t, err)
			require.NoError(t, other.Detach())
			require.NoError(t, lease.Unlock(t.Context()))
		}, []string{"hold.duration: 1 in 0s", "leases: 0", "wait.duration handoff=false: 1 in 0s"}},
		"resumed too late": {func(t *testing.T, w world) {
			other := w.lock.HoldAs("other")
			require.NoError(t, other.Unlock(t.Context()))
			_, err := w.m.Resume(t.Context(), other.Token())
			require.ErrorIs(t, err, fairlock.ErrTaken)
		}, []string{"wait.duration error.type=taken handoff=false: 1 in 0s"}},
		"detached": {func(t *testing.T, w world) {
			lease := w.held(t)
			pass(second)
			require.NoError(t, lease.Detach())
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrDetached)
		}, []string{
			"hold.duration error.type=detached: 1 in 1s", "leases: 0", "wait.duration handoff=false: 1 in 0s",
		}},
		"closed": {func(t *testing.T, w world) {
			lease := w.held(t)
			done := w.waiting(t.Context())
			pass(second)
			w.client.Close()
			require.ErrorIs(t, <-done, fairlock.ErrClosed)
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrClosed)
		}, []string{
			"hold.duration error.type=closed: 1 in 1s", "leases: 0",
			"wait.duration error.type=closed handoff=false: 1 in 1s", "wait.duration handoff=false: 1 in 0s",
			"waiters: 0",
		}},
		"shut down": {func(t *testing.T, w world) {
			lease := w.held(t)
			done := w.waiting(t.Context())
			time.AfterFunc(second, func() { assert.NoError(t, lease.Unlock(context.Background())) })
			require.NoError(t, w.client.Shutdown(t.Context()))
			require.ErrorIs(t, <-done, fairlock.ErrClosed)
		}, []string{
			"hold.duration: 1 in 1s", "leases: 0", "wait.duration error.type=closed handoff=false: 1 in 0s",
			"wait.duration handoff=false: 1 in 0s", "waiters: 0",
		}},
		"notification lost": {func(t *testing.T, w world) {
			other := w.lock.HoldAs("other")
			done := w.waiting(t.Context())
			w.client.Link.DropNotifications()
			pass(second / 2)
			require.NoError(t, other.Unlock(t.Context()))
			require.NoError(t, <-done)
		}, []string{
			"hold.duration: 1 in 0s", "leases: 0", "notification.losses: 1", "wait.duration handoff=false: 1 in 1.01s",
			"waiters: 0",
		}},
	}, func(t *testing.T, s *fairlocktest.Server, c struct {
		do   func(t *testing.T, w world)
		want []string
	},
	) {
		o := observe(t, nil)
		client := s.Client(fairlock.Config{Trace: o.trace})
		c.do(t, world{s, client, client.Mutex("x"), s.Mutex("x")})
		synctest.Wait()
		assert.Equal(t, c.want, o.values(t))
	})
}

// The README's table has each instrument, with its unit and its attributes. The histograms have the same buckets.
func TestMetrics_Instruments(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		o := observe(t, func(string) string { return "group" })
		client := s.Client(fairlock.Config{Trace: o.trace, Namespace: "own"})
		m, lock := client.Mutex("x"), s.Mutex("x").In("own")
		for _, lost := range []bool{false, true} { // a lease that is lost, after a handoff whose notification may be lost
			other := lock.HoldAs("other")
			if lost {
				client.Link.DropNotifications()
			}
			go func() { _, _ = m.Lock(t.Context()) }()
			pass(second / 2)
			require.NoError(t, other.Unlock(t.Context()))
			pass(4 * second)
			lock.ForceRelease()
			pass(4 * second)
		}
		all := o.metrics(t)
		assert.Len(t, all, 7)
		for name, m := range all {
			var sets []attribute.Set
			kind := "counter"
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				kind = "histogram"
				for _, p := range data.DataPoints {
					sets = append(sets, p.Attributes)
					assert.Equal(t, []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}, p.Bounds, name)
				}
			case metricdata.Sum[int64]:
				if !data.IsMonotonic {
					kind = "up-down counter"
				}
				for _, p := range data.DataPoints {
					sets = append(sets, p.Attributes)
				}
			}
			assert.NotEmpty(t, m.Description, name)
			assert.Contains(t, string(readme), fmt.Sprintf("| `%s` | %s, `%s` |", name, kind, m.Unit))
			for _, set := range sets {
				for key, want := range map[attribute.Key]string{
					"fairlock.kind": "mutex", "fairlock.namespace": "own", "fairlock.name": "group",
				} {
					value, _ := set.Value(key)
					assert.Equal(t, want, value.AsString(), "%s of %s", key, name)
				}
			}
		}
	})
}

// The name of a lock is an attribute only as Name says. A byte that is not UTF-8, for which OTLP refuses a batch, is replaced.
func TestMetrics_Name(t *testing.T) {
	bubbles(t, map[string]struct {
		name func(string) string
		want []string
	}{
		"none": {nil, []string{"leases: 2"}},
		"groups": {func(lock string) string { group, _, _ := strings.Cut(lock, ":"); return group }, []string{
			"leases name=account: 1", "leases name=\uFFFD: 1",
		}},
		"some": {func(lock string) string { return strings.TrimPrefix(lock, "\xff:42") }, []string{
			"leases name=account:42: 1", "leases: 1",
		}},
	}, func(t *testing.T, s *fairlocktest.Server, c struct {
		name func(string) string
		want []string
	},
	) {
		o := observe(t, c.name)
		client := s.Client(fairlock.Config{Trace: o.trace})
		for _, name := range []string{"account:42", "\xff:42"} {
			_, err := client.Mutex(name).TryLock(t.Context())
			require.NoError(t, err)
		}
		leases := slices.DeleteFunc(o.values(t), func(v string) bool { return !strings.HasPrefix(v, "leases") })
		assert.Equal(t, c.want, leases)
	})
}

// The durations have the caller's span as their exemplar.
func TestMetrics_Exemplars(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		o := observe(t, nil)
		ctx, span := o.tracer.Start(t.Context(), "caller")
		m := s.Client(fairlock.Config{Trace: o.trace}).Mutex("x")
		require.NoError(t, m.Do(ctx, func(context.Context) error { return nil }))
		for _, name := range []string{"fairlock.wait.duration", "fairlock.hold.duration"} {
			points := o.metrics(t)[name].Data.(metricdata.Histogram[float64]).DataPoints
			require.Len(t, points, 1)
			require.Len(t, points[0].Exemplars, 1, name)
			id := span.SpanContext().SpanID()
			assert.Equal(t, id[:], points[0].Exemplars[0].SpanID, name)
		}
	})
}

// Without providers, New uses the global ones.
func TestNew_GlobalProviders(t *testing.T) {
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	global, err := otelfairlock.New(otelfairlock.Config{})
	require.NoError(t, err)
	o := &observer{reader: reader}
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		ctx, span := otel.Tracer("caller").Start(t.Context(), "caller")
		m := s.Client(fairlock.Config{Trace: global}).Mutex("x")
		require.NoError(t, m.Do(ctx, func(context.Context) error { return nil }))
		span.End()
	})
	assert.Equal(t, []string{"hold.duration: 1 in 0s", "leases: 0", "wait.duration handoff=false: 1 in 0s"}, o.values(t))
	assert.Len(t, spans.Ended(), 2)
}

// A MeterProvider that refuses an instrument is an error.
func TestNew_Refused(t *testing.T) {
	_, err := otelfairlock.New(otelfairlock.Config{MeterProvider: refusing{}})
	assert.EqualError(t, err, "refused fairlock.waiters\nrefused fairlock.leases")
}

// refusing makes no up-down counters.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...apimetric.MeterOption) apimetric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64UpDownCounter(
	name string, _ ...apimetric.Int64UpDownCounterOption,
) (apimetric.Int64UpDownCounter, error) {
	return noop.Int64UpDownCounter{}, errors.New("refused " + name)
}
