package promfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// values returns the values of all series that are not 0, by name and labels; of a histogram its count. The name is without
// "fairlock_", a label is its value alone, and the namespace, which is the default one, is left out.
func values(t *testing.T, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, f := range gather(t, collectors...) {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "fairlock_")
			for _, l := range m.GetLabel() { // in order of their names
				switch {
				case l.GetName() == "fairlock_namespace":
					require.Equal(t, "fairlock", l.GetValue())
				case l.GetName() == "fairlock_handoff":
					name += map[string]string{"false": "", "true": " handoff"}[l.GetValue()]
				case l.GetValue() != "":
					name += " " + l.GetValue()
				}
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				found[name] = value
			}
		}
	}
	return found
}

// refuse has Redis reply with an error to what a client sends from now on.
func refuse(s *fairlocktest.Server) { s.Miniredis.SetError("ERR the server says no") }

// What happens to a lock is counted once, and nothing else is counted; at the end, nobody holds the lock or waits.
func TestMetrics_CountsEachEventOnce(t *testing.T) {
	type world struct {
		t      *testing.T
		s      *fairlocktest.Server
		client client
		m      fairlock.Mutex
	}
	lock := func(w world) *fairlock.Lease {
		w.t.Helper()
		lease, err := w.m.Lock(w.t.Context())
		require.NoError(w.t, err)
		return lease
	}
	// A waiter behind a holder of another process.
	wait := func(w world, ctx context.Context, m fairlock.Mutex) (held *fairlock.Lease, done chan error) {
		w.t.Helper()
		held, done = w.s.Mutex("x").HoldAs("holder"), make(chan error, 1)
		go func() { done <- m.Do(ctx, func(context.Context) error { return nil }) }()
		synctest.Wait()
		return held, done
	}
	for name, c := range map[string]struct {
		do   func(w world)
		want map[string]float64
	}{
		"free": {func(w world) {
			require.NoError(w.t, w.m.Do(w.t.Context(), func(context.Context) error { return nil }))
		}, map[string]float64{"wait_duration_seconds mutex": 1, "hold_duration_seconds mutex": 1}},
		"handed over": {func(w world) {
			held, done := wait(w, w.t.Context(), w.m)
			assert.Equal(w.t, map[string]float64{"waiters mutex": 1}, values(w.t, w.client.metrics))
			require.NoError(w.t, held.Unlock(w.t.Context()))
			require.NoError(w.t, <-done)
		}, map[string]float64{"wait_duration_seconds handoff mutex": 1, "hold_duration_seconds mutex": 1}},
		"busy": {func(w world) {
			w.s.Mutex("x").HoldAs("holder")
			_, err := w.m.TryLock(w.t.Context())
			require.ErrorIs(w.t, err, fairlock.ErrBusy)
		}, map[string]float64{"wait_duration_seconds busy mutex": 1}},
		"queue full": {func(w world) {
			w.s.Mutex("x").HoldAs("holder")
			w.s.Mutex("x").CrashQueued("other", time.Minute)
			_, err := w.m.WithMaxWaiters(1).Lock(w.t.Context())
			require.ErrorIs(w.t, err, fairlock.ErrQueueFull)
		}, map[string]float64{"wait_duration_seconds queue_full mutex": 1}},
		"capacity": {func(w world) {
			_, err := w.client.Semaphore("x", 5).Acquire(w.t.Context(), 6)
			var capacity *fairlock.CapacityError
			require.ErrorAs(w.t, err, &capacity)
		}, map[string]float64{"wait_duration_seconds capacity semaphore": 1}},
		"canceled": {func(w world) {
			ctx, cancel := context.WithCancel(w.t.Context())
			_, done := wait(w, ctx, w.m)
			cancel()
			require.ErrorIs(w.t, <-done, context.Canceled)
		}, map[string]float64{"wait_duration_seconds canceled mutex": 1}},
		"timeout": {func(w world) {
			_, done := wait(w, w.t.Context(), w.m.WithMaxWait(time.Second))
			require.ErrorIs(w.t, <-done, fairlock.ErrWaitTimeout)
		}, map[string]float64{"wait_duration_seconds wait_timeout mutex": 1}},
		"notification lost": {func(w world) {
			held, done := wait(w, w.t.Context(), w.m)
			w.client.Link.DropNotifications()
			require.NoError(w.t, held.Unlock(w.t.Context()))
			require.NoError(w.t, <-done)
		}, map[string]float64{
			"wait_duration_seconds mutex": 1, "hold_duration_seconds mutex": 1, "notification_losses_total mutex": 1,
		}},
		"taken": {func(w world) {
			lease := lock(w)
			w.s.Mutex("x").ForceRelease()
			require.ErrorIs(w.t, lease.Unlock(w.t.Context()), fairlock.ErrTaken)
			require.ErrorIs(w.t, lease.Unlock(w.t.Context()), fairlock.ErrTaken)
		}, map[string]float64{
			"wait_duration_seconds mutex": 1, "hold_duration_seconds taken mutex": 1, "lease_losses_total taken mutex": 1,
		}},
		"unreachable": {func(w world) {
			lease := lock(w)
			w.client.Link.Cut()
			<-lease.Done()
			require.ErrorIs(w.t, lease.Err(), fairlock.ErrUnreachable)
			w.client.Link.Mend()
		}, map[string]float64{
			"wait_duration_seconds mutex": 1, "hold_duration_seconds unreachable mutex": 1,
			"lease_losses_total unreachable mutex": 1, "lease_renewals_total unreachable mutex": 8,
		}},
		"renewed": {func(w world) {
			lease := lock(w)
			time.Sleep(fairlock.DefaultTTL / 2)
			require.NoError(w.t, lease.Unlock(w.t.Context()))
		}, map[string]float64{
			"wait_duration_seconds mutex": 1, "hold_duration_seconds mutex": 1, "lease_renewals_total mutex": 1,
		}},
		"renewal refused": {func(w world) {
			lease := lock(w)
			refuse(w.s)
			require.Error(w.t, lease.Renew(w.t.Context()))
			w.s.Miniredis.SetError("")
			require.NoError(w.t, lease.Unlock(w.t.Context()))
		}, map[string]float64{
			"wait_duration_seconds mutex": 1, "hold_duration_seconds mutex": 1, "lease_renewals_total refused mutex": 1,
		}},
		"Unlock refused": {func(w world) {
			lease := lock(w)
			refuse(w.s)
			require.Error(w.t, lease.Unlock(w.t.Context()))
			w.s.Miniredis.SetError("")
			require.NoError(w.t, lease.Unlock(w.t.Context()))
		}, map[string]float64{"wait_duration_seconds mutex": 1, "hold_duration_seconds refused mutex": 1}},
		"Resume": {func(w world) {
			held := w.s.Mutex("x").HoldAs("holder")
			lease, err := w.m.Resume(w.t.Context(), held.Token())
			require.NoError(w.t, err)
			require.NoError(w.t, lease.Unlock(w.t.Context()))
			_, err = w.m.Resume(w.t.Context(), held.Token())
			require.ErrorIs(w.t, err, fairlock.ErrTaken)
		}, map[string]float64{
			"wait_duration_seconds mutex": 1, "hold_duration_seconds mutex": 1, "wait_duration_seconds taken mutex": 1,
		}},
		"Detach": {func(w world) {
			require.NoError(w.t, lock(w).Detach())
		}, map[string]float64{"wait_duration_seconds mutex": 1, "hold_duration_seconds detached mutex": 1}},
		"Close": {func(w world) {
			lock(w)
			_, err := w.client.RWMutex("x").RLock(w.t.Context())
			require.NoError(w.t, err)
			done := make(chan error, 1)
			go func() { _, err := w.m.Lock(w.t.Context()); done <- err }()
			synctest.Wait()
			assert.Equal(w.t, map[string]float64{
				"wait_duration_seconds mutex": 1, "leases mutex": 1, "waiters mutex": 1,
				"wait_duration_seconds rwmutex": 1, "leases rwmutex": 1,
			}, values(w.t, w.client.metrics))
			require.NoError(w.t, w.client.Close())
			require.ErrorIs(w.t, <-done, fairlock.ErrClosed)
		}, map[string]float64{
			"wait_duration_seconds mutex": 1, "hold_duration_seconds closed mutex": 1, "wait_duration_seconds closed mutex": 1,
			"wait_duration_seconds rwmutex": 1, "hold_duration_seconds closed rwmutex": 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				client := counted(s.Client, promfairlock.Config{})
				c.do(world{t, s, client, client.Mutex("x")})
				synctest.Wait()
				assert.Equal(t, c.want, values(t, client.metrics))
			})
		})
	}
}

