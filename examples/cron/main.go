// Command cron is one of several replicas that have the same timetable. A job of theirs is due once a minute, and one
// of them does it: whose clock is the first. Start it in several terminals, also with a clock that is wrong.
//
//	go run ./cron -name one
//	go run ./cron -name two -clock 300ms
//	go run ./cron -name three -clock -300ms
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

func main() {
	name := flag.String("name", "replica", "this replica's name")
	clock := flag.Duration("clock", 0, "by how much this replica's clock is fast")
	period := flag.Duration("period", time.Minute, "time between two runs of the job")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	err := run(ctx, url, *name, *clock, *period, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, name string, fast, period time.Duration, out io.Writer) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	client, err := fairlock.New(rdb, fairlock.Config{Name: name})
	if err != nil {
		return err
	}
	defer client.Close() // before rdb: the last deferred runs first

	says := log.New(out, name+" ", log.Lmsgprefix)
	s := schedule{locks: client, job: "report", period: period, now: func() time.Time { return time.Now().Add(fast) }}
	s.run(ctx, func(ctx context.Context, due time.Time) error {
		lease, _ := fairlock.LeaseFromContext(ctx)
		says.Printf("does the job of %s, fence %d", due.Format(time.TimeOnly), lease.Fence())
		return ctx.Err()
	}, func(due time.Time, err error) {
		says.Printf("job of %s: %v", due.Format(time.TimeOnly), err)
	})
	return nil
}
