package otelfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	apimetric "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// The table in docs/instrumentation.md has each instrument with its kind and its unit. The histograms have the same
// buckets. The values and attributes are tested in lab/metrics.
func TestMetrics_Instruments(t *testing.T) {
	guide, err := os.ReadFile("../../docs/instrumentation.md")
	require.NoError(t, err)
	o := observe(t, nil)
	e := fairlock.Event{Ctx: t.Context(), ID: fairlock.ID{Kind: "mutex", Name: "x"}}
	o.trace.Queued(fairlock.QueuedInfo{Event: e})
	o.trace.NotificationLost(e)
	o.trace.Granted(fairlock.GrantedInfo{Event: e})
	o.trace.Renewed(fairlock.RenewedInfo{Event: e})
	o.trace.Ended(fairlock.EndedInfo{Event: e, Err: fairlock.ErrLost})
	all := o.metrics(t)
	assert.Len(t, all, 7)
	for name, m := range all {
		kind := "counter"
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			kind = "histogram"
			bounds := []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
			assert.Equal(t, bounds, data.DataPoints[0].Bounds, name)
		case metricdata.Sum[int64]:
			if !data.IsMonotonic {
				kind = "up-down counter"
			}
		}
		assert.NotEmpty(t, m.Description, name)
		assert.Contains(t, string(guide), fmt.Sprintf("| `%s` | %s, `%s` |", name, kind, m.Unit))
	}
}

// Without providers, New uses the global ones.
func TestNew_GlobalProviders(t *testing.T) {
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	global, err := otelfairlock.New(otelfairlock.Config{})
	require.NoError(t, err)
	o := &observer{reader: reader}
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		ctx, span := otel.Tracer("caller").Start(t.Context(), "caller")
		m := s.Client(fairlock.Config{Trace: global}).Mutex("x")
		require.NoError(t, m.Do(ctx, func(context.Context) error { return nil }))
		span.End()
	})
	assert.Len(t, o.metrics(t), 3, "leases and the durations")
	assert.Len(t, spans.Ended(), 2)
}

// A MeterProvider that refuses an instrument is an error.
func TestNew_Refused(t *testing.T) {
	_, err := otelfairlock.New(otelfairlock.Config{MeterProvider: refusing{}})
	assert.EqualError(t, err, "refused fairlock.waiters\nrefused fairlock.leases")
}

// refusing makes no up-down counters.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...apimetric.MeterOption) apimetric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64UpDownCounter(
	name string, _ ...apimetric.Int64UpDownCounterOption,
) (apimetric.Int64UpDownCounter, error) {
	return noop.Int64UpDownCounter{}, errors.New("refused " + name)
}
