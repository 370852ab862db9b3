package promfairlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
)

// DefaultTimeout is how long a LockCollector's scrape waits for Redis, unless LockConfig says otherwise.
const DefaultTimeout = 2 * time.Second

// atOnce is how many locks are read at once, over all scrapes. Each read takes a connection, and the clients that lock
// may share the pool, which has 10 for each processor.
const atOnce = 8

// maxName is how many bytes the name of a lock may have.
const maxName = 1024

// LockConfig says which locks a LockCollector reads.
type LockConfig struct {
	// Namespace is that of the locks, as in fairlock.Config. Default "fairlock".
	Namespace string

	// Mutexes, Semaphores, KeyedSemaphores and RWMutexes are the names of the locks. Each is the label fairlock_name of
	// its metrics, so it must be UTF-8. A name that occurs twice counts once. There is no label for the keys of a keyed
	// semaphore.
	Mutexes, Semaphores, KeyedSemaphores, RWMutexes []string

	// Timeout is how long a scrape waits for Redis. It should be well below the scrape_timeout of Prometheus, which is 10
	// s by default. A scrape that takes longer is lost. Default 2 s.
	Timeout time.Duration

	// Logger gets a warning with the reason when a scrape cannot read a lock and the one before could read all. Default
	// slog.Default(). slog.New(slog.DiscardHandler) logs nothing.
	Logger *slog.Logger
}

// LockCollector is a prometheus.Collector that reads some locks from Redis at each scrape. It exports the locks of all
// processes, so every process that has one exports the same. Take the maximum by fairlock_name, not the sum.
//
// It reads at most eight locks at once with an admin.Client, which changes nothing. Each lock takes a script of
// its own, so Redis runs other commands in between. A scrape of 1,000 locks takes less than 50 ms of Redis.
//
// Its user of Redis needs the rights that docs/operating.md lists for looking. Those of a program that locks suffice as
// well. Scripts are sent by EVALSHA_RO where Redis has it, which lets them read only. A ClusterClient with ReadOnly,
// RouteByLatency or RouteRandomly sends them to replicas, which may be behind.
//
// A lock that cannot be read is missing in that scrape, and fairlock_lock_inspection_failures_total counts it. The
// first such scrape after one that has read all locks logs the reason. It does not export an invalid metric with the
// reason: promhttp would answer with an error, and lose the process's other metrics while Redis fails. If Redis hangs,
// a scrape ends after LockConfig.Timeout. At most eight requests go on, until go-redis's own timeouts end them.
type LockCollector struct {
	admin   *admin.Client
	locks   []fairlock.ID
	timeout time.Duration
	log     *slog.Logger
	slots   chan struct{} // one for each lock that is being read
	failing atomic.Bool   // the latest scrape could not read all locks

	waiters, candidates, oldestWait, permitsUsed, permits *prometheus.Desc
	failures                                              prometheus.Counter
}

// reading is what was read of a lock.
type reading struct {
	state admin.State
	err   error
}

// NewLockCollector returns a Collector of the locks of cfg on rdb. rdb can be the locks' own client, or another one of
// the same Redis. It does no I/O. Register the Collector once, and close rdb after the last scrape. Collectors of
// different namespaces can be registered together. The error is a fairlock.ErrInvalid, which names all that is wrong
// with rdb and cfg.
func NewLockCollector(rdb redis.UniversalClient, cfg LockConfig) (*LockCollector, error) {
	if cfg.Namespace == "" {
		cfg.Namespace = admin.DefaultNamespace
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	client, err := fairlock.New(rdb, fairlock.Config{Namespace: cfg.Namespace}) // it knows what is wrong with them
	if err == nil {
		_ = client.Close()
	}
	if err := errors.Join(err, cfg.check()); err != nil {
		return nil, err
	}
	namespace := prometheus.Labels{labelNamespace: cfg.Namespace}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{labelKind, labelName}, namespace)
	}
	c := &LockCollector{
		admin:   admin.New(rdb, cfg.Namespace),
		timeout: cfg.Timeout,
		log:     cfg.Logger.With("namespace", cfg.Namespace),
		slots:   make(chan struct{}, atOnce),
		waiters: desc("fairlock_lock_waiters",
			"Waiters in the queue of the lock, candidates of an election among them. One that has expired does not count."),
		candidates: desc("fairlock_lock_candidates",
			"Waiters that are candidates of an election. They wait for as long as the leader lives."),
		oldestWait: desc("fairlock_lock_oldest_wait_seconds",
			"For how long the first waiter has waited that has not expired and is no candidate of an election. "+
				"0 if there is none."),
		permitsUsed: desc("fairlock_lock_permits_used",
			"Permits that are held. Of a mutex 0 or 1, of a read-write lock the readers, or 1 for a writer."),
		permits: desc("fairlock_lock_permits",
			"Permits of the lock: 1 of a mutex; of a semaphore those that a resize has set, else those that the next request "+
				"brings. Absent for a read-write lock, and for a semaphore that is not in use."),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "fairlock_lock_inspection_failures_total",
			Help:        "Locks that a scrape could not read, because Redis did not reply in time, or replied with an error.",
			ConstLabels: namespace,
		}),
	}
	add := func(kind fairlock.Kind, names []string) {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			c.locks = append(c.locks, fairlock.ID{Kind: kind, Name: name})
		}
	}
	add(fairlock.KindMutex, cfg.Mutexes)
	add(fairlock.KindSemaphore, cfg.Semaphores)
	add(fairlock.KindKeyedSemaphore, cfg.KeyedSemaphores)
	add(fairlock.KindRWMutex, cfg.RWMutexes)
	return c, nil
}

