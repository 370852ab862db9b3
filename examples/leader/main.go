// Command leader is one of several workers of which one leads. Start it in several terminals and kill the leader: the
// one that has waited longest takes over, after the rest of the dead one's TTL.
//
//	go run ./leader -name one
//	go run ./leader -name two
package main

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/fairlock/fairlock-go/leader"
)

func main() {
	name := flag.String("name", "worker", "this worker's name")
	ttl := flag.Duration("ttl", 2*time.Second, "for how long the others wait for a leader that has crashed")
	step := flag.Duration("step", 500*time.Millisecond, "time between two steps of the leader")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	err := run(ctx, url, *name, *ttl, *step, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, name string, ttl, step time.Duration, out io.Writer) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	says := log.New(out, name+" ", log.Lmsgprefix)
	client, err := fairlock.New(rdb, fairlock.Config{
		Name: name, TTL: ttl,
		Trace: &fairlock.Trace{Queued: func(fairlock.QueuedInfo) { says.Print("waits") }},
	})
	if err != nil {
		return err
	}
	defer client.Close() // before rdb: the last deferred runs first

	elector := leader.New(client, "leader", leader.Config{
		Elected: func(_ context.Context, lease *fairlock.Lease) { says.Print("leads ", lease.Fence()) },
	})
	err = elector.Run(ctx, func(ctx context.Context) error {
		lease, _ := fairlock.LeaseFromContext(ctx)
		defer says.Print("leads no more ", lease.Fence())
		return lead(ctx, lease, step, func() { says.Print("step ", lease.Fence()) })
	})
	if errors.Is(err, context.Cause(ctx)) { // told to go
		return nil
	}
	return err
}

// lead does one step after the other until this worker leads no more.
func lead(ctx context.Context, lease *fairlock.Lease, every time.Duration, step func()) error {
	for next := time.Tick(every); ctx.Err() == nil; {
		// Look right before each step: a process that was stopped finds its lease over at once. Should it be stopped
		// between this look and the step, only a resource that checks the fence can tell.
		if err := lease.Err(); err != nil {
			return err
		}
		step()
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
