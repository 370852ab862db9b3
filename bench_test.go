package fairlock_test

import (
	"cmp"
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
)

// Each benchmark has a baseline that is measured in the same run. docs/benchmarks.md explains them.

// benchKinds are the ways to acquire a lock, a mutex first.
var benchKinds = []struct {
	name    string
	acquire func(c *fairlock.Client, name string) (*fairlock.Lease, error)
}{
	{"mutex", func(c *fairlock.Client, name string) (*fairlock.Lease, error) {
		return c.Mutex(name).Lock(context.Background())
	}},
	{"semaphore", func(c *fairlock.Client, name string) (*fairlock.Lease, error) {
		return c.Semaphore(name, 5).Acquire(context.Background(), 1)
	}},
	{"read", func(c *fairlock.Client, name string) (*fairlock.Lease, error) {
		return c.RWMutex(name).RLock(context.Background())
	}},
	{"write", func(c *fairlock.Client, name string) (*fairlock.Lease, error) {
		return c.RWMutex(name).Lock(context.Background())
	}},
}

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

// BenchmarkUncontended locks and unlocks, each time a name of its own: by one goroutine, and by 64 over 8 clients.
func BenchmarkUncontended(b *testing.B) {
	server := redistest.StartTCP(b)
	all, rdbs := clients(b, server, nil), make([]*redis.Client, benchClients)
	for i := range rdbs {
		rdbs[i] = server.Client()
	}
	for _, goroutines := range []int{1, contenders} {
		b.Run(fmt.Sprint("floor/", goroutines), func(b *testing.B) {
			contend(b, goroutines, func(i, call int) error {
				name := b.Name() + strconv.Itoa(call)
				return barePair(b.Context(), rdbs[i%benchClients], name, "token:"+name)
			})
		})
		b.Run(fmt.Sprint("fairlock/", goroutines), func(b *testing.B) {
			contend(b, goroutines, func(i, call int) error {
				return pairOf(b.Context(), all[i%benchClients], b.Name()+strconv.Itoa(call))
			})
		})
	}
}

// BenchmarkKindsUncontended is the rate of each kind relative to the mutex, in turn, so that what disturbs one disturbs
// all.
func BenchmarkKindsUncontended(b *testing.B) {
	c := newClient(b, redistest.StartTCP(b).Client(), fairlock.Config{})
	took := make([]time.Duration, len(benchKinds))
	for i := range b.N {
		for k, kind := range benchKinds {
			start := time.Now()
			lease, err := kind.acquire(c, strconv.Itoa(i))
			check(b, err)
			check(b, lease.Unlock(b.Context()))
			took[k] += time.Since(start)
		}
	}
	for k, kind := range benchKinds[1:] {
		b.ReportMetric(float64(took[0])/float64(took[k+1]), kind.name+"/mutex")
	}
}

// BenchmarkHandoff has 64 contenders over 8 clients lock and unlock one name without a pause. The floor passes a message
// from client to client: one PUBLISH each, the least that a handoff costs.
func BenchmarkHandoff(b *testing.B) {
	server := redistest.StartTCP(b)
	b.Run("floor", func(b *testing.B) { relay(b, server, b.N) })
	for _, kind := range benchKinds[:2] {
		b.Run(kind.name, func(b *testing.B) {
			var mu sync.Mutex
			var grants []fairlock.GrantedInfo
			all := clients(b, server, &fairlock.Trace{Granted: func(g fairlock.GrantedInfo) {
				mu.Lock()
				defer mu.Unlock()
				grants = append(grants, g)
			}})
			observer := server.Client()
			before := commands(b, observer)
			var unlocked time.Time // guarded by mu
			waits := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			contend(b, contenders, func(i, _ int) error {
				lease, err := kind.acquire(all[i%benchClients], "x")
				if err != nil {
					return err
				}
				mu.Lock()
				waits = append(waits, time.Since(unlocked))
				unlocked = time.Now()
				mu.Unlock()
				return lease.Unlock(context.Background())
			})
			b.StopTimer()
			b.ReportMetric(float64(commands(b, observer)-before)/float64(b.N), "commands/op")
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-µs") // of a mutex: from Unlock to the next one
			b.ReportMetric(float64(outOfOrder(grants)), "out-of-order")
		})
	}
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

// outOfOrder counts the grants of waiters that were overtaken.
func outOfOrder(grants []fairlock.GrantedInfo) int {
	slices.SortFunc(grants, func(a, b fairlock.GrantedInfo) int { return cmp.Compare(a.Fence, b.Fence) })
	n, last := 0, uint64(0)
	for _, g := range grants {
		if g.Ticket != 0 && g.Ticket < last {
			n++
		}
		last = max(last, g.Ticket)
	}
	return n
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
