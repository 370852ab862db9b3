// Command observability is an HTTP service that shows its locks: spans of waits and holds on the standard output,
// metrics for Prometheus, and the page behind a login. A report is written by one request at a time for each customer.
//
//	FAIRLOCK_PAGE_PASSWORD=secret go run ./observability
//	curl -d '' localhost:8080/customers/ann/reports & curl -d '' localhost:8080/customers/ann/reports
//	curl localhost:8080/metrics
//	curl -u operator:secret localhost:8080/locks/
package main

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/ui"
)

// config has what may differ from one service to another.
type config struct {
	redis    string // its URL
	addr     string // to listen on
	password string // of the page
	work     time.Duration
}

func main() {
	cfg := config{
		redis:    cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379"),
		password: os.Getenv("FAIRLOCK_PAGE_PASSWORD"),
	}
	flag.StringVar(&cfg.addr, "addr", "localhost:8080", "where to listen")
	flag.DurationVar(&cfg.work, "work", time.Second, "how long it takes to write a report")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ^C ends it at once
	err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then lets the requests finish.
func run(ctx context.Context, cfg config, out io.Writer) (err error) {
	if cfg.password == "" {
		return errors.New("FAIRLOCK_PAGE_PASSWORD is not set: the page shows names of locks, so it needs a login")
	}
	options, err := redis.ParseURL(cfg.redis)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true // see fairlock.New
	see, err := newTelemetry(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, see.close()) }() // last: spans may still come from what is closed before

	rdb := redis.NewClient(options)
	defer rdb.Close()
	// Arguments of requests contain tokens, and who knows a token can release its lock.
	err = redisotel.InstrumentTracing(rdb, redisotel.WithTracerProvider(see.tracers), redisotel.WithDBStatement(false))
	if err != nil {
		return err
	}
	trace, err := otelfairlock.New(otelfairlock.Config{
		MeterProvider: see.meters, TracerProvider: see.tracers,
		// "report" for all customers
		Name: func(name string) string { what, _, _ := strings.Cut(name, ":"); return what },
	})
	if err != nil {
		return err
	}
	locks, err := fairlock.New(rdb, fairlock.Config{Trace: trace})
	if err != nil {
		return err
	}
	defer locks.Close()

	// What the page reads is no work of this service: it has a client without spans. Its user of Redis needs only the
	// rights for looking.
	looking := redis.NewClient(options)
	defer looking.Close()
	page, err := ui.NewHandler(looking, ui.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Close()) }()

	mux := http.NewServeMux()
	reports := otelhttp.NewHandler(&reporter{locks, cfg.work}, "report", otelhttp.WithTracerProvider(see.tracers),
		otelhttp.WithMeterProvider(see.meters))
	mux.Handle("POST /customers/{customer}/reports", reports)
	mux.Handle("GET /metrics", promhttp.HandlerFor(see.registry, promhttp.HandlerOpts{}))
	mux.Handle("/locks/", withLogin(cfg.password, http.StripPrefix("/locks", page)))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return err
	}
	log.New(out, "", 0).Print("listening on http://", listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(locks.Shutdown(grace), server.Shutdown(grace)) // the locks first: see example httpservice
}

// reporter writes reports.
type reporter struct {
	locks *fairlock.Client
	work  time.Duration
}

func (s *reporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The ctx of the request carries its span, which becomes the parent of those of the lock.
	err := s.locks.Mutex("report:"+r.PathValue("customer"), fairlock.WithMaxWait(time.Minute)).Do(r.Context(),
		func(ctx context.Context) error {
			select {
			case <-time.After(s.work):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx) // the lock is lost, or the client has gone
			}
		})
	if err != nil {
		http.Error(w, fairlock.ErrorType(err), http.StatusServiceUnavailable)
	}
}

// withLogin is the middleware that guards a page. Yours is the one that guards your other internal pages.
func withLogin(password string, page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, given, _ := r.BasicAuth()
		if user != "operator" || subtle.ConstantTimeCompare([]byte(given), []byte(password)) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="locks"`)
			http.Error(w, "please log in", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	})
}
