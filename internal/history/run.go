package history

import "time"

// All is the Process of a Span that concerns every process.
const All = -1

// Span is a time in which something was done to a process. Times are those of Event.At.
type Span struct {
	Process int   `json:"process"`
	From    int64 `json:"from"`
	To      int64 `json:"to"`
}

// Loss says that at some moment of a span Redis may have forgotten who holds a lock and who waits for it: it lost data,
// a failover lost writes, the lock was released by force, or its clock stepped forward.
type Loss struct {
	Lock string `json:"lock,omitempty"` // all locks if it is empty
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// Run is what has to be known of a run beside its events. It excuses what a fault explains, so it must be exact.
type Run struct {
	TTL       time.Duration  `json:"ttl"`        // of all clients
	WaiterTTL time.Duration  `json:"waiter_ttl"` // of all clients
	Capacity  map[string]int `json:"capacity"`   // of a lock by name; 1 if it is missing

	Kills       []Span // From just before the kill, To when the process was seen to be dead. At most one for each process
	Pauses      []Span // From when the process was seen to stand still, To just before it went on
	Unreachable []Span // a process could not reach Redis, or Redis it, from at the earliest From to at the latest To
	Losses      []Loss
	ClockBack   bool // Redis's clock was stepped back in the run, or may have been

	Server []ServerEvent // nil if nobody observed the server
}

// lost returns the first loss of a lock's data that may have happened in a span of time, or nil.
func (r *Run) lost(lock string, from, to int64) (first *Loss) {
	for i := range r.Losses {
		l := &r.Losses[i]
		if (l.Lock == "" || l.Lock == lock) && l.From <= to && l.To >= from && (first == nil || l.From < first.From) {
			first = l
		}
	}
	return first
}
