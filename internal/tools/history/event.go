// Package history checks what clients and a server recorded of a run: whether fair locks could have behaved like that.
package history

import (
	"fmt"
	"time"
)

// Op is what an Event records.
type Op string

// What a worker records. Of one acquisition: Request, then perhaps Queued, then Granted or Failed; then any number of
// Renewed and Used, perhaps Lost. Then come Unlock and one of Released, NotHeld and Ambiguous. After Ambiguous it may
// call Unlock again. Queued and Renewed come from the Trace: Queued comes at most once, even if the waiter was dropped
// and came back. Renewed may come before Granted is recorded, and after Unlock. A record ends anywhere: its process may
// be killed.
const (
	Request   Op = "request"   // just before Lock is called; Until: the deadline of its ctx, 0 if it has none
	Queued    Op = "queued"    // Trace.Queued: Token, Ticket
	Granted   Op = "granted"   // Lock has returned a lease: Token, Fence, Ticket (0 if it never queued), Until
	Failed    Op = "failed"    // Lock has returned an error: Err
	Renewed   Op = "renewed"   // Trace.Renewed without an error: Until
	Used      Op = "used"      // the worker was in its critical section at At, then Err() was nil
	Lost      Op = "lost"      // the worker has seen that its lease is over: Err
	Unlock    Op = "unlock"    // just before Unlock is called; the worker has left its critical section
	Released  Op = "released"  // Unlock has returned nil
	NotHeld   Op = "not held"  // Unlock has returned ErrLost: Err
	Ambiguous Op = "ambiguous" // Unlock has returned another error: Err; the lock may have been released, now or later
)

// Event is what one worker did, or was told. In files it is one line of JSON.
type Event struct {
	At      int64  `json:"at"`      // ns of a clock that all processes of the run share
	Process int    `json:"process"` // a client: never used again for another one of the run
	Worker  int    `json:"worker"`  // the goroutine in its process
	Call    int    `json:"call"`    // the acquisition, unique in its process
	Op      Op     `json:"op"`
	Lock    string `json:"lock"`
	Weight  int    `json:"weight,omitempty"` // of Request: how many permits; 0 stands for 1
	// of Request: how many there are for it, unless the lock was resized; 0: as the Run says
	Permits int `json:"permits,omitempty"`

	Key      string `json:"key,omitempty"`       // of Request: the key of a keyed semaphore
	KeyLimit int    `json:"key_limit,omitempty"` // of Request: permits that its key may hold at once; 0: any number

	Token  string `json:"token,omitempty"`
	Fence  uint64 `json:"fence,omitempty"`
	Ticket uint64 `json:"ticket,omitempty"`
	Until  int64  `json:"until,omitempty"` // ns as At: the end of the trusted time
	Err    string `json:"err,omitempty"`

	TTL time.Duration `json:"ttl,omitempty"` // of Request: of the lease, if it is not that of the run
}

// String shows everything that is known but the time.
func (e Event) String() string {
	return fmt.Sprintf("client %d worker %d call %d  %-9s  %s", e.Process, e.Worker, e.Call, e.Op, e.Lock) +
		Details("key", e.Key, "weight", e.Weight, "ticket", e.Ticket, "fence", e.Fence, "until", seconds(e.Until), "token",
			e.Token, "error", e.Err)
}

// Details lists names and values, without those that are 0 or empty.
func Details(pairs ...any) (text string) {
	for i := 0; i < len(pairs); i += 2 {
		if v := fmt.Sprint(pairs[i+1]); v != "" && v != "0" && v != seconds(0) {
			text += fmt.Sprintf("  %s %s", pairs[i], v)
		}
	}
	return text
}

// ServerOp is what a ServerEvent records.
type ServerOp string

// What was seen in Redis itself, in the order in which Redis did it.
const (
	Joins  ServerOp = "joins"  // Token is in the queue with Ticket
	Keeps  ServerOp = "keeps"  // Token keeps its ticket until Until, in µs of the queue's clock
	Owns   ServerOp = "owns"   // Token was granted the lock
	Leaves ServerOp = "leaves" // Token left the queue by its own request
	Drops  ServerOp = "drops"  // Token was removed from the queue as expired; Until: the queue's clock then
	Lasts  ServerOp = "lasts"  // the lease of Token with the fence Ticket lasts until Until, in ns as Event.At
	Ends   ServerOp = "ends"   // Token no longer holds the lock
	// Resizes: Lock has Ticket permits from then on; 0: as many as each request says, as before the first
	Resizes ServerOp = "resizes"
	Deletes ServerOp = "deletes" // the data of Lock, or of all locks if it is empty, were lost
	// Forgets: a key of the queue of Lock was lost. Each waiter comes back with its ticket at its next heartbeat, at most
	// a third of TTL or WaiterTTL later. It can be passed until then
	Forgets ServerOp = "forgets"
	Misses  ServerOp = "misses" // what follows is incomplete: the observer missed something
)

// ServerEvent is one change of the server's data.
type ServerEvent struct {
	At     int64    `json:"at"` // µs of the server's TIME
	Op     ServerOp `json:"op"`
	Lock   string   `json:"lock,omitempty"`
	Token  string   `json:"token,omitempty"`
	Key    string   `json:"key,omitempty"` // of Joins and Owns: of a keyed semaphore
	Ticket uint64   `json:"ticket,omitempty"`
	Until  int64    `json:"until,omitempty"`
	Seen   int64    `json:"seen,omitempty"` // when it happened, in ns as Event.At; 0 if that is not known
}

// All is the Process of a Span that concerns every process.
const All = -1

// Span is a time in which something was done to a process. Times are those of Event.At.
type Span struct {
	Process int   `json:"process"`
	From    int64 `json:"from"`
	To      int64 `json:"to"`
}

// Loss says that in a span Redis may have lost the holders and waiters of a lock, or the Part of the data that it
// names. Redis lost data, a failover lost writes, the lock was force-released, or the clock stepped forward.
type Loss struct {
	Lock string `json:"lock,omitempty"` // all locks if it is empty
	Part Part   `json:"part,omitempty"`
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// Part is a part of what Redis has of a lock.
type Part string

// The parts.
const (
	Holders    Part = "holders"    // who holds it
	Numbers    Part = "numbers"    // the last number
	Tombstones Part = "tombstones" // who has left
)

// Run is what has to be known of a run beside its events. It excuses what a fault explains, so it must be exact.
type Run struct {
	TTL       time.Duration  `json:"ttl"`        // of all clients; of a request that says another, not less
	WaiterTTL time.Duration  `json:"waiter_ttl"` // of all clients
	Capacity  map[string]int `json:"capacity"`   // of a lock by name, for requests that say no other; 1 if it is missing

	Kills       []Span // From just before the kill, To when the process was seen to be dead. At most one for each process
	Pauses      []Span // From when the process was seen to stand still, To just before it went on
	Unreachable []Span // a process could not reach Redis, or Redis it, from at the earliest From to at the latest To
	Losses      []Loss
	ClockBack   bool          // Redis's clock was stepped back in the run, or may have been
	Server      []ServerEvent // nil if nobody observed the server
}
