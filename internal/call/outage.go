package call

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/task"
)

const (
	// outageAfter is how long after the first failure another one has to come: one connection that was reset is no outage.
	outageAfter = time.Second
	// served and unserved are how long after the latest failure an outage is over: if a request has succeeded since, and if none has.
	served, unserved = 5 * time.Second, time.Minute
)

// outage says since when Redis does not serve the client's requests. It begins when a request fails and another one, a second or
// more later, and is logged once when that is known and once when it is over. A refusal is no failure. On a Cluster, one master may
// be away while the others reply: there, a request succeeds for the lock whose request failed last.
type outage struct {
	tasks   *task.Group
	clock   clock.Clock
	log     *slog.Logger
	cluster bool

	failing atomic.Bool // timer is not nil; so that a request costs no mutex

	mu      sync.Mutex
	since   time.Time   // guarded by mu: of the first failure
	latest  time.Time   // guarded by mu: of the latest failure
	lock    string      // guarded by mu: name of the lock whose request failed then
	err     error       // guarded by mu: of that request
	success bool        // guarded by mu: a request has succeeded since
	logged  bool        // guarded by mu: it is an outage
	timer   clock.Timer // guarded by mu: calls tick; nil if there is no failure
}

// failed notes that a request for a lock has failed.
func (o *outage) failed(lock string, err error) {
	now := o.clock.Now()
	o.mu.Lock()
	o.latest, o.lock, o.err, o.success = now, lock, err, false
	if o.timer == nil {
		o.since = now
		o.failing.Store(true)
		o.setTimer(now)
	}
	begins := !o.logged && now.Sub(o.since) >= outageAfter
	o.logged = o.logged || begins
	o.mu.Unlock()
	if begins {
		o.log.Warn("outage begins: Redis does not serve this client", "lock", lock, "err", err)
	}
}

// succeeded notes that a request for a lock has succeeded.
func (o *outage) succeeded(lock string) {
	if !o.failing.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil && !o.success && (!o.cluster || lock == o.lock) {
		o.success = true
		o.timer.Stop()
		o.setTimer(o.clock.Now())
	}
}

// setTimer has tick called when the outage is over, unless a request fails until then. The caller holds mu.
func (o *outage) setTimer(now time.Time) { o.timer = o.clock.AfterFunc(o.end().Sub(now), o.tick) }

// end returns when the outage is over. The caller holds mu.
func (o *outage) end() time.Time {
	if o.success {
		return o.latest.Add(served)
	}
	return o.latest.Add(unserved)
}

// tick ends the outage, if that is due.
func (o *outage) tick() {
	t, err := o.tasks.Begin()
	if err != nil {
		return
	}
	defer t.End()
	o.mu.Lock()
	now := o.clock.Now()
	if o.timer == nil || now.Before(o.end()) {
		if o.timer != nil {
			o.setTimer(now)
		}
		o.mu.Unlock()
		return
	}
	lasted, logged, success := o.latest.Sub(o.since), o.logged, o.success
	o.forget()
	o.mu.Unlock()
	switch {
	case logged && success:
		o.log.Info("outage is over: Redis serves this client again", "lasted", lasted)
	case logged:
		o.log.Info("outage is over: no request has failed for a minute", "lasted", lasted)
	}
}

// forget forgets all failures. The caller holds mu.
func (o *outage) forget() {
	o.timer, o.err, o.logged = nil, nil, false
	o.failing.Store(false)
}

// close stops the timer. No request fails after that.
func (o *outage) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
		o.forget()
	}
}

// now returns since when there is an outage and the latest error; zero and nil if there is none.
func (o *outage) now() (since time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.logged {
		return time.Time{}, nil
	}
	return o.since, o.err
}

// Outage returns since when Redis does not serve the client, and the latest error; zero and nil if it does.
func (c *Calls) Outage() (since time.Time, err error) { return c.outage.now() }

// Failure returns what Redis fails with: in an outage the latest error, else what the caller's own latest request has failed with,
// which may be nil.
func (c *Calls) Failure(own error) error {
	_, err := c.outage.now()
	if err == nil && own != nil {
		err = c.named(own)
	}
	return err
}
