// Command partner limits a partner's API to 100 requests a second, over any number of replicas. Tenants take turns, and
// each gets at most 20 requests a second, whatever it sends.
//
//	python3 -m http.server 8081          # a partner
//	go run ./partner -api http://localhost:8081
//	curl -i -H 'X-Tenant: ann' localhost:8080
//
// A request waits for its turn. If too many requests of a tenant wait, the next one is answered by 429.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/limithttp"
)

// What the partner takes in a second, and what of that a tenant may have. All replicas must agree on the first.
const (
	perSecond = 100
	ofTenant  = 20
	waiting   = 200 // requests of one tenant that may wait: ten seconds
)

// limited limits the requests to the partner.
func limited(locks *fairlock.Client, partner http.Handler) http.Handler {
	// A permit that is taken stays taken for a second. If a replica crashes, its permits come free after two.
	turns := locks.KeyedSemaphore("partner", perSecond,
		fairlock.WithMinHold(time.Second), fairlock.WithTTL(2*time.Second), fairlock.WithKeyLimit(ofTenant))
	return limithttp.Handler(partner, limithttp.Config{
		StartsOnly: true,
		Limit: func(r *http.Request) (limithttp.Acquirer, int, error) { // take the tenant from your authentication
			return turns.Key(r.Header.Get("X-Tenant"), fairlock.WithMaxWaiters(waiting)), 1, nil
		},
		Done: func(_ *http.Request, status int, err error) { slog.Info("not passed on", "status", status, "err", err) },
	})
}

func main() {
	addr := flag.String("addr", "localhost:8080", "where to listen")
	api := flag.String("api", "http://localhost:8081", "the URL of the partner")
	flag.Parse()
	if err := run(*addr, *api); err != nil {
		log.Fatal("partner: ", err)
	}
}

func run(addr, api string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer context.AfterFunc(ctx, stop)() // a second ^C ends it at once
	options, err := redis.ParseURL(cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379"))
	partner, wrong := url.Parse(api)
	if err := errors.Join(err, wrong); err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true // see fairlock.New
	rdb := redis.NewClient(options)
	defer rdb.Close()
	locks, err := fairlock.New(rdb, fairlock.Config{})
	if err != nil {
		return err
	}
	handler := limited(locks, httputil.NewSingleHostReverseProxy(partner))
	server := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
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
