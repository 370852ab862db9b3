package otelfairlock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// The tests run in bubbles of testing/synctest, on a server in memory. There, time passes only while every goroutine
// waits, so durations are exact.

func bubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, fairlocktest.NewServer(t)) })
}

// observer has what a Trace makes.
type observer struct {
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer // of the caller's spans
	trace  *fairlock.Trace
}

// observe makes a Trace.
func observe(t *testing.T, name func(string) string) *observer {
	t.Helper()
	o := &observer{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	o.tracer = tracers.Tracer("caller")
	var err error
	o.trace, err = otelfairlock.New(otelfairlock.Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(o.reader)), TracerProvider: tracers, Name: name,
	})
	require.NoError(t, err)
	return o
}

// metrics returns all that the reader has, by instrument.
func (o *observer) metrics(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, o.reader.Collect(context.Background(), &all)) // t's ctx has ended when the last one is read
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}
