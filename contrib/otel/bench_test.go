//go:build unix

package otelfairlock_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
)

// server starts a redis-server of this benchmark's own. A Unix socket costs this process less than TCP does, so what metrics add
// counts for more.
func server(b *testing.B) *redis.Client {
	b.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("there is no redis-server")
	}
	socket := filepath.Join(b.TempDir(), "socket")
	process := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "")
	require.NoError(b, process.Start())
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true})
	b.Cleanup(func() {
		_ = rdb.Close()
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	require.Eventually(b, func() bool { return rdb.Ping(b.Context()).Err() == nil }, 10*time.Second, 10*time.Millisecond)
	return rdb
}

// cpu returns what this process has used. The server is another process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkPair measures the CPU time of an uncontended pair of Lock and Unlock with metrics, beside one without a Trace. The two
// take turns, so what else the machine does befalls both.
func BenchmarkPair(b *testing.B) {
	rdb := server(b)
	trace, err := otelfairlock.New(otelfairlock.Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), TracerProvider: noop.NewTracerProvider(),
		Name: func(string) string { return "group" },
	})
	require.NoError(b, err)
	var mutexes [2]fairlock.Mutex
	for i, trace := range []*fairlock.Trace{nil, trace} {
		client, err := fairlock.New(rdb, fairlock.Config{Trace: trace})
		require.NoError(b, err)
		defer client.Close()
		mutexes[i] = client.Mutex(fmt.Sprint("x", i))
	}
	none := func(context.Context) error { return nil }
	var used [2]time.Duration
	const turn = 500 // pairs
	for n := 0; b.Loop(); n++ {
		for i := range 2 {
			which := (n + i) % 2
			before := cpu(b)
			for range turn {
				if err := mutexes[which].Do(b.Context(), none); err != nil {
					b.Fatal(err)
				}
			}
			used[which] += cpu(b) - before
		}
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(b.N*turn) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(used[0]), "µs-CPU/pair-without")
	b.ReportMetric(micros(used[1]), "µs-CPU/pair-with")
	b.ReportMetric(100*(float64(used[1])/float64(used[0])-1), "%-more")
}
