// Command gateway limits a language model to three answers at once, over any number of replicas. Users take turns, and
// each gets at most two answers at once, whatever it sends. An answer is a stream of events of any length.
//
//	go run ./gateway
//	curl -N -H 'X-User: ann' -d 'Tell me a story.' localhost:8080/answers
//	curl -i -H 'X-User: ann' -H 'Prefer: wait=0' -d 'Now or never.' localhost:8080/answers
//
// The stream has these events:
//
//	queued  how many requests of the user are to begin until this one has, when it has to wait
//	text    a line of the answer
//	error   the answer ends before its time, or does not begin: ask again
//
// With "Prefer: wait=0" a request that would have to wait is answered by 429. A request of a user with too many waiting
// requests is also answered by 429. After SIGTERM, waiting requests get an error event so that their clients try
// another replica, and answers are completed.
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

// config has what may differ from one replica to another.
type config struct {
	redis string // its URL
	addr  string // to listen on
	model string // its URL
	grace time.Duration
}

func main() {
	cfg := config{redis: cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")}
	flag.StringVar(&cfg.addr, "addr", "localhost:8080", "where to listen")
	flag.StringVar(&cfg.model, "model", "", "the URL of the model; without it, one that counts")
	flag.DurationVar(&cfg.grace, "grace", 5*time.Minute, "how long answers may take to end after SIGTERM")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ^C ends it at once
	err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config, out io.Writer) error {
	options, err := redis.ParseURL(cfg.redis)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true // see fairlock.New
	rdb := redis.NewClient(options)
	defer rdb.Close()
	locks, err := fairlock.New(rdb, fairlock.Config{Trace: &fairlock.Trace{Queued: tellPosition}})
	if err != nil {
		return err
	}
	defer locks.Close() // before rdb: the last deferred runs first; it waits for what the drain has not ended in time
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return err
	}
	log.New(out, "", 0).Print("listening on http://", listener.Addr())

	server := &http.Server{Handler: newGateway(locks, model(cfg.model)), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.grace)
	defer cancel()
	// The locks come first: Server.Shutdown alone would wait for those that wait for a turn.
	return errors.Join(locks.Shutdown(grace), server.Shutdown(grace))
}
