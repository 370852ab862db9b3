package otelfairlock

import (
	"errors"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fairlock/fairlock-go/fairlock"
)

// buckets are the bounds of the durations, in seconds: from a round trip to the default TTL.
var buckets = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// metrics makes metrics of events.
type metrics struct {
	group func(string) string

	wait, hold                          metric.Float64Histogram
	waiters, leases                     metric.Int64UpDownCounter
	losses, renewals, lostNotifications metric.Int64Counter

	mu      sync.RWMutex
	options map[series]*options // guarded by mu
}

// series says which attributes a value has.
type series struct {
	namespace, kind, name string
	errorType             string // "": none
	wait                  bool   // it has the attribute for handoff
	handoff               bool
}

// options are the attributes of a series, as instruments want them. They are made once: to make them costs more than to
// record a value.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newMetrics(meter metric.Meter, group func(string) string) (*metrics, error) {
	m := &metrics{group: group, options: map[series]*options{}}
	var errs [7]error
	m.wait, errs[0] = meter.Float64Histogram("fairlock.wait.duration",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets...),
		metric.WithDescription("From the call that acquires a lock until it is granted, or the call has failed."))
	m.hold, errs[1] = meter.Float64Histogram("fairlock.hold.duration",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets...),
		metric.WithDescription("From the grant of a lease until its end."))
	m.waiters, errs[2] = meter.Int64UpDownCounter("fairlock.waiters",
		metric.WithUnit("{waiter}"), metric.WithDescription("Waiters in queues."))
	m.leases, errs[3] = meter.Int64UpDownCounter("fairlock.leases",
		metric.WithUnit("{lease}"), metric.WithDescription("Leases that are held."))
	m.losses, errs[4] = meter.Int64Counter("fairlock.lease.losses",
		metric.WithUnit("{loss}"), metric.WithDescription("Leases that have ended without their holder's doing."))
	m.renewals, errs[5] = meter.Int64Counter("fairlock.lease.renewals",
		metric.WithUnit("{renewal}"), metric.WithDescription("Renewals of leases. Those that failed have an error.type."))
	m.lostNotifications, errs[6] = meter.Int64Counter("fairlock.notification.losses",
		metric.WithUnit("{loss}"), metric.WithDescription("Grants that a waiter learnt of by a heartbeat, because the notification was lost."))
	return m, errors.Join(errs[:]...)
}

func (m *metrics) trace() *fairlock.Trace {
	return &fairlock.Trace{
		Queued: func(i fairlock.QueuedInfo) {
			m.waiters.Add(i.Ctx, 1, m.of(i.Event).add...)
		},
		Granted: func(i fairlock.GrantedInfo) {
			m.waited(i.Event, i.Wait, i.Queued, i.Handoff, nil)
			m.leases.Add(i.Ctx, 1, m.of(i.Event).add...)
		},
		Left: func(i fairlock.LeftInfo) {
			m.waited(i.Event, i.Wait, i.Queued, false, i.Err)
		},
		Renewed: func(i fairlock.RenewedInfo) {
			m.renewals.Add(i.Ctx, 1, m.failed(i.Event, i.Err).add...)
		},
		Lost: func(i fairlock.LostInfo) {
			m.held(i.Event, i.Held, i.Err)
			m.losses.Add(i.Ctx, 1, m.failed(i.Event, i.Err).add...)
		},
		Released: func(i fairlock.ReleasedInfo) { m.held(i.Event, i.Held, i.Err) },
		Closed:   func(i fairlock.ClosedInfo) { m.held(i.Event, i.Held, i.Err) },
		NotificationLost: func(e fairlock.Event) {
			m.lostNotifications.Add(e.Ctx, 1, m.of(e).add...)
		},
	}
}

// waited records the end of an acquisition.
func (m *metrics) waited(e fairlock.Event, wait time.Duration, queued, handoff bool, err error) {
	if queued {
		m.waiters.Add(e.Ctx, -1, m.of(e).add...)
	}
	s := m.series(e)
	s.wait, s.handoff, s.errorType = true, handoff, fairlock.ErrorType(err)
	m.wait.Record(e.Ctx, wait.Seconds(), m.optionsOf(s).record...)
}

// held records the end of a lease.
func (m *metrics) held(e fairlock.Event, held time.Duration, err error) {
	m.leases.Add(e.Ctx, -1, m.of(e).add...)
	m.hold.Record(e.Ctx, held.Seconds(), m.failed(e, err).record...)
}

// of returns the options of an event.
func (m *metrics) of(e fairlock.Event) *options { return m.optionsOf(m.series(e)) }

// failed returns those of an event with an error, if it has one.
func (m *metrics) failed(e fairlock.Event, err error) *options {
	s := m.series(e)
	s.errorType = fairlock.ErrorType(err)
	return m.optionsOf(s)
}

func (m *metrics) series(e fairlock.Event) series {
	return series{namespace: e.Namespace, kind: e.Kind, name: m.group(e.Name)}
}

func (m *metrics) optionsOf(s series) *options {
	m.mu.RLock()
	o := m.options[s]
	m.mu.RUnlock()
	if o != nil {
		return o
	}
	set := metric.WithAttributeSet(attribute.NewSet(s.attributes()...))
	o = &options{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.options[s] = o
	return o
}

// attributes returns the attributes of a series, with room for those of a span.
func (s series) attributes() []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 12)
	all = append(all, kindKey.String(s.kind), namespaceKey.String(valid(s.namespace)))
	if s.name != "" {
		all = append(all, nameKey.String(valid(s.name)))
	}
	if s.wait {
		all = append(all, handoffKey.Bool(s.handoff))
	}
	if s.errorType != "" {
		all = append(all, errorTypeKey.String(s.errorType))
	}
	return all
}

// valid returns text as an attribute may have it: OTLP refuses a whole batch because of a byte that is not UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
