// Command cachefill reads one entry of a cache in Redis from many goroutines of several clients at once. The entry is
// slow to compute, and computed once: who misses it waits in line, and finds it there.
//
//	go run ./cachefill -clients 4 -readers 100
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

func main() {
	clients := flag.Int("clients", 4, "clients, as if each were a process")
	readers := flag.Int("readers", 100, "readers of each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	computed, err := run(ctx, url, *clients, *readers)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cachefill:", err)
		os.Exit(1)
	}
	// 0 times if the entry of an earlier run has not expired.
	log.Printf("read %d times, computed %d times", *clients**readers, computed)
}

func run(ctx context.Context, url string, clients, readers int) (computed int64, err error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return 0, err
	}
	var count atomic.Int64
	report := func(ctx context.Context) (string, error) {
		count.Add(1)
		select {
		case <-time.After(200 * time.Millisecond):
			return "all is well", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, clients*readers)
	for i := range clients {
		rdb := redis.NewClient(options)
		defer rdb.Close()
		locks, err := fairlock.New(rdb, fairlock.Config{})
		if err != nil {
			return 0, err
		}
		defer locks.Close() // before rdb: the last deferred runs first
		cache := &Cache{rdb: rdb, locks: locks, lasts: 10 * time.Second}
		for j := range readers {
			wg.Go(func() { _, errs[i*readers+j] = cache.Get(ctx, "report", report) })
		}
	}
	wg.Wait()
	return count.Load(), errors.Join(errs...)
}
