// Command worker does jobs from a list in Redis: several at once, but never two of one user at once. Start it in
// several terminals, each with a name of its own, and stop one with ^C or kill -9. No job is lost, and a user's job
// begins only when the one before it has ended. The jobs at which one was killed wait until a worker of its name starts
// again.
//
//	go run ./worker -name one -add 20
//	go run ./worker -name two
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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

func main() {
	name := flag.String("name", "worker", "this worker's name; it finds its unfinished jobs again by it")
	add := flag.Int("add", 0, "jobs to add first")
	flag.Parse()
	// SIGTERM is what a supervisor sends: jobs under way are put back, locks are given back, then the process ends.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	err := run(ctx, url, *name, *add, slowly)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, name string, add int, handle func(context.Context, job) error) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	locks, err := fairlock.New(rdb, fairlock.Config{Name: name, TTL: 2 * time.Second})
	if err != nil {
		return err
	}
	defer locks.Close() // before rdb: the last deferred runs first

	w := &worker{name: name, rdb: rdb, locks: locks, handle: handle}
	if err := w.takeUp(ctx); err != nil {
		return err
	}
	for i := range add {
		if err := w.add(ctx, job{ID: i + 1, User: []string{"ann", "bob", "eve"}[i%3]}); err != nil {
			return err
		}
	}
	const parallel = 4
	results := make(chan error, parallel)
	for range parallel {
		go func() { results <- w.work(ctx) }()
	}
	for range parallel {
		err = errors.Join(err, <-results)
	}
	return err
}

// slowly takes longer than the TTL: a lease is renewed for as long as the job needs.
func slowly(ctx context.Context, j job) error {
	log.Printf("job %d of %s begins", j.ID, j.User)
	select {
	case <-time.After(3 * time.Second):
		log.Printf("job %d of %s is done", j.ID, j.User)
		return nil
	case <-ctx.Done():
		log.Printf("job %d of %s stops: %v", j.ID, j.User, context.Cause(ctx))
		return context.Cause(ctx)
	}
}
