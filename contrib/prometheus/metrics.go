package promfairlock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Labels of all metrics, and of some. An OpenTelemetry attribute fairlock.kind is fairlock_kind in Prometheus.
const (
	labelKind      = "fairlock_kind"
	labelNamespace = "fairlock_namespace"
	labelName      = "fairlock_name"
	labelHandoff   = "fairlock_handoff"
	labelError     = "error_type"
)

// buckets are the upper bounds of both histograms, in seconds.
var buckets = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// lossTypes are the error types of all losses. Their counters are exported from 0 on, because Prometheus does not see
// the increase of a series that begins at 1.
var lossTypes = []string{
	fairlock.ErrorType(fairlock.ErrExpired), fairlock.ErrorType(fairlock.ErrRefused), fairlock.ErrorType(
		fairlock.ErrRevoked),
	fairlock.ErrorType(fairlock.ErrUnreachable),
}

// Config has the settings of New. The zero value is ready to use.
type Config struct {
	// Name returns the label fairlock_name of a lock, by the lock's name. There should be fewer than about 100 results:
	// "account" for "account:42", for example. Each is at least 56 series for Prometheus, and 10 kB in this process for as
	// long as the Metrics live. If the result is empty, there is no label. Name is called for each event, from several
	// goroutines at once, so it must be quick. It must return the same result for the same lock, or gauges do not return
	// to 0. By default the metrics do not have the label.
	Name func(lock string) string

	// Exemplar returns the exemplar for an event, such as the trace id of a span that is sampled, or nil for none. Its
	// ctx is the caller's ctx of the acquisition, and may have ended. Exemplar is called for each value of a histogram
	// and of a counter; it should be quick. The names of its labels are constants of yours: an invalid one panics, as
	// it does in client_golang. An exemplar is left out if its values are not UTF-8, or if it is longer than
	// prometheus.ExemplarMaxRunes. The default has no exemplars. They are exported if
	// promhttp.HandlerOpts.EnableOpenMetrics is set.
	Exemplar func(ctx context.Context) prometheus.Labels
}

// Metrics counts the locks of all clients that have its Trace. It is a prometheus.Collector. Register it once. If an
// equal one is registered already, Register returns a prometheus.AlreadyRegisteredError, whose ExistingCollector is a
// *Metrics to use instead. Two are equal if both have a Config.Name or none has. Functions cannot be compared, so the
// existing one may group names, and make exemplars, in another way.
type Metrics struct {
	cfg Config

	waitDuration, holdDuration          *prometheus.HistogramVec
	waiters, leases                     *prometheus.GaugeVec
	losses, renewals, lostNotifications *prometheus.CounterVec

	mu    sync.RWMutex
	known map[labels]*series // guarded by mu
}

// labels are those that every metric has.
type labels struct{ kind, namespace, name string }

// series are the metrics of some labels. What an uncontended pair of Lock and Unlock needs is looked up once.
type series struct {
	waitDuration, holdDuration prometheus.ObserverVec // by error type, and handoff
	waiters, leases            prometheus.Gauge
	losses, renewals           *prometheus.CounterVec // by error type
	notificationLosses         prometheus.Counter

	granted, handedOff prometheus.Observer // of waitDuration
	released           prometheus.Observer // of holdDuration
	renewed            prometheus.Counter  // of renewals
}

// New returns metrics without values. Give their Trace to fairlock.Config, and register them:
//
//	metrics := promfairlock.New(promfairlock.Config{})
//	prometheus.MustRegister(metrics)
//	client, err := fairlock.New(rdb, fairlock.Config{Trace: metrics.Trace()})
func New(cfg Config) *Metrics {
	with := func(names ...string) []string {
		all := []string{labelKind, labelNamespace}
		if cfg.Name != nil {
			all = append(all, labelName)
		}
		return append(all, names...)
	}
	histogram := func(name, help string, names ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, with(names...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, with())
	}
	counter := func(name, help string, names ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, with(names...))
	}
	m := &Metrics{
		cfg:   cfg,
		known: map[labels]*series{},
		waitDuration: histogram("fairlock_wait_duration_seconds",
			"Duration of acquisitions, from the call until the lock was granted, or until the call ended without it.",
			labelError, labelHandoff),
		holdDuration: histogram("fairlock_hold_duration_seconds",
			"Duration of leases, from the grant until the lock was unlocked, or until the lease ended otherwise.", labelError),
		waiters: gauge("fairlock_waiters", "Calls of this process that wait in a queue."),
		leases:  gauge("fairlock_leases", "Leases that this process holds."),
		losses:  counter("fairlock_lease_losses_total", "Leases that were lost while they were held.", labelError),
		renewals: counter("fairlock_lease_renewals_total", "Renewals of leases, those that failed included.",
			labelError),
		lostNotifications: counter("fairlock_notification_losses_total",
			"Grants that a heartbeat found, because the notification was lost."),
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It does no I/O.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.waitDuration, m.holdDuration, m.waiters, m.leases, m.losses, m.renewals, m.lostNotifications,
	}
}

