package fairlock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

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
	ctx, cancel := context.WithCancel(context.Background())
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var rdbs [clients]*redis.Client
	var ours [clients]*fairlock.Client
	for i := range clients {
		rdbs[i] = server.Client()
		_ = rdbs[i].Set(context.Background(), "warm"+strconv.Itoa(i), 1, 0)
		ours[i] = newClient(b, rdbs[i], fairlock.Config{})
	}
	b.Run("floor", func(b *testing.B) {
		run(b, func(i int, name string) error { return floorPair(ctx, rdbs[i], name, "token:"+name) })
	})
	b.Run("fairlock", func(b *testing.B) {
		run(b, func(i int, name string) error { return ourPair(ctx, ours[i], name) })
	})
}