// client is a client with metrics of its own, as each process has.
type client struct {
	*fairlocktest.Client
	metrics *promfairlock.Metrics
}

// counted returns a client that newClient makes, with metrics.
func counted(newClient func(fairlock.Config) *fairlocktest.Client, cfg promfairlock.Config) client {
	metrics := promfairlock.New(cfg)
	return client{newClient(fairlock.Config{Trace: metrics.Trace()}), metrics}
}

// The histograms have how long a lock was waited for and held, and the buckets that OpenTelemetry has.
func TestMetrics_Durations(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := counted(s.Client, promfairlock.Config{})
		held := s.Mutex("x").HoldAs("holder")
		time.AfterFunc(1500*time.Millisecond, func() { assert.NoError(t, held.Unlock(t.Context())) })
		require.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { time.Sleep(15 * time.Millisecond); return nil }))
		want := map[string][2]float64{ // sum, and upper bound of the bucket
			"fairlock_wait_duration_seconds": {1.5, 2}, "fairlock_hold_duration_seconds": {0.015, 0.02},
		}
		for _, f := range gather(t, c.metrics) {
			for _, m := range f.GetMetric() {
				h := m.GetHistogram()
				if h.GetSampleCount() == 0 {
					continue
				}
				assert.InDelta(t, want[f.GetName()][0], h.GetSampleSum(), 1e-9)
				first := slices.IndexFunc(h.GetBucket(), func(b *dto.Bucket) bool { return b.GetCumulativeCount() > 0 })
				assert.Equal(t, want[f.GetName()][1], h.GetBucket()[first].GetUpperBound()) //nolint:testifylint // these are constants
				delete(want, f.GetName())
			}
		}
		assert.Empty(t, want)
	})
}

