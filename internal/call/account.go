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
	// served and unserved are how long after the latest failure it is over: if a request has succeeded since, and if none
	// has.
	served, unserved = 5 * time.Second, time.Minute
)

// An account says since when something is wrong with the client's requests. It begins when a request fails and another
// one, a second or more later, and is logged once when that is known and once when it is over. A client has two: of an
// outage, in which Redis does not serve it, and of refusals of what the library tries again.
type account struct {
	tasks  *task.Group
	clock  clock.Clock
	log    *slog.Logger
	begins string // the lines of the log
	over   string // if a request has succeeded
	silent string // if none has failed for a minute

	// oneLock means that only a request for the lock whose request failed last succeeds. On a Cluster one master may be
	// away while the others reply. A user may have rights to other locks.
	oneLock bool

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
func (a *account) failed(lock string, err error) {
	now := a.clock.Now()
	a.mu.Lock()
	a.latest, a.lock, a.err, a.success = now, lock, err, false
	if a.timer == nil {
		a.since = now
		a.failing.Store(true)
		a.setTimer(now)
	}
	begins := !a.logged && now.Sub(a.since) >= outageAfter
	a.logged = a.logged || begins
	a.mu.Unlock()
	if begins {
		facts := []any{"lock", lock, "err", err}
		if lock == "" { // the request was for none
			facts = facts[2:]
		}
		a.log.Warn(a.begins, facts...)
	}
}

// succeeded notes that a request for a lock has succeeded.
func (a *account) succeeded(lock string) {
	if !a.failing.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil && !a.success && (!a.oneLock || lock == a.lock) {
		a.success = true
		a.timer.Stop()
		a.setTimer(a.clock.Now())
	}
}

// setTimer has tick called when it is over, unless a request fails until then. The caller holds mu.
func (a *account) setTimer(now time.Time) { a.timer = a.clock.AfterFunc(a.end().Sub(now), a.tick) }

// end returns when it is over. The caller holds mu.
func (a *account) end() time.Time {
	if a.success {
		return a.latest.Add(served)
	}
	return a.latest.Add(unserved)
}

// tick ends the account, if that is due.
func (a *account) tick() {
	t, err := a.tasks.Begin()
	if err != nil {
		return
	}
	defer t.End()
	a.mu.Lock()
	now := a.clock.Now()
	if a.timer == nil || now.Before(a.end()) {
		if a.timer != nil {
			a.setTimer(now)
		}
		a.mu.Unlock()
		return
	}
	lasted, logged, success := a.latest.Sub(a.since), a.logged, a.success
	a.forget()
	a.mu.Unlock()
	switch {
	case logged && success:
		a.log.Info(a.over, "lasted", lasted)
	case logged:
		a.log.Info(a.silent, "lasted", lasted)
	}
}

// forget forgets all failures. The caller holds mu.
func (a *account) forget() {
	a.timer, a.err, a.logged = nil, nil, false
	a.failing.Store(false)
}

// close stops the timer. No request fails after that.
func (a *account) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
		a.forget()
	}
}

// now returns since when something is wrong and the latest error; zero and nil if nothing is.
func (a *account) now() (since time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.logged {
		return time.Time{}, nil
	}
	return a.since, a.err
}

// Outage returns since when Redis does not serve the client, and the latest error; zero and nil if it does.
func (c *Calls) Outage() (since time.Time, err error) { return c.outage.now() }

// Refused notes that a request for a lock was refused that will be tried again.
func (c *Calls) Refused(lock string, err error) { c.refusals.failed(lock, err) }

// Refusals returns since when Redis refuses what is tried again, and the latest error; zero and nil if it does not.
func (c *Calls) Refusals() (since time.Time, err error) { return c.refusals.now() }

// Failure returns what Redis fails with: in an outage the latest error, else what the caller's own latest request has
// failed with, which may be nil.
func (c *Calls) Failure(own error) error {
	_, err := c.outage.now()
	if err == nil && own != nil {
		err = c.named(own)
	}
	return err
}
