package fairlock_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// kinds are the ways to take and give back one lock, a mutex first.
var kinds = []struct {
	name string
	lock func(c *fairlock.Client, name string) (*fairlock.Lease, error)
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

// BenchmarkKindsUncontended: acquire and unlock one after the other, each on a name of its own, the kinds in turn so
// that what disturbs one disturbs all. The baseline is the mutex; x/mutex is the rate relative to it.
func BenchmarkKindsUncontended(b *testing.B) {
	server := redistest.StartTCP(b)
	c := newClient(b, server.Client(), fairlock.Config{})
	took := make([]time.Duration, len(kinds))
	for i := range b.N {
		for k, kind := range kinds {
			start := time.Now()
			lease, err := kind.lock(c, strconv.Itoa(i))
			if err == nil {
				err = lease.Unlock(context.Background())
			}
			if err != nil {
				b.Fatal(err)
			}
			took[k] += time.Since(start)
		}
	}
	for k, kind := range kinds[1:] {
		b.ReportMetric(float64(took[0])/float64(took[k+1]), kind.name+"/mutex")
	}
}

// BenchmarkKindsHandoff: 64 contenders over 8 clients acquire and unlock one name without a pause.
func BenchmarkKindsHandoff(b *testing.B) {
	const contenders, clients = 64, 8
	server := redistest.StartTCP(b)
	for _, kind := range kinds[:2] {
		b.Run(kind.name, func(b *testing.B) {
			var mu sync.Mutex
			var grants []fairlock.GrantedInfo
			var ours [clients]*fairlock.Client
			for i := range clients {
				ours[i] = newClient(b, server.Client(), fairlock.Config{Trace: &fairlock.Trace{
					Granted: func(g fairlock.GrantedInfo) {
						mu.Lock()
						defer mu.Unlock()
						grants = append(grants, g)
					},
				}})
			}
			observer := server.Client()
			before := commands(b, observer)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for i := range contenders {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						lease, err := kind.lock(ours[i%clients], "x")
						if err == nil {
							err = lease.Unlock(context.Background())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(commands(b, observer)-before)/float64(b.N), "commands/op")
			b.ReportMetric(float64(disorder(grants)), "out-of-order")
		})
	}
}

// BenchmarkReaders: 1,000 readers over 8 clients queue behind a writer: from its Unlock until the last of them is in.
// The baseline passes one message on, a thousand times.
func BenchmarkReaders(b *testing.B) {
	const readers, clients = 1000, 8
	server := redistest.StartTCP(b)
	b.Run("messages", func(b *testing.B) {
		relay(b, server, clients, b.N*readers)
	})
	b.Run("fairlock", func(b *testing.B) { admitReaders(b, server, readers, clients) })
}

func admitReaders(b *testing.B, server *redistest.Server, readers, clients int) {
	ours := make([]*fairlock.Client, clients)
	for i := range clients {
		ours[i] = newClient(b, server.Client(), fairlock.Config{})
	}
	observer := server.Client()
	var took []time.Duration
	sent := 0
	for range b.N {
		before := commands(b, observer)
		write, err := ours[0].RWMutex("x").Lock(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		var in, out sync.WaitGroup
		in.Add(readers)
		for i := range readers {
			out.Go(func() {
				lease, err := ours[i%clients].RWMutex("x").RLock(context.Background())
				in.Done()
				if err == nil {
					in.Wait() // all read at once
					err = lease.Unlock(context.Background())
				}
				if err != nil {
					b.Error(err)
				}
			})
		}
		for asked := 0; ; asked++ {
			s, err := ours[0].RWMutex("x").Inspect(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if s.Waiting == readers {
				sent -= asked + 1 // these were the benchmark's
				break
			}
			time.Sleep(5 * time.Millisecond) // no event tells who is queued
		}
		start := time.Now()
		if err := write.Unlock(context.Background()); err != nil {
			b.Fatal(err)
		}
		in.Wait()
		took = append(took, time.Since(start))
		out.Wait()
		sent += commands(b, observer) - before
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
	b.ReportMetric(float64(sent)/float64(b.N)/float64(readers), "commands/reader")
}