// A second one that is equal is refused as client_golang's metrics are, and the first can be used instead.
func TestMetrics_AlreadyRegistered(t *testing.T) {
	registry := prometheus.NewRegistry()
	first := promfairlock.New(promfairlock.Config{})
	require.NoError(t, registry.Register(first))
	var already prometheus.AlreadyRegisteredError
	require.ErrorAs(t, registry.Register(promfairlock.New(promfairlock.Config{})), &already)
	assert.Same(t, first, already.ExistingCollector)

	named := func(name string) *promfairlock.Metrics {
		return promfairlock.New(promfairlock.Config{Name: func(string) string { return name }})
	}
	err := registry.Register(named("f"))
	require.Error(t, err)
	require.NotErrorAs(t, err, &already, "it has another label")
	registry, first = prometheus.NewRegistry(), named("f")
	require.NoError(t, registry.Register(first))
	require.ErrorAs(t, registry.Register(named("g")), &already)
	assert.Same(t, first, already.ExistingCollector, "functions are not compared")
}

// Name groups locks. What it returns need not be UTF-8, as a lock's name need not be.
func TestMetrics_Name(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := counted(s.Client, promfairlock.Config{Name: func(lock string) string {
			group, _, _ := strings.Cut(lock, ":")
			return group
		}})
		for _, name := range []string{"account:1", "account:2", ":", "\xff:"} {
			require.NoError(t, c.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }))
		}
		assert.Equal(t, map[string]float64{
			"wait_duration_seconds mutex account": 2, "hold_duration_seconds mutex account": 2,
			"wait_duration_seconds mutex": 1, "hold_duration_seconds mutex": 1,
			"wait_duration_seconds mutex \ufffd": 1, "hold_duration_seconds mutex \ufffd": 1,
		}, values(t, c.metrics))
	})
}

