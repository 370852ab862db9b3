package fairlock_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// The floor: what a lock with a token costs at the very least, two bare round trips.
var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func floorPair(ctx context.Context, rdb *redis.Client, name, token string) error {
	if err := rdb.Do(ctx, "set", name, token, "nx", "px", 10000).Err(); err != nil {
		return err
	}
	n, err := compareAndDelete.Run(ctx, rdb, []string{name}, token).Int()
	if err == nil && n != 1 {
		err = errors.New("not released")
	}
	return err
}

func ourPair(ctx context.Context, c *fairlock.Client, name string) error {
	lease, err := c.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// BenchmarkUncontended: lock and unlock one after the other, each on a name of its own.
func BenchmarkUncontended(b *testing.B) {
	server := redistest.StartTCP(b)
	rdb := server.Client()
	ours := newClient(b, server.Client(), fairlock.Config{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.Run("floor", func(b *testing.B) {
		for i := range b.N {
			if err := floorPair(ctx, rdb, b.Name()+strconv.Itoa(i), "token"+strconv.Itoa(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fairlock", func(b *testing.B) {
		for i := range b.N {
			if err := ourPair(ctx, ours, b.Name()+strconv.Itoa(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkParallel: 64 goroutines over 8 clients, each on names of its own.
func BenchmarkParallel(b *testing.B) {
	const goroutines, clients = 64, 8
	server := redistest.StartTCP(b)
	run := func(b *testing.B, pair func(client int, name string) error) {
		var next atomic.Int64
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				for {
					k := next.Add(1)
					if k > int64(b.N) {
						return
					}
					if err := pair(i%clients, b.Name()+strconv.FormatInt(k, 10)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var rdbs [clients]*redis.Client
	var ours [clients]*fairlock.Client
	for i := range clients {
		rdbs[i] = server.Client()
		ours[i] = newClient(b, rdbs[i], fairlock.Config{})
	}
	b.Run("floor", func(b *testing.B) {
		run(b, func(i int, name string) error { return floorPair(ctx, rdbs[i], name, "token:"+name) })
	})
	b.Run("fairlock", func(b *testing.B) {
		run(b, func(i int, name string) error { return ourPair(ctx, ours[i], name) })
	})
}

// BenchmarkHandoff: 64 contenders over 8 clients lock and unlock one name without a pause. The floor passes a message
// from client to client: one PUBLISH and one wake-up each, what a hand-over costs at the very least.
func BenchmarkHandoff(b *testing.B) {
	const contenders, clients = 64, 8
	server := redistest.StartTCP(b)
	b.Run("floor", func(b *testing.B) { relay(b, server, clients, b.N) })
	b.Run("fairlock", func(b *testing.B) {
		var mu sync.Mutex
		var grants []fairlock.GrantedInfo
		trace := &fairlock.Trace{Granted: func(g fairlock.GrantedInfo) {
			mu.Lock()
			defer mu.Unlock()
			grants = append(grants, g)
		}}
		var ours [clients]*fairlock.Client
		for i := range clients {
			ours[i] = newClient(b, server.Client(), fairlock.Config{Trace: trace})
		}
		observer := server.Client()
		before := commands(b, observer)
		var left atomic.Int64
		left.Store(int64(b.N))
		var unlocked time.Time // guarded by the lock
		waits := make([]time.Duration, 0, b.N)
		var wg sync.WaitGroup
		b.ResetTimer()
		for i := range contenders {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					lease, err := ours[i%clients].Mutex("x").Lock(context.Background())
					if err != nil {
						b.Error(err)
						return
					}
					waits = append(waits, time.Since(unlocked))
					unlocked = time.Now()
					if err := lease.Unlock(context.Background()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		b.ReportMetric(float64(commands(b, observer)-before)/float64(b.N), "commands/op")
		slices.Sort(waits)
		b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(disorder(grants)), "out-of-order")
	})
}

// relay passes a message from client to client, n times.
func relay(b *testing.B, server *redistest.Server, clients, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	channel := func(i int) string { return "relay" + strconv.Itoa(i%clients) }
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	for i := range clients {
		rdb := server.Client()
		sub := rdb.Subscribe(ctx, channel(i))
		if _, err := sub.Receive(ctx); err != nil {
			b.Fatal(err)
		}
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
	if err := server.Client().Publish(ctx, channel(0), "").Err(); err != nil {
		b.Fatal(err)
	}
	<-done
}

// disorder counts the grants of waiters that were overtaken.
func disorder(grants []fairlock.GrantedInfo) int {
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

// commands is how many commands clients have sent to the server, but for those that ask for it; scripts run others.
func commands(tb testing.TB, rdb *redis.Client) int {
	tb.Helper()
	return calls(tb, rdb, "evalsha") + calls(tb, rdb, "eval") + calls(tb, rdb, "subscribe") + calls(tb, rdb, "hello")
}

// BenchmarkIdleWaiters: 100 waiters over 8 clients behind one holder. The baseline polls every 50 ms.
func BenchmarkIdleWaiters(b *testing.B) {
	const waiters, clients, window = 100, 8, 4 * time.Second
	server := redistest.StartTCP(b)
	observer := server.Client()
	measure := func(b *testing.B, command string, wait func(ctx context.Context, client int)) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		base := redistest.Info(b, observer, "clients", "connected_clients")
		for i := range waiters {
			wg.Go(func() { wait(ctx, i%clients) })
		}
		time.Sleep(time.Second) // until all are queued, and idle
		before := calls(b, observer, command)
		time.Sleep(window) // what is measured
		b.ReportMetric(float64(calls(b, observer, command)-before)/window.Seconds(), "commands/s")
		from, _ := strconv.Atoi(base)
		to, _ := strconv.Atoi(redistest.Info(b, observer, "clients", "connected_clients"))
		b.ReportMetric(float64(to-from)/clients, "connections/client")
		cancel()
		wg.Wait()
	}
	b.Run("polling", func(b *testing.B) {
		var rdbs [clients]*redis.Client
		for i := range clients {
			rdbs[i] = server.Client()
		}
		observer.Set(context.Background(), "taken", 1, 0)
		measure(b, "set", func(ctx context.Context, i int) {
			for ctx.Err() == nil {
				_ = rdbs[i].SetNX(ctx, "taken", 1, time.Second).Err()
				time.Sleep(50 * time.Millisecond) // as who polls does
			}
		})
	})
	b.Run("fairlock", func(b *testing.B) {
		var ours [clients]*fairlock.Client
		for i := range clients {
			ours[i] = newClient(b, server.Client(), fairlock.Config{})
		}
		holder := newClient(b, server.Client(), fairlock.Config{})
		lease, err := holder.Mutex("x").Lock(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		measure(b, "evalsha", func(ctx context.Context, i int) { _, _ = ours[i].Mutex("x").Lock(ctx) })
		_ = lease.Unlock(context.Background())
	})
}

// BenchmarkCrashedHolder: how long after the TTL's end of a holder that never comes back the next one gets in. The
// baseline is the expiry itself: a bare key, asked for every millisecond.
func BenchmarkCrashedHolder(b *testing.B) {
	const ttl = 200 * time.Millisecond
	server := redistest.StartTCP(b)
	report := func(b *testing.B, late []time.Duration) {
		slices.Sort(late)
		b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-late-ms")
		b.ReportMetric(float64(late[len(late)-1].Microseconds())/1000, "max-late-ms")
	}
	ctx := context.Background()
	b.Run("expiry", func(b *testing.B) {
		rdb := server.Client()
		var late []time.Duration
		for range b.N {
			_ = rdb.Set(ctx, "k", 1, ttl).Err()
			end := time.Now().Add(ttl)
			for rdb.Exists(ctx, "k").Val() == 1 {
				time.Sleep(time.Millisecond) // no event tells of it
			}
			late = append(late, time.Since(end))
		}
		report(b, late)
	})
	b.Run("fairlock", func(b *testing.B) {
		crashing := newClient(b, server.Client(), fairlock.Config{TTL: ttl, NoRenewal: true})
		next := newClient(b, server.Client(), fairlock.Config{})
		var late []time.Duration
		for range b.N {
			if _, err := crashing.Mutex("x").Lock(ctx); err != nil {
				b.Fatal(err)
			}
			end := time.Now().Add(ttl)
			lease, err := next.Mutex("x").Lock(ctx)
			if err != nil {
				b.Fatal(err)
			}
			late = append(late, time.Since(end))
			_ = lease.Unlock(ctx)
		}
		report(b, late)
	})
}
