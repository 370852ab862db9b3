package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Each benchmark has a baseline that is measured in the same run. docs/benchmarks.md explains them. BenchmarkCapacity has the
// pairs of Lock and Unlock, and the handoffs; fairlock bench measures how long these take.

const (
	contenders   = 64
	benchClients = 8
)

// clients returns as many clients as contend.
func clients(b *testing.B, server *redistest.Server, trace *fairlock.Trace) []*fairlock.Client {
	b.Helper()
	all := make([]*fairlock.Client, benchClients)
	for i := range all {
		all[i] = newClient(b, server.Client(), fairlock.Config{Trace: trace})
	}
	return all
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

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

// relay passes a message from client to client, n times.
func relay(b *testing.B, server *redistest.Server, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	channel := func(i int) string { return "relay" + strconv.Itoa(i%benchClients) }
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	for i := range benchClients {
		rdb := server.Client()
		sub := rdb.Subscribe(ctx, channel(i))
		_, err := sub.Receive(ctx)
		check(b, err)
		defer func() { _ = sub.Close() }()
		go func() {
			for {
				if _, err := sub.ReceiveMessage(ctx); err != nil {
					return
				}
				if left.Add(-1) <= 0 {
					close(done)
					return
				}
				_ = rdb.Publish(ctx, channel(i+1), "").Err()
			}
		}()
	}
	b.ResetTimer()
	check(b, server.Client().Publish(ctx, channel(0), "").Err())
	<-done
}

// calls is how often a command was sent to the server.
func calls(tb testing.TB, rdb *redis.Client, command string) int {
	tb.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	digits, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(digits) // 0: it is not there
	return n
}

// commands is how many commands were sent to the server, but for those that observe it. Those of scripts do not count.
func commands(tb testing.TB, rdb *redis.Client) int {
	tb.Helper()
	return calls(tb, rdb, "evalsha") + calls(tb, rdb, "eval") + calls(tb, rdb, "subscribe") + calls(tb, rdb, "hello")
}

// BenchmarkReaders measures, for 1,000 readers over 8 clients behind a writer, the time from its Unlock until the last of
// them is in. The baseline passes a message on, a thousand times.
func BenchmarkReaders(b *testing.B) {
	const readers = 1000
	server := redistest.StartTCP(b)
	b.Run("messages", func(b *testing.B) { relay(b, server, b.N*readers) })
	b.Run("fairlock", func(b *testing.B) {
		all, observer := clients(b, server, nil), server.Client()
		var took []time.Duration
		sent := 0
		for range b.N {
			before := commands(b, observer)
			m := all[0].RWMutex("x")
			write, err := m.Lock(b.Context())
			check(b, err)
			var in, out sync.WaitGroup
			in.Add(readers)
			for i := range readers {
				out.Go(func() {
					lease, err := all[i%benchClients].RWMutex("x").RLock(b.Context())
					in.Done()
					if err == nil {
						in.Wait() // all read at once
						err = lease.Unlock(b.Context())
					}
					if err != nil {
						b.Error(err)
					}
				})
			}
			for waiting := 0; waiting < readers; time.Sleep(5 * time.Millisecond) { // no event tells of it
				s, err := m.Inspect(b.Context())
				check(b, err)
				waiting = s.Waiting
				sent-- // this is the benchmark's own
			}
			start := time.Now()
			check(b, write.Unlock(b.Context()))
			in.Wait()
			took = append(took, time.Since(start))
			out.Wait()
			sent += commands(b, observer) - before
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
		b.ReportMetric(float64(sent)/float64(b.N)/readers, "commands/reader")
	})
}

// BenchmarkIdleWaiters has 100 waiters over 8 clients behind one holder. The baseline polls every 50 ms.
func BenchmarkIdleWaiters(b *testing.B) {
	const waiters, window = 100, 4 * time.Second
	server := redistest.StartTCP(b)
	observer := server.Client()
	connections := func() int {
		n, _ := strconv.Atoi(redistest.Info(b, observer, "clients", "connected_clients"))
		return n
	}
	measure := func(b *testing.B, command string, wait func(ctx context.Context, client int)) {
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		connected := connections()
		for i := range waiters {
			wg.Go(func() { wait(ctx, i%benchClients) })
		}
		time.Sleep(time.Second) // until all are queued, and idle
		before := calls(b, observer, command)
		time.Sleep(window) // what is measured
		b.ReportMetric(float64(calls(b, observer, command)-before)/window.Seconds(), "commands/s")
		b.ReportMetric(float64(connections()-connected)/benchClients, "connections/client")
		cancel()
		wg.Wait()
	}
	b.Run("polling", func(b *testing.B) {
		rdbs := make([]*redis.Client, benchClients)
		for i := range rdbs {
			rdbs[i] = server.Client()
		}
		check(b, observer.Set(b.Context(), "taken", 1, 0).Err())
		measure(b, "set", func(ctx context.Context, i int) {
			for ctx.Err() == nil {
				_ = rdbs[i].SetNX(ctx, "taken", 1, time.Second).Err()
				time.Sleep(50 * time.Millisecond) // between two polls
			}
		})
	})
	b.Run("fairlock", func(b *testing.B) {
		all := clients(b, server, nil)
		lease, err := newClient(b, server.Client(), fairlock.Config{}).Mutex("x").Lock(b.Context())
		check(b, err)
		measure(b, "evalsha", func(ctx context.Context, i int) { _, _ = all[i].Mutex("x").Lock(ctx) })
		check(b, lease.Unlock(b.Context()))
	})
}

// BenchmarkCrashedHolder measures how long after the end of a crashed holder's TTL the next one gets in. The baseline is
// the expiry itself: a bare key, looked at every millisecond.
func BenchmarkCrashedHolder(b *testing.B) {
	const ttl = 200 * time.Millisecond
	server := redistest.StartTCP(b)
	measure := func(b *testing.B, crash, next func()) {
		var late []time.Duration
		for range b.N {
			crash()
			end := time.Now().Add(ttl)
			next()
			late = append(late, time.Since(end))
		}
		slices.Sort(late)
		b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-late-ms")
		b.ReportMetric(float64(late[len(late)-1].Microseconds())/1000, "max-late-ms")
	}
	b.Run("expiry", func(b *testing.B) {
		rdb := server.Client()
		measure(b, func() { check(b, rdb.Set(b.Context(), "k", 1, ttl).Err()) }, func() {
			for rdb.Exists(b.Context(), "k").Val() == 1 {
				time.Sleep(time.Millisecond) // no event tells of it
			}
		})
	})
	b.Run("fairlock", func(b *testing.B) {
		crashing := newClient(b, server.Client(), fairlock.Config{TTL: ttl, NoRenewal: true}).Mutex("x")
		next := newClient(b, server.Client(), fairlock.Config{})
		measure(b, func() {
			_, err := crashing.Lock(b.Context())
			check(b, err)
		}, func() { check(b, pairOf(b.Context(), next, "x")) })
	})
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
		check(b, pairOf(b.Context(), c, "warm"))
		before, goroutines := heap(), runtime.NumGoroutine()
		leases := make([]*fairlock.Lease, n)
		for i := range leases {
			var err error
			leases[i], err = c.Mutex(names[i]).Lock(b.Context())
			check(b, err)
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
	for _, kind := range []struct {
		name, share string
		of          func(*fairlock.Client) lockUnderTest
	}{{"mutex", "1", locks[0]}, {"semaphore", "1", locks[1]}, {"read", "r", locks[2]}, {"write", "w", locks[2]}} {
		b.Run("handoff/"+kind.name, func(b *testing.B) {
			all := begin(b)
			measure(b, contenders, func(i, _ int) error {
				lease, err := kind.of(all[i%benchClients]).acquire(kind.share)(b.Context())
				if err == nil {
					err = lease.Unlock(b.Context())
				}
				return err
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
