package inspect

import (
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
)

const (
	// PerStep is the most that one step of a search takes of Redis's time.
	PerStep = time.Millisecond
	// perLock is the part of that which each lock takes that is read, of a pipeline of atOnce.
	perLock = PerStep / atOnce
)

// traffic is what is known of the requests of a Server.
type traffic struct {
	mu       sync.Mutex
	underWay int // guarded by mu: requests
	// guarded by mu: when the first request began that has no reply, but not before the last reply; zero if none
	since   time.Time
	replied time.Time     // guarded by mu: when the last reply came; zero if none has
	spent   time.Duration // guarded by mu
}

// begin records a request and the most time that it takes of Redis.
func (t *traffic) begin(takes time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		t.since = clock.System{}.Now()
	}
	t.underWay++
	t.spent += takes
}

// end notes that a request has ended so.
func (t *traffic) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay--
	if err != nil && !Refused(err) {
		return
	}
	t.replied = clock.System{}.Now()
	if t.since = t.replied; t.underWay == 0 {
		t.since = time.Time{}
	}
}

// Silent is how long a request has had no reply, whether it is in flight or has failed; 0 if every request had one.
func (t *traffic) Silent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		return 0
	}
	return clock.System{}.Now().Sub(t.since)
}

// Replied is when the last reply came; zero if none has.
func (t *traffic) Replied() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replied
}

// Spent is how much of Redis's time all requests have taken at most. How long their replies took does not count:
// a slow network or a Redis that hangs does not make them cost more.
func (t *traffic) Spent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spent
}
