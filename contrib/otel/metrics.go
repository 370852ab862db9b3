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
}

// options are the attributes of a series, as instruments take them. They are made once, because making them costs more
// than recording a value.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
	wait   [2][]metric.RecordOption // of a wait: without a handoff, and with one
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
		metric.WithUnit("{loss}"), metric.WithDescription(
			"Grants that a waiter learnt of by a heartbeat, because the notification was lost."))
	return m, errors.Join(errs[:]...)
}

func (m *metrics) trace() *fairlock.Trace {
	return &fairlock.Trace{
		Queued: func(i fairlock.QueuedInfo) {
			m.waiters.Add(i.Ctx, 1, m.of(i.Event, nil).add...)
		},
		Granted: func(i fairlock.GrantedInfo) {
			o, handoff := m.of(i.Event, nil), 0
			if i.Handoff {
				handoff = 1
			}
			if i.Ticket != 0 {
				m.waiters.Add(i.Ctx, -1, o.add...)
			}
			m.wait.Record(i.Ctx, i.Wait.Seconds(), o.wait[handoff]...)
			m.leases.Add(i.Ctx, 1, o.add...)
		},
		Abandoned: func(i fairlock.AbandonedInfo) {
			if i.Ticket != 0 {
				m.waiters.Add(i.Ctx, -1, m.of(i.Event, nil).add...)
			}
			m.wait.Record(i.Ctx, i.Wait.Seconds(), m.of(i.Event, i.Err).wait[0]...)
		},
		Renewed: func(i fairlock.RenewedInfo) {
			m.renewals.Add(i.Ctx, 1, m.of(i.Event, i.Err).add...)
		},
		Ended: func(i fairlock.EndedInfo) {
			m.ended(i.Event, i.Held, i.Err)
			if errors.Is(i.Err, fairlock.ErrLost) {
				m.losses.Add(i.Ctx, 1, m.of(i.Event, i.Err).add...)
			}
		},
		NotificationLost: func(e fairlock.Event) {
			m.lostNotifications.Add(e.Ctx, 1, m.of(e, nil).add...)
		},
	}
}

// ended records the end of a lease.
func (m *metrics) ended(e fairlock.Event, held time.Duration, err error) {
	o := m.of(e, nil)
	m.leases.Add(e.Ctx, -1, o.add...)
	if err != nil {
		o = m.of(e, err)
	}
	m.hold.Record(e.Ctx, held.Seconds(), o.record...)
}

// of returns the options of an event with an error, if it has one.
func (m *metrics) of(e fairlock.Event, err error) *options {
	s := series{namespace: e.Namespace, kind: string(e.Kind), name: m.group(e.Name), errorType: fairlock.ErrorType(err)}
	m.mu.RLock()
	o := m.options[s]
	m.mu.RUnlock()
	if o == nil {
		o = s.options()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.options[s] = o
	}
	return o
}

func (s series) options() *options {
	set := metric.WithAttributeSet(attribute.NewSet(s.attributes()...)) // which sorts its arguments in place
	o := &options{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
	for i := range o.wait {
		set := attribute.NewSet(append(s.attributes(), handoffKey.Bool(i == 1))...)
		o.wait[i] = []metric.RecordOption{metric.WithAttributeSet(set)}
	}
	return o
}

// attributes returns the attributes of a series, with room for those of a span.
func (s series) attributes() []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 12)
	all = append(all, kindKey.String(s.kind), namespaceKey.String(valid(s.namespace)))
	if s.name != "" {
		all = append(all, nameKey.String(valid(s.name)))
	}
	if s.errorType != "" {
		all = append(all, errorTypeKey.String(s.errorType))
	}
	return all
}

// valid returns text as valid UTF-8. OTLP refuses a whole batch because of one invalid byte.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
