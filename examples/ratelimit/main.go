// Command ratelimit sends messages through a provider that takes five a second, from several processes that know
// nothing of each other but the name of a semaphore. Start it in several terminals.
//
//	go run ./ratelimit -name one -messages 20
//	go run ./ratelimit -name two -messages 20
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
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// perSecond is what the provider takes. While anybody holds or waits all must agree on it, so it stands in one place.
const perSecond = 5

func main() {
	name := flag.String("name", "sender", "this process's name")
	messages := flag.Int("messages", 20, "messages to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	err := run(ctx, url, *name, *messages, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ratelimit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, name string, messages int, out io.Writer) error {
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

	provider := newLimiter(client, "provider", perSecond)
	says := log.New(out, name+" ", log.Lmicroseconds|log.Lmsgprefix)
	errs := make([]error, messages)
	var wg sync.WaitGroup
	for i := range messages {
		wg.Go(func() {
			errs[i] = provider.do(ctx, func(context.Context) error {
				says.Printf("sends message %d", i+1)
				return nil
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
