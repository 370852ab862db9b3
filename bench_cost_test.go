package fairlock_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// fill queues n waiters of one client behind a holder, as acquire would, but faster.
func fill(b *testing.B, rdb *redis.Client, n int) (lua.Lock, []token.Token) {
	b.Helper()
	ctx := context.Background()
	name := fmt.Sprintf("host-%d-abcd", os.Getpid())
	l := lua.Mutex(rdb, "fairlock", "x")
	holder, err := token.New(name)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := l.Acquire(ctx, lua.Request{Token: holder, TTL: time.Hour, WaiterTTL: time.Hour}); err != nil {
		b.Fatal(err)
	}
	k := lua.MutexKeys("fairlock", "x")
	now := time.Now().UnixMicro()
	tokens := []token.Token{holder}
	pipe := rdb.Pipeline()
	for i := range n {
		t, err := token.New(name)
		if err != nil {
			b.Fatal(err)
		}
		tokens = append(tokens, t)
		pipe.ZAdd(ctx, k.Queue, redis.Z{Score: float64(now + int64(i)), Member: t.Text()})
		pipe.ZAdd(ctx, k.Alive, redis.Z{Score: float64(now + time.Hour.Microseconds()), Member: t.Text()[len(t.Text())-14:]})
		if pipe.Len() >= 10000 || i == n-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	return l, tokens
}

// BenchmarkRedisMemory: what a waiter costs in Redis, beside the least, one entry of a sorted set.
func BenchmarkRedisMemory(b *testing.B) {
	for _, n := range []int{20_000, 35_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			server := redistest.Start(b)
			rdb, filler := server.Client(), server.Client()
			used := func() int {
				v, err := strconv.Atoi(redistest.Info(b, rdb, "memory", "used_memory"))
				if err != nil {
					b.Fatal(err)
				}
				return v
			}
			before := used()
			fill(b, filler, n)
			_ = filler.Close()          // and with it the buffers of the filling
			time.Sleep(2 * time.Second) // Redis finishes growing its tables
			both := used() - before
			rdb.Del(context.Background(), lua.MutexKeys("fairlock", "x").Alive)
			b.ReportMetric(float64(both)/float64(n), "B/waiter")
			b.ReportMetric(float64(used()-before)/float64(n), "B/entry")
		})
	}
}

// BenchmarkScriptTime: the server's time for one call with 100,000 waiters queued, beside one with 10; and how many
// calls took over 10 ms.
func BenchmarkScriptTime(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		rdb := redistest.Start(b).Client()
		ctx := context.Background()
		l, tokens := fill(b, rdb, n)
		if err := rdb.ConfigSet(ctx, "slowlog-log-slower-than", "10000").Err(); err != nil {
			b.Fatal(err)
		}
		holder := tokens[0]
		verbs := map[string]func() error{
			"join": func() error {
				t, err := token.New("c")
				if err == nil {
					_, err = l.Acquire(ctx, lua.Request{Token: t, TTL: time.Hour, WaiterTTL: time.Hour})
				}
				return err
			},
			"heartbeat of 1000": func() error {
				_, err := l.Heartbeat(ctx, time.Hour, time.Hour, tokens[1:min(len(tokens), 1+lua.MaxHeartbeat)])
				return err
			},
			"inspect": func() error { _, err := l.Inspect(ctx, fairlock.MaxInspected); return err },
			"release": func() error { // each waiter is the next to hold, until none is left
				h, err := l.Release(ctx, holder, time.Hour)
				if len(h.Grants) > 0 {
					holder = h.Grants[0].Token
				}
				return err
			},
		}
		for _, verb := range []string{"join", "heartbeat of 1000", "inspect", "release"} {
			b.Run(fmt.Sprintf("%s/%d", verb, n), func(b *testing.B) {
				rdb.ConfigResetStat(ctx)
				for range b.N {
					if err := verbs[verb](); err != nil {
						b.Fatal(err)
					}
				}
				slow, err := rdb.SlowLogGet(ctx, -1).Result()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(slow)), "slow")
			})
		}
	}
}

// BenchmarkLeaseMemory: what a held lease costs in this process, beside a bare timer, and how many goroutines 10,000
// of them need.
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
		ctx := context.Background()
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("account-%06d", i)
		}
		warm, err := c.Mutex("warm").Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		before, goroutines := heap(), runtime.NumGoroutine()
		leases := make([]*fairlock.Lease, n)
		for i := range leases {
			if leases[i], err = c.Mutex(names[i]).Lock(ctx); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((heap()-before)/n, "B/lease")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
		runtime.KeepAlive(warm)
		runtime.KeepAlive(leases)
	})
}
