// Command farm renders jobs on a farm of eight cores, with any number of workers. Each customer has a list of jobs in
// Redis. Customers take turns, however many jobs one of them has, and a job gets as many cores as it needs. Start it in
// several terminals; stop one with ^C or kill -9: no job is lost. The jobs at which one was killed wait until a worker
// of its name starts again.
//
//	go run ./farm -name one -add ann=20
//	go run ./farm -name two -add bob=2
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

func main() {
	name := flag.String("name", "worker", "this worker's name; it finds its unfinished jobs again by it")
	add := flag.String("add", "", "a customer, and how many jobs to add first, such as ann=20")
	renderer := flag.String("renderer", "", "the URL of what renders; without it, a job takes a second")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	err := run(ctx, url, *name, *add, *renderer)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "farm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, name, add, renderer string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true // see fairlock.New
	rdb := redis.NewClient(options)
	defer rdb.Close()
	locks, err := fairlock.New(rdb, fairlock.Config{Name: name, TTL: 2 * time.Second})
	if err != nil {
		return err
	}
	defer locks.Close() // before rdb: the last deferred runs first

	w := newWorker(name, rdb, locks, render(renderer))
	customer, number, _ := strings.Cut(add, "=")
	n, _ := strconv.Atoi(number)
	for i := range n {
		err = errors.Join(err, w.add(ctx, job{ID: i + 1, Customer: customer, Cores: 1 + i%3}))
	}
	return errors.Join(err, w.takeUp(ctx), w.work(ctx))
}
