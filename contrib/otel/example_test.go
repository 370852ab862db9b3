package otelfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
)

// A program has exporters where this example has a reader and a recorder in memory, and its Redis where this one has a
// server in memory.
func Example() {
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})

	// or none: the global ones
	locks, err := otelfairlock.New(otelfairlock.Config{MeterProvider: meters, TracerProvider: tracers})
	if err != nil {
		log.Fatal(err)
	}
	client, err := fairlock.New(rdb, fairlock.Config{Trace: locks})
	if err != nil {
		log.Fatal(err)
	}

	ctx, request := tracers.Tracer("example").Start(context.Background(), "POST /invoices")
	billing := client.Mutex("billing")
	err = billing.Do(ctx, func(ctx context.Context) error {
		fmt.Println("one invoice at a time")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	request.End()

	for _, span := range spans.Ended() {
		if span.Name() == "fairlock.hold" { // there is a fairlock.wait, too, if the lock was not free, or Redis was slow
			fmt.Println("span", span.Name(), span.Parent().SpanID() == request.SpanContext().SpanID())
		}
	}
	var all metricdata.ResourceMetrics
	if err := errors.Join(reader.Collect(ctx, &all), client.Close(), rdb.Close()); err != nil {
		log.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		fmt.Println("metric", m.Name)
	}
	// Output:
	// one invoice at a time
	// span fairlock.hold true
	// metric fairlock.wait.duration
	// metric fairlock.hold.duration
	// metric fairlock.leases
}
