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
	// forgotten is how long after the last request the next one begins a silence of its own: nobody knows what was between
	// them.
	forgotten = 15 * time.Second
)

// traffic is what is known of the requests of a Server.
type traffic struct {
	mu       sync.Mutex
	underWay int // guarded by mu: requests
	// guarded by mu: when the first request began that has no reply, but not before the last reply; zero if none
	since time.Time
	ended time.Time     // guarded by mu: when the last request did
	spent time.Duration // guarded by mu
}

// begin notes that a request is sent that takes at most so much of Redis's time.
func (t *traffic) begin(takes time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.System{}.Now()
	if t.since.IsZero() || t.forgotten(now) {
		t.since = now
	}
	t.underWay++
	t.spent += takes
}

// end notes that a request has ended so.
func (t *traffic) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = clock.System{}.Now()
	t.underWay--
	switch replied := err == nil || Refused(err); {
	case replied && t.underWay == 0:
		t.since = time.Time{}
	case replied:
		t.since = t.ended
	}
}

// Silent is for how long Redis has not replied to any request, whether one is under way or they have failed; 0 if it
// has.
func (t *traffic) Silent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.System{}.Now()
	if t.since.IsZero() || t.forgotten(now) {
		return 0
	}
	return now.Sub(t.since)
}

// Spent is how much of Redis's time all requests have taken at most. How long their replies took does not count:
// neither the network nor a Redis that hangs makes them cost more.
func (t *traffic) Spent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spent
}

// forgotten reports whether the last request was long ago. The caller holds mu.
func (t *traffic) forgotten(now time.Time) bool {
	return t.underWay == 0 && now.Sub(t.ended) > forgotten
}
