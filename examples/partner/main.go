// Command partner stands before a partner's API that takes 100 requests a second, in any number of replicas. Tenants
// take turns, and none has more than 20 requests a second, however many it sends.
//
//	go run ./partner
//	curl -i -H 'X-Tenant: ann' localhost:8080/orders
//
// A request waits for its turn. One of a tenant with too many that wait is answered by 429.
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

func main() {
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	addr := flag.String("addr", "localhost:8080", "where to listen")
	api := flag.String("api", "", "the URL of the partner; without it, one that says hello")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ^C ends it at once
	err := run(ctx, url, *addr, *api, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "partner:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, addr, api string, out io.Writer) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true // see fairlock.New
	rdb := redis.NewClient(options)
	defer rdb.Close()
	locks, err := fairlock.New(rdb, fairlock.Config{})
	if err != nil {
		return err
	}
	defer locks.Close() // before rdb: the last deferred runs first
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	log.New(out, "", 0).Print("listening on http://", listener.Addr())

	server := &http.Server{Handler: newProxy(locks, api), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// The locks come first: Server.Shutdown alone would wait for those that wait for a turn.
	return errors.Join(locks.Shutdown(grace), server.Shutdown(grace))
}