// Trace returns the callbacks that count. Several clients can have it, and fairlock.JoinTraces adds others to it. A
// client whose process ends without Close leaves nothing behind, because the metrics end with it.
func (m *Metrics) Trace() *fairlock.Trace {
	return &fairlock.Trace{
		Queued: func(i fairlock.QueuedInfo) { m.of(&i.Event).waiters.Inc() },
		Granted: func(i fairlock.GrantedInfo) {
			s := m.of(&i.Event)
			s.leases.Inc()
			wait := s.granted
			if i.Handoff {
				wait = s.handedOff
			}
			s.leave(i.Ticket != 0)
			m.observe(&i.Event, wait, i.Wait)
		},
		Abandoned: func(i fairlock.AbandonedInfo) {
			s := m.of(&i.Event)
			s.leave(i.Ticket != 0)
			m.observe(&i.Event, s.waitDuration.WithLabelValues(fairlock.ErrorType(i.Err), strconv.FormatBool(false)), i.Wait)
		},
		Ended: func(i fairlock.EndedInfo) {
			m.end(&i.Event, i.Held, i.Err)
			if errors.Is(i.Err, fairlock.ErrLost) {
				m.count(&i.Event, m.of(&i.Event).losses.WithLabelValues(fairlock.ErrorType(i.Err)))
			}
		},
		Renewed: func(i fairlock.RenewedInfo) {
			s := m.of(&i.Event)
			c := s.renewed
			if i.Err != nil {
				c = s.renewals.WithLabelValues(fairlock.ErrorType(i.Err))
			}
			m.count(&i.Event, c)
		},
		NotificationLost: func(e fairlock.Event) { m.count(&e, m.of(&e).notificationLosses) },
	}
}

// leave decrements the number of waiters, if the call was queued.
func (s *series) leave(queued bool) {
	if queued {
		s.waiters.Dec()
	}
}

// end records the end of a lease.
func (m *Metrics) end(e *fairlock.Event, held time.Duration, err error) {
	s := m.of(e)
	s.leases.Dec()
	hold := s.released
	if err != nil {
		hold = s.holdDuration.WithLabelValues(fairlock.ErrorType(err))
	}
	m.observe(e, hold, held)
}

func (m *Metrics) observe(e *fairlock.Event, o prometheus.Observer, d time.Duration) {
	if exemplar := m.exemplar(e); exemplar != nil {
		o.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), exemplar)
		return
	}
	o.Observe(d.Seconds())
}

func (m *Metrics) count(e *fairlock.Event, c prometheus.Counter) {
	if exemplar := m.exemplar(e); exemplar != nil {
		c.(prometheus.ExemplarAdder).AddWithExemplar(1, exemplar)
		return
	}
	c.Inc()
}

// exemplar returns nil in place of an exemplar on which client_golang would panic. Its values may come from a request.
func (m *Metrics) exemplar(e *fairlock.Event) prometheus.Labels {
	if m.cfg.Exemplar == nil {
		return nil
	}
	exemplar, runes := m.cfg.Exemplar(e.Ctx), 0
	for name, value := range exemplar {
		if !utf8.ValidString(value) {
			return nil
		}
		runes += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
	}
	if runes > prometheus.ExemplarMaxRunes {
		return nil
	}
	return exemplar
}

// of returns the series of an event.
func (m *Metrics) of(e *fairlock.Event) *series {
	l := labels{kind: string(e.Kind), namespace: e.Namespace}
	if m.cfg.Name != nil {
		l.name = m.cfg.Name(e.Name)
	}
	m.mu.RLock()
	s := m.known[l]
	m.mu.RUnlock()
	if s == nil {
		s = m.lookUp(l) // if another goroutine does so at once, that is the same
		m.mu.Lock()
		m.known[l] = s
		m.mu.Unlock()
	}
	return s
}

// lookUp returns the series of some labels. They are the same each time.
func (m *Metrics) lookUp(l labels) *series {
	values := prometheus.Labels{labelKind: l.kind, labelNamespace: printable(l.namespace)}
	if m.cfg.Name != nil {
		values[labelName] = printable(l.name)
	}
	s := &series{
		waitDuration:       m.waitDuration.MustCurryWith(values),
		holdDuration:       m.holdDuration.MustCurryWith(values),
		waiters:            m.waiters.With(values),
		leases:             m.leases.With(values),
		losses:             m.losses.MustCurryWith(values),
		renewals:           m.renewals.MustCurryWith(values),
		notificationLosses: m.lostNotifications.With(values),
	}
	s.granted = s.waitDuration.WithLabelValues("", strconv.FormatBool(false))
	s.handedOff = s.waitDuration.WithLabelValues("", strconv.FormatBool(true))
	s.released = s.holdDuration.WithLabelValues("")
	s.renewed = s.renewals.WithLabelValues("")
	for _, t := range lossTypes {
		s.losses.WithLabelValues(t)
	}
	return s
}

// printable returns text as valid UTF-8. client_golang panics for a label that is not.
func printable(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }
