package promfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
)

// A program makes its metrics, its client and its page of metrics once.
func Example() {
	server, err := miniredis.Run() // in memory, so that the example needs nothing
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})

	metrics := promfairlock.New(promfairlock.Config{})
	client, err := fairlock.New(rdb, fairlock.Config{Trace: metrics.Trace()})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := promfairlock.NewLockCollector(rdb, promfairlock.LockConfig{Mutexes: []string{"billing"}})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry() // or the default one, with prometheus.MustRegister and promhttp.Handler
	registry.MustRegister(metrics, locks)
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}) // for exemplars

	err = client.Mutex("billing").Do(context.Background(), func(context.Context) error {
		for _, name := range []string{"fairlock_leases{", "fairlock_lock_permits_used{"} {
			fmt.Println(value(page, name))
		}
		return nil
	})
	if err := errors.Join(err, client.Close(), rdb.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// fairlock_leases{fairlock_kind="mutex",fairlock_namespace="fairlock"} 1
	// fairlock_lock_permits_used{fairlock_kind="mutex",fairlock_name="billing",fairlock_namespace="fairlock"} 1
}

// value returns the line of a page of metrics that begins with name.
func value(page http.Handler, name string) string {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, name) {
			return strings.TrimSpace(line)
		}
	}
	return "no " + name
}

// The label is a group of locks. There are few groups, but an account for each customer.
func ExampleConfig_name() {
	metrics := promfairlock.New(promfairlock.Config{Name: func(lock string) string {
		group, _, _ := strings.Cut(lock, ":") // "account" for "account:42"
		return group
	}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	metrics.Trace().Granted(fairlock.GrantedInfo{Event: fairlock.Event{Namespace: "fairlock",
		ID: fairlock.ID{Kind: "mutex", Name: "account:42"}}})
	fmt.Println(value(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), "fairlock_leases"))
	// Output:
	// fairlock_leases{fairlock_kind="mutex",fairlock_name="account",fairlock_namespace="fairlock"} 1
}

type traceID struct{} // of the tracing library that you use

// Each value points at the trace of its caller, if that is kept.
func ExampleConfig_exemplar() {
	promfairlock.New(promfairlock.Config{Exemplar: func(ctx context.Context) prometheus.Labels {
		// With OpenTelemetry: span := trace.SpanContextFromContext(ctx), span.IsSampled() and span.TraceID().String().
		if id, sampled := ctx.Value(traceID{}).(string); sampled {
			return prometheus.Labels{"trace_id": id}
		}
		return nil
	}})
}
