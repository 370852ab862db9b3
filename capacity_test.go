package fairlock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// usage is what a server has used since it was started.
type usage struct{ memory, cpu, received, sent, commands float64 }

func usageOf(b *testing.B, rdb *redis.Client) usage {
	b.Helper()
	info, err := rdb.Info(b.Context()).Result()
	check(b, err)
	field := func(name string) float64 {
		_, rest, found := strings.Cut(info, "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\r")
		n, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			b.Fatalf("INFO has no %s: %v", name, err)
		}
		return n
	}
	return usage{
		memory:   field("used_memory") - field("mem_clients_normal"),
		cpu:      1e6 * (field("used_cpu_sys") + field("used_cpu_user")),
		received: field("total_net_input_bytes"), sent: field("total_net_output_bytes"),
		commands: float64(commands(b, rdb)),
	}
}

// BenchmarkCapacity measures what each operation costs the server. docs/capacity.md has the figures.
func BenchmarkCapacity(b *testing.B) {
	server := redistest.Start(b, "--appendonly", "no")
	observer := server.Client()
	name := func(i int) string { return fmt.Sprintf("account-%08d", i) }
	begin := func(b *testing.B) []*fairlock.Client {
		b.Helper()
		check(b, observer.FlushAll(b.Context()).Err())
		return clients(b, server, nil)
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
			_, err := all[i%benchClients].Mutex(name(call)).WithTTL(time.Hour).Lock(context.Background())
			return err
		})
	})
	b.Run("renewal", func(b *testing.B) {
		leases := make([]*fairlock.Lease, 1000)
		for i, c := 0, begin(b)[0]; i < len(leases); i++ {
			var err error
			leases[i], err = c.Mutex(name(i)).Lock(context.Background())
			check(b, err)
		}
		measure(b, contenders, func(_, call int) error { return leases[call%len(leases)].Renew(context.Background()) })
	})
	for _, kind := range benchKinds {
		b.Run("handoff/"+kind.name, func(b *testing.B) {
			all := begin(b)
			measure(b, contenders, func(i, _ int) error {
				lease, err := kind.acquire(all[i%benchClients], "x")
				if err != nil {
					return err
				}
				return lease.Unlock(context.Background())
			})
		})
	}

	// The tokens are as long as those of a client with the default name on a host with one of 16 characters.
	tokens := func(n int) []token.Token {
		ts := make([]token.Token, n)
		for i := range ts {
			var err error
			ts[i], err = token.New("billing-7d4f9c6b-1-abcdef", fairlock.DefaultTTL)
			check(b, err)
		}
		return ts
	}
	queue := lua.Mutex(observer, "fairlock", "x")
	held, err := token.New("billing-7d4f9c6b-1-abcdef", time.Hour)
	check(b, err)
	wait := func(t token.Token) error {
		_, err := queue.Acquire(context.Background(), lua.Request{Token: t, WaiterTTL: time.Hour})
		return err
	}
	b.Run("waiter", func(b *testing.B) {
		begin(b)
		all := tokens(b.N)
		check(b, wait(held))
		measure(b, contenders, func(_, call int) error { return wait(all[call-1]) })
	})
	const queued = 20_000
	for _, h := range []struct{ from, listed int }{{0, 1}, {queued / 2, 1}, {queued / 2, 25}, {queued / 2, lua.MaxHeartbeat}} {
		b.Run(fmt.Sprintf("heartbeat/%d waiters behind %d", h.listed, h.from), func(b *testing.B) {
			begin(b)
			all := tokens(queued)
			check(b, wait(held))
			for _, t := range all {
				check(b, wait(t))
			}
			measure(b, 1, func(int, int) error {
				_, err := queue.Heartbeat(context.Background(), time.Hour, all[h.from:h.from+h.listed])
				return err
			})
		})
	}
}
