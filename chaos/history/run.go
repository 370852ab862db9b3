package history

import (
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Everybody is the Process of a Span that is about all processes.
const Everybody = -1

// Span is something that was done to a process. Times are ns of CLOCK_MONOTONIC, as in Event.
type Span struct {
	Process int   `json:"process"`
	From    int64 `json:"from"`
	To      int64 `json:"to"`
}

// Loss says that at some moment of a span Redis may have forgotten who holds a lock and who waits for it: it lost data,
// a failover lost writes, the lock was released by force, or its clock stepped.
type Loss struct {
	Lock string `json:"lock,omitempty"` // all locks if it is empty
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// Run is what has to be known of a run beside its events. What it excuses must be told exactly: what is not told was
// not there.
type Run struct {
	TTL      time.Duration // of all clients; fairlock's default if 0
	Patience time.Duration // WaiterTTL of all clients; fairlock's default if 0

	// Kills: From just before SIGKILL is sent, To when the process was seen to be dead. At most one for each process.
	Kills []Span
	// Stops: From when the process was seen to stand still after SIGSTOP, To just before SIGCONT.
	Stops []Span
	// Silences: a process could not be heard by Redis, or Redis not by it, from at the earliest From to at the latest To:
	// its connections were cut, hung or slow, its machine stood still, Redis was down or stood still (Everybody).
	Silences []Span
	// Losses, of Redis.
	Losses []Loss

	// Witness is what was seen in Redis itself, in its order; nil if nobody looked.
	Witness []Witness

	// Limit is how long the search for a linear order may take, 30 s if 0. Then the report says that it is undecided,
	// which is a failure.
	Limit time.Duration
	// Pictures is an existing directory into which a history that cannot be put into a linear order is drawn, in HTML.
	// None is drawn if it is empty.
	Pictures string
}

func (r Run) withDefaults() Run {
	if r.TTL == 0 {
		r.TTL = fairlock.DefaultTTL
	}
	if r.Patience == 0 {
		r.Patience = fairlock.DefaultWaiterTTL
	}
	if r.Limit == 0 {
		r.Limit = 30 * time.Second
	}
	return r
}

// about reports whether a loss is about a lock.
func (l Loss) about(lock string) bool { return l.Lock == "" || l.Lock == lock }

// lost returns the earliest loss of this lock that may have happened in a span of time.
func (r Run) lost(lock string, from, to int64) (first Loss, found bool) {
	for _, l := range r.Losses {
		if l.about(lock) && l.From <= to && l.To >= from && (!found || l.From < first.From) {
			first, found = l, true
		}
	}
	return first, found
}