func require(ok bool, field, bound string) error {
	if ok {
		return nil
	}
	return &fairlock.FieldError{Field: field, Reason: bound}
}

func (cfg LockConfig) check() error {
	errs := []error{
		require(utf8.ValidString(cfg.Namespace), "Namespace", fmt.Sprintf("%.64q is not UTF-8", cfg.Namespace)),
		require(cfg.Timeout > 0, "Timeout", fmt.Sprintf("%v is not above 0", cfg.Timeout)),
	}
	for _, list := range []struct {
		field string
		names []string
	}{{"Mutexes", cfg.Mutexes}, {"Semaphores", cfg.Semaphores}, {"KeyedSemaphores", cfg.KeyedSemaphores}, {"RWMutexes",
		cfg.RWMutexes}} {
		for _, name := range list.names {
			errs = append(errs, require(0 < len(name) && len(name) <= maxName && utf8.ValidString(name), list.field,
				fmt.Sprintf("%.64q is not a name: UTF-8 of 1 to %d bytes", name, maxName)))
		}
	}
	return errors.Join(errs...)
}

// Describe implements prometheus.Collector.
func (c *LockCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.waiters, c.candidates, c.oldestWait, c.permitsUsed, c.permits} {
		ch <- d
	}
	c.failures.Describe(ch)
}

// Collect implements prometheus.Collector. It reads the locks, and returns after LockConfig.Timeout at the latest.
func (c *LockCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout) //nolint:forbidigo // Prometheus waits in the system's time
	defer cancel()
	readings := c.read(ctx)
	var reason error // of the first failure
	for range c.locks {
		var err error
		select {
		case r := <-readings:
			if r.err == nil {
				c.export(ch, r)
				continue
			}
			err = r.err
		case <-ctx.Done(): // also for locks that no read has begun for
			err = fmt.Errorf("no reply within %v", c.timeout)
		}
		c.failures.Inc()
		if reason == nil {
			reason = err
		}
	}
	if before := c.failing.Swap(reason != nil); reason != nil && !before {
		c.log.Warn("locks cannot be read; those that fail have no metrics", "err", reason)
	}
	c.failures.Collect(ch)
}

// read reads the locks until ctx ends. A request of go-redis goes on after its ctx has ended, so Collect waits for the
// readings and not for the goroutines.
func (c *LockCollector) read(ctx context.Context) <-chan reading {
	readings := make(chan reading, len(c.locks)) // so that no goroutine blocks
	go func() {
		for _, id := range c.locks {
			select {
			case c.slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func() {
				defer func() { <-c.slots }()
				state, err := c.admin.Inspect(ctx, id, 1, 1)
				readings <- reading{state, err}
			}()
		}
	}()
	return readings
}

func (c *LockCollector) export(ch chan<- prometheus.Metric, r reading) {
	gauge := func(d *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, string(r.state.ID.Kind), r.state.ID.Name)
	}
	gauge(c.waiters, float64(r.state.Waiting))
	gauge(c.candidates, float64(r.state.Candidates))
	if r.state.OldestWait >= 0 { // else it is not known
		gauge(c.oldestWait, r.state.OldestWait.Seconds())
	}
	gauge(c.permitsUsed, float64(r.state.Used))
	if r.state.Permits > 0 {
		gauge(c.permits, float64(r.state.Permits))
	}
}
