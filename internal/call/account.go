package call

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
)

const (
	// outageAfter is the least time between the first failure and another one in an outage. One connection that was reset
	// is not an outage.
	outageAfter = time.Second
	// served and unserved are how long after the latest failure it ends: if a request has succeeded since, and if none
	// has.
	served, unserved = 5 * time.Second, time.Minute
)

// An account records a period in which the client's requests fail. It begins when a request fails and another one does
// a second or more later. Its beginning is logged. Its end is logged by the first request that finds that others have
// succeeded. A client has two accounts: one of outages, in which Redis does not serve it, and one of refusals that it
// retries.
type account struct {
	clock  clock.Clock
	log    *slog.Logger
	begins string // the lines of the log
	over   string

	// oneLock means that only a success for the lock that failed last counts. On a Cluster one master may be down while
	// the others reply. A user may have rights to other locks.
	oneLock bool

	failing atomic.Bool // since is not zero; so that a request costs no mutex

	mu      sync.Mutex
	since   time.Time // guarded by mu: of the first failure; zero if there is none
	latest  time.Time // guarded by mu: of the latest failure
	lock    string    // guarded by mu: name of the lock whose request failed then
	err     error     // guarded by mu: of that request
	success bool      // guarded by mu: a request has succeeded since
	begun   bool      // guarded by mu: another failure has come
}

// failed notes that a request for a lock has failed.
func (a *account) failed(lock string, err error) {
	now := a.clock.Now()
	a.mu.Lock()
	over, lasted := a.endLocked(now)
	if a.since.IsZero() {
		a.since = now
		a.failing.Store(true)
	}
	a.latest, a.lock, a.err, a.success = now, lock, err, false
	begins := !a.begun && now.Sub(a.since) >= outageAfter
	a.begun = a.begun || begins
	a.mu.Unlock()
	if over {
		a.log.Info(a.over, "lasted", lasted)
	}
	if begins {
		facts := []any{"lock", lock, "err", err}
		if lock == "" { // the request was not for a lock
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
	now := a.clock.Now()
	a.mu.Lock()
	a.success = a.success || !a.oneLock || lock == a.lock
	over, lasted := a.endLocked(now)
	a.mu.Unlock()
	if over {
		a.log.Info(a.over, "lasted", lasted)
	}
}

// isOverLocked reports whether the failures are over.
func (a *account) isOverLocked(now time.Time) bool {
	if a.success {
		return !now.Before(a.latest.Add(served))
	}
	return !now.Before(a.latest.Add(unserved))
}

// endLocked resets the account if the failures are over. It reports whether to log that, and how long they lasted.
func (a *account) endLocked(now time.Time) (over bool, lasted time.Duration) {
	if a.since.IsZero() || !a.isOverLocked(now) {
		return false, 0
	}
	over, lasted = a.begun && a.success, a.latest.Sub(a.since)
	a.since, a.err, a.begun = time.Time{}, nil, false
	a.failing.Store(false)
	return over, lasted
}

// now returns when the failures began, and the latest error. They are zero and nil without failures.
func (a *account) now() (since time.Time, err error) {
	now := a.clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.begun || a.isOverLocked(now) {
		return time.Time{}, nil
	}
	return a.since, a.err
}

// Answered reports whether a server has answered a request.
func (c *Calls) Answered() bool { return c.answered.Load() }

// note records the outcome of a request for a lock: nil, an error, or ErrNoReply.
func (c *Calls) note(lock string, err error) {
	if !c.answered.Load() && (err == nil || dispatch.ReplyIn(err) != "") {
		c.answered.Store(true)
	}
	switch {
	case err == nil:
		c.outage.succeeded(lock)
		c.refusals.succeeded(lock)
		if c.reconnected() {
			c.otherServer()
		}
	case Passes(WithOrigin(err)): // other errors are recorded by Refused if they are retried
		c.outage.failed(lock, c.named(err))
	}
}

// reconnected reports whether connections were closed since the latest success. In a failover, go-redis closes them, or
// retries after a broken one and after READONLY. The errors of requests do not show that. It can be true without a
// reason while the pool grows.
func (c *Calls) reconnected() bool {
	if c.pool == nil { // a Cluster waits in a planned failover until nothing can be lost
		return false
	}
	stats := c.pool.PoolStats()
	closed := int64(stats.Misses) - int64(stats.TotalConns)
	return c.closed.Swap(closed) < closed
}

// Outage returns when the present outage began, and the latest error. They are zero and nil without an outage.
func (c *Calls) Outage() (since time.Time, err error) { return c.outage.now() }

// Refused records a refused request that will be retried.
func (c *Calls) Refused(lock string, err error) { c.refusals.failed(lock, err) }

// Refusals returns since when Redis has refused requests that are retried, and the latest error. They are zero and nil
// if it does not.
func (c *Calls) Refusals() (since time.Time, err error) { return c.refusals.now() }

// Failure returns the latest error in an outage, and otherwise own, the error of the caller's latest request, which may
// be nil.
func (c *Calls) Failure(own error) error {
	_, err := c.outage.now()
	if err == nil && own != nil {
		err = c.named(own)
	}
	return err
}
