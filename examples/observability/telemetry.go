package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
)

// telemetry is what a service has anyway: where its metrics and its spans go.
type telemetry struct {
	registry *prometheus.Registry // what /metrics shows
	meters   *metric.MeterProvider
	tracers  *trace.TracerProvider
}

func newTelemetry(out io.Writer) (*telemetry, error) {
	registry := prometheus.NewRegistry()
	metrics, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	spans, err := stdouttrace.New(stdouttrace.WithWriter(out))
	if err != nil {
		return nil, err
	}
	return &telemetry{
		registry: registry,
		meters:   metric.NewMeterProvider(metric.WithReader(metrics)),
		tracers:  trace.NewTracerProvider(trace.WithBatcher(spans, trace.WithBatchTimeout(time.Second))),
	}, nil
}

// close writes the last spans.
func (t *telemetry) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(t.tracers.Shutdown(ctx), t.meters.Shutdown(ctx))
}
