package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// Each benchmark has a baseline that is measured in the same run. docs/benchmarks.md explains them. BenchmarkCapacity
// has the pairs of Lock and Unlock, and the handoffs; fairlock bench measures how long these take.

const (
	contenders   = 64
	benchClients = 8
)

// contend has b.N calls of f made by so many goroutines.
func contend(b *testing.B, goroutines int, f func(goroutine, call int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for call := next.Add(1); call <= int64(b.N); call = next.Add(1) {
				if err := f(i, int(call)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// The least that a lock with a token costs: two bare round trips.
var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func barePair(ctx context.Context, rdb *redis.Client, name, token string) error {
	if err := rdb.Do(ctx, "set", name, token, "nx", "px", 10000).Err(); err != nil {
		return err
	}
	n, err := compareAndDelete.Run(ctx, rdb, []string{name}, token).Int()
	if err == nil && n != 1 {
		err = errors.New("not released")
	}
	return err
}

func pairOf(ctx context.Context, c *fairlock.Client, name string) error {
	lease, err := c.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// BenchmarkLeaseMemory measures what a held lease costs in this process, beside a bare timer, and how many goroutines
// 10,000 of them need.
func BenchmarkLeaseMemory(b *testing.B) {
	const n = 10_000
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	b.Run("timer", func(b *testing.B) {
		before := heap()
		timers := make([]*time.Timer, n)
		for i := range timers {
			timers[i] = time.AfterFunc(time.Hour, func() {})
		}
		b.ReportMetric((heap()-before)/n, "B/lease")
		for _, t := range timers {
			t.Stop()
		}
	})
	b.Run("fairlock", func(b *testing.B) {
		c := newClient(b, redistest.Start(b).Client(), fairlock.Config{TTL: time.Hour})
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("account-%06d", i)
		}
		require.NoError(b, pairOf(b.Context(), c, "warm"))
		before, goroutines := heap(), runtime.NumGoroutine()
		leases := make([]*fairlock.Lease, n)
		for i := range leases {
			var err error
			leases[i], err = c.Mutex(names[i]).Lock(b.Context())
			require.NoError(b, err)
		}
		b.ReportMetric((heap()-before)/n, "B/lease")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
		runtime.KeepAlive(leases)
	})
}

// usage is what a server has used since it was started.
type usage struct{ memory, cpu, received, sent, commands float64 }

func usageOf(b *testing.B, rdb *redis.Client) usage {
	b.Helper()
	info, err := rdb.Info(b.Context(), "all").Result()
	require.NoError(b, err)
	number := func(before, after string) float64 { // 0: it is not there
		_, rest, _ := strings.Cut(info, "\n"+before)
		value, _, _ := strings.Cut(rest, after)
		n, _ := strconv.ParseFloat(value, 64)
		return n
	}
	field := func(name string) float64 {
		if !strings.Contains(info, "\n"+name+":") {
			b.Fatal("INFO has no " + name)
		}
		return number(name+":", "\r")
	}
	calls := func(command string) float64 { return number("cmdstat_"+command+":calls=", ",") } // not by scripts
	return usage{
		memory:   field("used_memory") - field("mem_clients_normal"),
		cpu:      1e6 * (field("used_cpu_sys") + field("used_cpu_user")),
		received: field("total_net_input_bytes"), sent: field("total_net_output_bytes"),
		commands: calls("evalsha") + calls("eval") + calls("subscribe") + calls("hello"),
	}
}

// BenchmarkCapacity measures what each operation costs the server. docs/operating.md, Capacity, has the figures.
func BenchmarkCapacity(b *testing.B) {
	server := redistest.Start(b, "--appendonly", "no")
	observer := server.Client()
	name := func(i int) string { return fmt.Sprintf("account-%08d", i) }
	begin := func(b *testing.B) []*fairlock.Client {
		b.Helper()
		require.NoError(b, observer.FlushAll(b.Context()).Err())
		all := make([]*fairlock.Client, benchClients)
		for i := range all {
			all[i] = newClient(b, server.Client(), fairlock.Config{})
		}
		return all
	}
	// measure reports what b.N calls of f by so many goroutines cost.
	measure := func(b *testing.B, goroutines int, f func(goroutine, call int) error) {
		b.Helper()
		before := usageOf(b, observer)
		b.ResetTimer()
		contend(b, goroutines, f)
		b.StopTimer()
		after, n := usageOf(b, observer), float64(b.N)
		b.ReportMetric((after.cpu-before.cpu)/n, "server-µs/op")
		b.ReportMetric((after.commands-before.commands)/n, "scripts/op")
		b.ReportMetric((after.received-before.received)/n, "received-B/op")
		b.ReportMetric((after.sent-before.sent)/n, "sent-B/op")
		b.ReportMetric((after.memory-before.memory)/n, "kept-B/op")
	}
	for _, goroutines := range []int{1, contenders} {
		b.Run(fmt.Sprint("floor/", goroutines), func(b *testing.B) {
			rdbs := make([]*redis.Client, benchClients)
			for i := range rdbs {
				rdbs[i] = server.Client()
			}
			measure(b, goroutines, func(i, call int) error {
				return barePair(b.Context(), rdbs[i%benchClients], name(call), "token:"+name(call))
			})
		})
		b.Run(fmt.Sprint("pair/", goroutines), func(b *testing.B) {
			all := begin(b)
			measure(b, goroutines, func(i, call int) error {
				return pairOf(b.Context(), all[i%benchClients], name(call))
			})
		})
	}
	b.Run("lock", func(b *testing.B) {
		all := begin(b)
		measure(b, contenders, func(i, call int) error {
			_, err := all[i%benchClients].Mutex(name(call), fairlock.WithTTL(time.Hour)).Lock(context.Background())
			return err
		})
	})
	b.Run("renewal", func(b *testing.B) {
		leases := make([]*fairlock.Lease, 1000)
		for i, c := 0, begin(b)[0]; i < len(leases); i++ {
			var err error
			leases[i], err = c.Mutex(name(i)).Lock(context.Background())
			require.NoError(b, err)
		}
		measure(b, contenders, func(_, call int) error { return leases[call%len(leases)].Renew(context.Background()) })
	})
	for _, kind := range []struct{ name, share, of string }{
		{"mutex", "1", "mutex"}, {"semaphore", "1", "semaphore"}, {"read", "r", "rwmutex"}, {"write", "w", "rwmutex"},
	} {
		b.Run("handoff/"+kind.name, func(b *testing.B) {
			all := begin(b)
			measure(b, contenders, func(i, _ int) error {
				lease, err := locks[kind.of](all[i%benchClients]).acquire(kind.share)(b.Context())
				if err == nil {
					err = lease.Unlock(b.Context())
				}
				return err
			})
		})
	}

	// The tokens are as long as those of a client with the default name on a host with one of 16 characters.
	some := func(n int) []token.Token {
		ts := make([]token.Token, n)
		for i := range ts {
			var err error
			ts[i], err = token.Parse(tokens.New("billing-7d4f9c6b-1-abcdef", tokens.Terms{TTL: bounds.DefaultTTL, Weight: 1}))
			require.NoError(b, err)
		}
		return ts
	}
	queue, _ := script.Of(dispatch.NewDirect(observer), "mutex", "fairlock", "x")
	held, err := token.Parse(tokens.New("billing-7d4f9c6b-1-abcdef", tokens.Terms{TTL: time.Hour, Weight: 1}))
	require.NoError(b, err)
	wait := func(t token.Token) error {
		_, err := queue.Acquire(context.Background(), script.Request{Token: t, WaiterTTL: time.Hour})
		return err
	}
	b.Run("waiter", func(b *testing.B) {
		begin(b)
		all := some(b.N)
		require.NoError(b, wait(held))
		measure(b, contenders, func(_, call int) error { return wait(all[call-1]) })
	})
	const queued = 20_000
	for _, h := range []struct{ from, listed int }{{0, 1}, {queued / 2, 1}, {queued / 2, 25},
		{queued / 2, script.MaxHeartbeat}} {
		b.Run(fmt.Sprintf("heartbeat/%d waiters behind %d", h.listed, h.from), func(b *testing.B) {
			begin(b)
			all := some(queued)
			require.NoError(b, wait(held))
			for _, t := range all {
				require.NoError(b, wait(t))
			}
			measure(b, 1, func(int, int) error {
				_, err := queue.Heartbeat(context.Background(), time.Hour, all[h.from:h.from+h.listed])
				return err
			})
		})
	}
}
