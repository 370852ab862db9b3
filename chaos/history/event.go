// Package history holds what processes that used locks have written down, and judges whether a fair lock could have
// done that.
//
// A worker writes Events to the Log of its process. Read merges the logs of a run. Check judges them, together with
// what the Run knows: whom it killed, stopped and cut off, whether Redis lost its data, and what a witness saw there.
// Every rule says what is proved by it, and what is left out: a line in a log is written a while after the thing that
// it tells, and a process can be killed or stopped in between.
//
// It is about mutexes. A line of another lock is judged with that lock's alone.
package history

import (
	"errors"
	"fmt"
)

// Op is what an Event tells.
type Op string

// What a worker writes down. Of one acquisition: Ask, then perhaps Queued, then Granted or Failed; then any number of
// Renewed and Used, perhaps Lost; then Unlock and one of Released, Denied and Unknown. After Unknown it may call Unlock
// again. Queued and Renewed come from the Trace: Queued again, with the same ticket, if the waiter was dropped and came
// back; Renewed also before Granted is written, and after Unlock. A log ends anywhere: its process may be killed.
const (
	Ask      Op = "ask"      // just before Lock is called; Until: when its ctx ends by itself, 0 if not told
	Queued   Op = "queued"   // Trace.Queued: Token, Ticket, Position
	Granted  Op = "granted"  // Lock has returned a lease: Token, Fence, Ticket (0 if it never queued), Until
	Failed   Op = "failed"   // Lock has returned an error: Err; the worker will not hold this lock; Redis may grant it yet
	Renewed  Op = "renewed"  // Trace.Renewed without an error: Until
	Used     Op = "used"     // the worker was in its critical section at At, then Err() was nil; Until: Deadline(), or 0
	Lost     Op = "lost"     // the worker has seen that its lease is over: Err
	Unlock   Op = "unlock"   // just before Unlock is called; the worker has left its critical section
	Released Op = "released" // Unlock has returned nil
	Denied   Op = "denied"   // Unlock has returned ErrLost: Err
	Unknown  Op = "unknown"  // Unlock has returned another error: Err; the lock may have been released, now or later
)

// Event is one line of a log, in JSON.
type Event struct {
	At       int64  `json:"at"`      // ns of CLOCK_MONOTONIC, which all processes of a machine share; see Now
	Process  int    `json:"process"` // never used again for another process of the same run
	Call     int    `json:"call"`    // the acquisition, unique in its process
	Worker   int    `json:"worker"`  // the goroutine in its process
	Op       Op     `json:"op"`
	Lock     string `json:"lock"`
	Token    string `json:"token,omitempty"` // from Queued or Granted on
	Fence    uint64 `json:"fence,omitempty"`
	Ticket   uint64 `json:"ticket,omitempty"`
	Position int    `json:"position,omitempty"`
	Until    int64  `json:"until,omitempty"` // ns as At: until when the worker believes to hold, if it hears no more
	Err      string `json:"err,omitempty"`
}

// check tells what is missing in an event.
func (e *Event) check() error {
	var missing []error
	need := func(there bool, what string) {
		if !there {
			missing = append(missing, errors.New("no "+what))
		}
	}
	need(e.At > 0, "time")
	need(e.Process >= 0, "process")
	need(e.Lock != "", "lock")
	switch e.Op {
	case Ask, Failed, Used, Lost, Unlock, Released, Denied, Unknown:
	case Queued:
		need(e.Token != "", "token")
		need(e.Ticket != 0, "ticket")
	case Granted:
		need(e.Token != "", "token")
		need(e.Fence != 0, "fence")
		need(e.Until != 0, "end of belief")
	case Renewed:
		need(e.Until != 0, "end of belief")
	default:
		missing = append(missing, fmt.Errorf("no such op: %q", e.Op))
	}
	return errors.Join(missing...)
}
