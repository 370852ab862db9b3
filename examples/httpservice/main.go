// Command httpservice pays from accounts, over HTTP. A payment reads the balance, asks a bank, and writes. There is one
// at a time for each account, in the order of the requests, over all replicas of the service. Each replica has its own
// connection to one database.
//
//	go run ./httpservice
//	curl -i -H 'Idempotency-Key: 1' -d amount=30 localhost:8080/accounts/ann/payments
//
// It answers
//
//	200  paid, also if that was by an earlier request with the same key
//	409  not paid: another request is at the account (only with -d wait=no), or the lock was lost and a later
//	     holder has come
//	422  not paid: the balance is too low, or the key belongs to a payment of another amount
//	503  not paid, or unknown: repeat it with the same key
//
// and is ready (GET /readyz) while locks can be used. SIGTERM ends it in order: see drain.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// config has what may differ from one service to another.
type config struct {
	redis   string // its URL
	addr    string // to listen on
	ledger  string // the database's file
	bank    string // its URL
	ttl     time.Duration
	maxWait time.Duration
	grace   time.Duration
}

func main() {
	cfg := config{redis: cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")}
	flag.StringVar(&cfg.addr, "addr", "localhost:8080", "where to listen")
	flag.StringVar(&cfg.ledger, "ledger", "ledger.db", "the database's file")
	flag.StringVar(&cfg.bank, "bank", "", "a URL that is sent each payment; without it, every payment is approved")
	flag.DurationVar(&cfg.ttl, "ttl", 5*time.Second, "for how long the others wait for a replica that has crashed")
	flag.DurationVar(&cfg.maxWait, "max-wait", 2*time.Second,
		"how long a request waits for its account, before it is answered by 503")
	flag.DurationVar(&cfg.grace, "grace", 20*time.Second, "how long requests may take to end after SIGTERM")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ^C ends it at once
	err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "httpservice:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config, out io.Writer) (err error) {
	options, err := redis.ParseURL(cfg.redis)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true // see fairlock.New
	rdb := redis.NewClient(options)
	defer rdb.Close()
	locks, err := fairlock.New(rdb, fairlock.Config{TTL: cfg.ttl})
	if err != nil {
		return err
	}
	defer locks.Close() // before rdb: the last deferred runs first; it waits for what drain has not ended in time
	book, err := openLedger(ctx, cfg.ledger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return err
	}
	log.New(out, "", 0).Print("listening on http://", listener.Addr())

	s := &service{locks: locks, ledger: book, bank: bank(cfg.bank), maxWait: cfg.maxWait}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.grace)
	defer cancel()
	return drain(grace, server, locks)
}

// drain ends the service. The locks come first: requests that are queued for one are answered by 503 at once, and may
// go to another replica. Those that hold one finish. Meanwhile the server still listens. Until a load balancer notices,
// it gets 503 from /readyz and for each payment, which is better than a refused connection. Then the server stops to
// listen, and waits for the last answers to be sent.
//
// The other way around, Server.Shutdown would wait for the requests that are queued, one after the other.
//
// If ctx ends first, the leases end, and with them the ctx of the work under them. The locks are free again when their
// TTL has passed.
func drain(ctx context.Context, server *http.Server, locks *fairlock.Client) error {
	return errors.Join(locks.Shutdown(ctx), server.Shutdown(ctx))
}
