// Command ticketseller sells the tickets of one concert through several sellers. Each has a client of its own, like a
// process of its own. A sale takes a while: between looking for a free ticket and writing the sale down, a card is
// charged. So each sale is made under a lock, and buyers are served in the order in which they came.
//
// A seller may be paused until its lease is over, for example by a busy machine, and continue while the next one sells.
// No lock can prevent that. The database can: it has seen a higher fence, and refuses the late write.
//
//	go run ./ticketseller -sellers 4 -tickets 10 -buyers 15
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
	"path/filepath"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// ttl is how long the line waits for a seller that has crashed. It has nothing to do with how long a sale may take: a
// lease is renewed for as long as it is held.
const ttl = 2 * time.Second

func main() {
	sellers := flag.Int("sellers", 4, "sellers")
	tickets := flag.Int("tickets", 10, "tickets")
	buyers := flag.Int("buyers", 15, "buyers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	err := run(ctx, url, *sellers, *tickets, *buyers, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ticketseller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, sellers, tickets, buyers int, out io.Writer) (err error) {
	if sellers < 1 {
		return errors.New("without a seller nothing is sold")
	}
	dir, err := os.MkdirTemp("", "ticketseller")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	concert, err := openConcert(ctx, filepath.Join(dir, "concert.db"), tickets)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, concert.Close()) }()
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}

	all := make([]*seller, sellers)
	for i := range all {
		rdb := redis.NewClient(options)
		defer rdb.Close()
		client, err := fairlock.New(rdb, fairlock.Config{})
		if err != nil {
			return err
		}
		defer client.Close() // before rdb: the last deferred runs first
		all[i] = &seller{lock: client.Mutex("concert", fairlock.WithTTL(ttl)), concert: concert, charge: charge,
			refund: refund}
	}
	printer := log.New(out, "", 0) // unlike out, it may be used by all of them at once

	errs := make([]error, buyers)
	var wg sync.WaitGroup
	for i := range buyers {
		wg.Go(func() {
			buyer := fmt.Sprintf("buyer-%02d", i+1)
			ticket, err := all[i%sellers].sell(ctx, buyer)
			switch {
			case err == nil:
				printer.Printf("%s got ticket %d", buyer, ticket)
			case errors.Is(err, errSoldOut):
				printer.Printf("%s came too late: sold out", buyer)
			default:
				errs[i] = fmt.Errorf("%s: %w", buyer, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// charge stands for the slow part, which no database transaction should span.
func charge(ctx context.Context, _ string) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done(): // of the lease: nobody is charged for a ticket that somebody else may be selling
		return context.Cause(ctx)
	}
}

// refund stands for the way back.
func refund(string) error { return nil }
