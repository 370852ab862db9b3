// Command service makes all that locks need in order, and ends it in order; docs/service.md explains it. It writes one
// report at a time for each customer, cleans up in one of its replicas, names that leader, and has metrics.
//
//	go run ./service
//	curl -d '' localhost:8080/customers/ann/reports & curl -d '' localhost:8080/customers/ann/reports
//	curl localhost:8080/leader localhost:8080/readyz localhost:8080/metrics
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/leader"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "where to listen")
	work := flag.Duration("work", time.Second, "how long it takes to write a report")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ^C ends it at once
	if err := run(ctx, cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379"), *addr, *work); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, addr string, work time.Duration) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled, options.ReadTimeout, options.DialerRetries = true, time.Second, 1
	rdb := redis.NewClient(options)
	defer rdb.Close() // the last: nothing uses it any more
	metrics := promfairlock.New(promfairlock.Config{})
	prometheus.MustRegister(metrics)
	locks, err := fairlock.New(rdb, fairlock.Config{Trace: metrics.Trace()})
	if err != nil {
		return err
	}
	defer locks.Close() // ends what Shutdown has not ended in time, or if we return early
	if err := locks.Ping(ctx); err != nil {
		return err // a wrong password or a missing right is said now, and not by every request
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}

	elector := leader.New(locks, "cleaner", leader.Config{Address: listener.Addr().String()})
	resigned := make(chan struct{})
	go func() {
		defer close(resigned)
		log.Print("campaigns no more: ", elector.Run(ctx, cleanUp))
	}()
	server := &http.Server{Handler: routes(locks, elector, work), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}

	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	<-resigned // its ctx has ended: another replica leads
	return errors.Join(locks.Shutdown(grace), server.Shutdown(grace))
}

func routes(locks *fairlock.Client, elector *leader.Elector, work time.Duration) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, text string, err error) {
		if err != nil {
			http.Error(w, fairlock.ErrorType(err), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, text)
	}
	mux.HandleFunc("POST /customers/{customer}/reports", func(w http.ResponseWriter, r *http.Request) {
		lock := locks.Mutex("report:"+r.PathValue("customer"), fairlock.WithMaxWait(time.Minute))
		answer(w, "written", lock.Do(r.Context(), func(ctx context.Context) error { return wait(ctx, work) }))
	})
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, r *http.Request) {
		address, _, err := elector.Leader(r.Context())
		answer(w, address, err)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		answer(w, "ready", locks.Ping(ctx))
	})
	mux.Handle("GET /metrics", promhttp.Handler())
	return mux
}

// cleanUp is what the leader does until it leads no more.
func cleanUp(ctx context.Context) error {
	for ctx.Err() == nil {
		_ = wait(ctx, time.Minute) // where yours cleans up
	}
	return ctx.Err()
}

// wait stands for work that takes a while, and stops when ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