// Losses can be counted by their increase from the beginning: the series are there, at 0, once there is a lease.
func TestMetrics_LossesBeginAtZero(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := counted(s.Client, promfairlock.Config{})
		_, err := c.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		var types []string
		for _, f := range gather(t, c.metrics) {
			for _, m := range f.GetMetric() {
				if f.GetName() == "fairlock_lease_losses_total" {
					types = append(types, m.GetLabel()[0].GetValue())
				}
			}
		}
		assert.Equal(t, []string{"expired", "taken", "unreachable"}, types)
	})
}

// Each value has the exemplar of its caller's ctx, unless client_golang would panic for the values.
func TestMetrics_Exemplar(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := counted(s.Client, promfairlock.Config{Exemplar: func(ctx context.Context) prometheus.Labels {
			if id, ok := ctx.Value(traceID{}).(string); ok {
				return prometheus.Labels{"trace_id": id}
			}
			return nil
		}})
		exemplars := func() (found []string) {
			for _, f := range gather(t, c.metrics) {
				for _, m := range f.GetMetric() {
					all := []*dto.Exemplar{m.GetCounter().GetExemplar()}
					for _, b := range m.GetHistogram().GetBucket() {
						all = append(all, b.GetExemplar())
					}
					for _, e := range all {
						if e != nil {
							found = append(found, fmt.Sprint(f.GetName(), " ", e.GetLabel()[0].GetValue()))
						}
					}
				}
			}
			return found
		}
		lose := func(ctx context.Context) {
			lease, err := c.Mutex("x").Lock(ctx)
			require.NoError(t, err)
			require.NoError(t, lease.Renew(t.Context()))
			s.Mutex("x").ForceRelease()
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
		}
		id := strings.Repeat("é", prometheus.ExemplarMaxRunes-len("trace_id"))
		for _, none := range []any{nil, "\xff", id + "é"} {
			lose(context.WithValue(t.Context(), traceID{}, none))
		}
		assert.Empty(t, exemplars())
		lose(context.WithValue(t.Context(), traceID{}, id))
		assert.Equal(t, []string{
			"fairlock_hold_duration_seconds " + id, "fairlock_lease_losses_total " + id, "fairlock_lease_renewals_total " + id,
			"fairlock_wait_duration_seconds " + id,
		}, exemplars())
	})
}

// What an uncontended lock gives is counted without memory of its own.
func TestMetrics_NoAllocation(t *testing.T) {
	trace := promfairlock.New(promfairlock.Config{Name: func(lock string) string { return lock }}).Trace()
	e := fairlock.Event{Ctx: t.Context(), Namespace: "fairlock", Name: "x", Kind: "mutex"}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		trace.Granted(fairlock.GrantedInfo{Event: e})
		trace.Renewed(fairlock.RenewedInfo{Event: e})
		trace.Released(fairlock.ReleasedInfo{Event: e})
	}))
}

// The first use of a name costs the same, however many there are.
func TestMetrics_ManyNames(t *testing.T) {
	trace := promfairlock.New(promfairlock.Config{Name: func(lock string) string { return lock }}).Trace()
	used := func(from, to int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := from; i < to; i++ {
			trace.Queued(fairlock.QueuedInfo{Event: fairlock.Event{Namespace: "fairlock", Name: fmt.Sprint(i), Kind: "mutex"}})
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	first := used(0, 2000)
	assert.Less(t, used(2000, 4000), 2*first)
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
					Ctx: t.Context(), Namespace: "fairlock", Name: fmt.Sprint((i + j) % 8), Kind: "mutex",
				}})
			}
		})
	}
	workers.Wait()
	assert.Equal(t, want, values(t, metrics))
}

