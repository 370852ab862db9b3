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
	"golang.org/x/sys/unix"

	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// cpu is what this process has used of the processors.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkMetrics compares the CPU of an uncontended pair of Lock and Unlock with metrics and without, in turns.
func BenchmarkMetrics(b *testing.B) {
	redis := redistest.StartTCP(b)
	metrics := promfairlock.New(promfairlock.Config{
		Name:     func(lock string) string { before, _, _ := strings.Cut(lock, ":"); return before },
		Exemplar: func(context.Context) prometheus.Labels { return nil }, // of a span that is not sampled
	})
	var used [2]time.Duration
	var locks [2]fairlock.Mutex
	for i, trace := range []*fairlock.Trace{nil, metrics.Trace()} {
		client, err := fairlock.New(redis.Client(), fairlock.Config{Trace: trace})
		require.NoError(b, err)
		b.Cleanup(func() { client.Close() })
		locks[i] = client.Mutex("account:" + strconv.Itoa(i))
	}
	pair := func(m fairlock.Mutex) {
		lease, err := m.Lock(b.Context())
		require.NoError(b, err)
		require.NoError(b, lease.Unlock(b.Context()))
	}
	const turn = 500
	for i := range locks {
		pair(locks[i]) // connects
	}
	for done := 0; done < b.N; done += 2 * turn {
		for i := range locks {
			which := (i + done/(2*turn)) % 2
			began := cpu(b)
			for range turn {
				pair(locks[which])
			}
			used[which] += cpu(b) - began
		}
	}
	turns := (b.N + 2*turn - 1) / (2 * turn)
	b.ReportMetric(float64(used[0].Nanoseconds())/float64(turns*turn), "ns-cpu/pair-without")
	b.ReportMetric(float64(used[1].Nanoseconds())/float64(turns*turn), "ns-cpu/pair-with")
	b.ReportMetric(100*(float64(used[1])/float64(used[0])-1), "%-more")
}

// BenchmarkLockCollector measures what a scrape of 1,000 locks costs Redis, by its own account: each is held, and 100 wait for it.
func BenchmarkLockCollector(b *testing.B) {
	const locks, waiters = 1000, 100
	server := redistest.StartTCP(b, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
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
	for b.Loop() {
		require.Equal(b, 4*locks+1, scrape())
	}
	stats := redistest.Info(b, rdb, "commandstats", "cmdstat_evalsha")
	_, usec, _ := strings.Cut(stats, "usec=")
	usec, _, _ = strings.Cut(usec, ",")
	total, err := strconv.ParseFloat(usec, 64)
	require.NoError(b, err)
	slow, err := rdb.SlowLogGet(b.Context(), -1).Result()
	require.NoError(b, err)
	var most time.Duration
	over := 0
	for _, s := range slow {
		if strings.EqualFold(s.Args[0], "evalsha") {
			most = max(most, s.Duration)
			if s.Duration >= time.Millisecond {
				over++
			}
		}
	}
	b.ReportMetric(total/1000/float64(b.N), "ms-redis/scrape")
	b.ReportMetric(float64(most.Microseconds()), "µs-redis/longest")
	b.ReportMetric(float64(over), "scripts-over-1ms")
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
