package otelfairlock

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/token"
)

// scope is the instrumentation scope of the metrics and the spans.
const scope = "github.com/fairlock/fairlock-go/contrib/otel"

// The attributes of metrics. Spans have them too, and those of spans.go.
const (
	kindKey      = attribute.Key("fairlock.kind")
	namespaceKey = attribute.Key("fairlock.namespace")
	nameKey      = attribute.Key("fairlock.name")
	handoffKey   = attribute.Key("fairlock.handoff")
	errorTypeKey = attribute.Key("error.type")
)

// Config has the settings of New. The zero value is ready to use.
type Config struct {
	// MeterProvider makes the instruments. Default otel.GetMeterProvider(). One of package metric/noop switches metrics
	// off.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. Default otel.GetTracerProvider(). One of package trace/noop switches spans off.
	TracerProvider trace.TracerProvider

	// Name returns the attribute fairlock.name for the name of a lock. If it returns "" or Name is nil, there is no
	// attribute. Each result is a time series of each instrument, which is kept in memory until the process ends. The SDK
	// merges those over its limit, by default 2000 for each instrument. So Name must group names: "account" for
	// "account:42". It must return the same result for the same name, or gauges do not return to 0. It is called for each
	// event, from several goroutines at once, so it must be quick.
	Name func(lock string) string
}

// New returns a Trace that makes metrics and spans, for fairlock.Config. Any number of Clients can share it. To use
// callbacks of your own as well, give fairlock.JoinTraces both. The error is that of a MeterProvider that refuses an
// instrument.
func New(cfg Config) (*fairlock.Trace, error) {
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	group := cfg.Name
	if group == nil {
		group = func(string) string { return "" }
	}
	m, err := newMetrics(cfg.MeterProvider.Meter(scope), group)
	if err != nil {
		return nil, err
	}
	s := &spans{tracer: cfg.TracerProvider.Tracer(scope), group: group, waits: map[token.Token]trace.SpanContext{}}
	return fairlock.JoinTraces(m.trace(), s.trace()), nil
}
