//go:build unix

package metrics_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
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
	server := redistest.StartTCP(b, "--slowlog-log-slower-than", "1000", "--slowlog-max-len", "10000")
	rdb := server.Client()
	fill(b, rdb, locks, waiters)
	var names []string
	for i := range locks {
		names = append(names, fmt.Sprint("lock:", i))
	}
	collector, err := promfairlock.NewLockCollector(rdb, promfairlock.LockConfig{Mutexes: names, Timeout: time.Minute})
	require.NoError(b, err)
	scrape := func() (n int) {
		ch := make(chan prometheus.Metric, 5*locks)
		collector.Collect(ch)
		return len(ch)
	}
	require.Equal(b, 4*locks+1, scrape()) // loads the script
	require.NoError(b, rdb.ConfigResetStat(b.Context()).Err())
	require.NoError(b, rdb.Do(b.Context(), "SLOWLOG", "RESET").Err())
	before := serverCPU(b, rdb)
	for b.Loop() {
		require.Equal(b, 4*locks+1, scrape())
	}
	used := serverCPU(b, rdb) - before
	stats := redistest.Info(b, rdb, "commandstats", "cmdstat_evalsha")
	_, usec, _ := strings.Cut(stats, "usec=")
	usec, _, _ = strings.Cut(usec, ",")
	total, err := strconv.ParseFloat(usec, 64)
	require.NoError(b, err)
	slow, err := rdb.SlowLogGet(b.Context(), -1).Result()
	require.NoError(b, err)
	var most time.Duration
	for _, s := range slow {
		most = max(most, s.Duration)
	}
	b.ReportMetric(1000*used/float64(b.N), "ms-cpu-redis/scrape")
	b.ReportMetric(total/1000/float64(b.N), "ms-redis/scrape")
	b.ReportMetric(float64(most.Microseconds()), "µs-redis/longest-over-1ms")
	b.ReportMetric(float64(len(slow)), "scripts-over-1ms")
}

// serverCPU is what the server's main thread has used of the processors, in seconds.
func serverCPU(b *testing.B, rdb *redis.Client) (sum float64) {
	b.Helper()
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		value, err := strconv.ParseFloat(redistest.Info(b, rdb, "cpu", field), 64)
		require.NoError(b, err)
		sum += value
	}
	return sum
}

// fill has each mutex lock:i held, and waited for.
func fill(b *testing.B, rdb *redis.Client, locks, waiters int) {
	b.Helper()
	client, err := fairlock.New(rdb, fairlock.Config{TTL: time.Hour, WaiterTTL: time.Hour})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	b.Cleanup(func() { cancel(); client.Close() })
	for i := range locks {
		m := client.Mutex(fmt.Sprint("lock:", i))
		lease, err := m.Lock(ctx)
		require.NoError(b, err)
		_ = lease
		for range waiters {
			go m.Lock(ctx) //nolint:errcheck // it waits until the end
		}
	}
	for client.Stats().Waiters < locks*waiters {
		time.Sleep(10 * time.Millisecond)
	}
}