// After random faults, once everything rests, the gauges of each living client are what Inspect says, and in the end they are 0.
func TestMetrics_GaugesAfterFaults(t *testing.T) {
	t.Parallel()
	const clients, workersOfEach = 3, 4
	cfg := fairlocktest.ExploreConfig{Seeds: 12, Duration: 20 * time.Second, MaxOutage: 10 * time.Second}
	fairlocktest.Explore(t, cfg, func(t *testing.T, w *fairlocktest.World) {
		var all []client
		var workers sync.WaitGroup
		working, stopWork := context.WithCancel(t.Context())    // ends with the faults
		waiting, stopWaiting := context.WithCancel(t.Context()) // ends after the rest
		defer stopWork()
		defer stopWaiting()
		for i := range clients {
			c := counted(w.Client, promfairlock.Config{})
			all = append(all, c)
			for j := range workersOfEach {
				random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				workers.Go(func() { work(working, waiting, random, c) })
			}
		}
		time.Sleep(cfg.Duration)
		w.Heal()
		stopWork()
		time.Sleep(cfg.MaxOutage + fairlock.DefaultTTL + fairlock.DefaultWaiterTTL) // lost leases and crashed waiters expire
		synctest.Wait()

		want, have := map[string]float64{}, map[string]float64{}
		for _, c := range all {
			if errors.Is(c.Ping(t.Context()), fairlock.ErrClosed) {
				assert.Empty(t, gauges(t, c), "of a client that has crashed")
				continue
			}
			for kind, l := range map[string]fairlocktest.Lock{
				"mutex": w.Server.Mutex("x"), "semaphore": w.Server.Semaphore("x", 3), "rwmutex": w.Server.RWMutex("x"),
			} {
				s := l.State()
				for _, h := range s.Holders {
					if h.Client == c.Name() {
						want[c.Name()+" leases "+kind]++
					}
				}
				for _, w := range s.Waiters {
					if w.Client == c.Name() {
						want[c.Name()+" waiters "+kind]++
					}
				}
			}
			for name, value := range gauges(t, c) {
				have[c.Name()+" "+name] = value
			}
		}
		assert.NotEmpty(t, want)
		assert.Equal(t, want, have)

		stopWaiting()
		workers.Wait()
		synctest.Wait()
		for _, c := range all {
			assert.Empty(t, gauges(t, c))
		}
	})
}

// gauges returns those of a client that are not 0.
func gauges(t *testing.T, c client) map[string]float64 {
	t.Helper()
	all := values(t, c.metrics)
	maps.DeleteFunc(all, func(name string, _ float64) bool {
		return !strings.HasPrefix(name, "leases ") && !strings.HasPrefix(name, "waiters ")
	})
	return all
}

// work acquires locks until working ends, and then one more, which it keeps or waits for until waiting ends.
func work(working, waiting context.Context, random *rand.Rand, c client) {
	m, s, rw := c.Mutex("x"), c.Semaphore("x", 3), c.RWMutex("x")
	permits := func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, 1+random.IntN(3)) }
	blocking := []func(context.Context) (*fairlock.Lease, error){m.Lock, rw.Lock, rw.RLock, permits}
	all := append([]func(context.Context) (*fairlock.Lease, error){
		m.TryLock, m.WithMaxWaiters(2).Lock, m.WithMaxWait(time.Second).Lock, rw.TryRLock,
		func(ctx context.Context) (*fairlock.Lease, error) { return s.TryAcquire(ctx, 1) },
	}, blocking...)
	for working.Err() == nil {
		ctx, cancel := context.WithTimeout(waiting, time.Duration(random.IntN(5000))*time.Millisecond)
		lease, err := all[random.IntN(len(all))](ctx)
		cancel()
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		switch {
		case err != nil:
		case random.IntN(10) == 0:
			_ = lease.Detach() // its lock expires
		default:
			_ = lease.Unlock(waiting) // a fault may have ended it
		}
	}
	if lease, err := blocking[random.IntN(len(blocking))](waiting); err == nil {
		<-waiting.Done()
		_ = lease.Unlock(waiting)
	}
}
