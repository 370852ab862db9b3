//go:build unix

package metrics_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/sys/unix"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// cpu is what this process has used of the processors.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkPair compares the CPU of an uncontended pair of Lock and Unlock with metrics and without, in turns.
func BenchmarkPair(b *testing.B) {
	name := func(string) string { return "group" }
	otels, err := otelfairlock.New(otelfairlock.Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), Name: name,
	})
	require.NoError(b, err)
	ours := promfairlock.New(promfairlock.Config{
		Name: name, Exemplar: func(context.Context) prometheus.Labels { return nil }, // of a span that is not sampled
	})
	for module, trace := range map[string]*fairlock.Trace{"otel": otels, "prometheus": ours.Trace()} {
		b.Run(module, func(b *testing.B) { benchmarkPair(b, trace) })
	}
}

func benchmarkPair(b *testing.B, trace *fairlock.Trace) {
	b.Helper()
	redis := redistest.Start(b)
	var locks [2]fairlock.Mutex
	for i, trace := range []*fairlock.Trace{nil, trace} {
		client, err := fairlock.New(redis.Client(), fairlock.Config{Trace: trace})
		require.NoError(b, err)
		b.Cleanup(func() { client.Close() })
		locks[i] = client.Mutex("account:" + strconv.Itoa(i))
	}
	var used [2]time.Duration
	const turn = 500 // pairs
	for n := 0; b.Loop(); n++ {
		for i := range 2 {
			which := (n + i) % 2
			before := cpu(b)
			for range turn {
				lease, err := locks[which].Lock(b.Context())
				require.NoError(b, err)
				require.NoError(b, lease.Unlock(b.Context()))
			}
			used[which] += cpu(b) - before
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, what := range []string{"µs-CPU/pair-without", "µs-CPU/pair-with"} {
		b.ReportMetric(float64(used[i].Nanoseconds())/1e3/float64(b.N*turn), what)
	}
	b.ReportMetric(100*(float64(used[1])/float64(used[0])-1), "%-more")
}

// BenchmarkLockCollector measures what a scrape of 1,000 locks costs Redis, by its own account: each is held, and 100
// wait for it.
func BenchmarkLockCollector(b *testing.B) {
	const locks, waiters = 1000, 100
	rdb := redistest.StartTCP(b).Client()
	client, err := fairlock.New(rdb, fairlock.Config{TTL: time.Hour, WaiterTTL: time.Hour})
	require.NoError(b, err)
	b.Cleanup(func() { client.Close() })
	var names []string
	for i := range locks {
		names = append(names, fmt.Sprint("lock:", i))
		m := client.Mutex(names[i])
		_, err := m.Lock(b.Context())
		require.NoError(b, err)
		for range waiters {
			go m.Lock(b.Context()) //nolint:errcheck // it waits until the end
		}
	}
	for client.Stats().Waiters < locks*waiters {
		time.Sleep(10 * time.Millisecond)
	}
	collector, err := promfairlock.NewLockCollector(rdb, promfairlock.LockConfig{Mutexes: names, Timeout: time.Minute})
	require.NoError(b, err)
	scrape := func() {
		ch := make(chan prometheus.Metric, 10*locks)
		collector.Collect(ch)
		require.Len(b, ch, 5*locks+1)
	}
	scrape() // loads the script
	require.NoError(b, rdb.ConfigResetStat(b.Context()).Err())
	for b.Loop() {
		scrape()
	}
	var calls int
	var total, each float64 // in µs
	_, err = fmt.Sscanf(redistest.Info(b, rdb, "commandstats", "cmdstat_evalsha_ro"),
		"calls=%d,usec=%f,usec_per_call=%f", &calls, &total, &each)
	require.NoError(b, err)
	b.ReportMetric(total/1000/float64(b.N), "ms-redis/scrape")
	b.ReportMetric(each, "µs-redis/script")
}
