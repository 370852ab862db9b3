package fairlock

import (
	"time"

	"github.com/fairlock/fairlock-go/token"
)

// Trace is a set of callbacks, each may be nil. They run in the goroutine in which the thing happens and delay it, so
// they should be quick; they may be called from several goroutines at once. They must not call the Client's Close.
type Trace struct {
	// Queued: an acquisition has joined the queue. Again, if it was dropped and came back with its ticket.
	Queued func(QueuedInfo)
	// Granted: a lock is held from now on.
	Granted func(GrantedInfo)
	// Renewed: a lease was extended, or could not be (Err); then it is tried again until its deadline.
	Renewed func(RenewedInfo)
	// Lost: a lease is over that its holder did not end.
	Lost func(LostInfo)
	// Released: a lock was given back.
	Released func(ReleasedInfo)
	// Left: a waiter has given up (its ctx ended, or an error). Err tells why.
	Left func(LeftInfo)
	// WakeLost: a beat found that a waiter had been granted the lock and had not heard of it.
	WakeLost func(Event)
	// Listening: the subscription for wake-ups came up (Err is nil) or broke.
	Listening func(ListeningInfo)
}

// Event is what every callback about one acquisition has.
type Event struct {
	Name string // the lock's
	Kind string // "mutex", "semaphore" or "rwmutex"
	// Weight is how many permits it is about: 1 of a mutex and for a reader, 1 << 30 for a writer; 0 if it is not known,
	// because the lease was resumed.
	Weight int
	Token  token.Token
}

// QueuedInfo is about a waiter's place.
type QueuedInfo struct {
	Event
	Position int    // 1 is the head
	Ticket   uint64 // µs of server time, strictly increasing over the waiters of a lock
}

// GrantedInfo is about the beginning of a lease.
type GrantedInfo struct {
	Event
	Fence  uint64
	Ticket uint64        // of the waiter; 0 if it never queued
	Wait   time.Duration // since Lock was called
	Handed bool          // handed over by the previous holder and used without asking again
}

// RenewedInfo is about one renewal.
type RenewedInfo struct {
	Event
	Deadline time.Time // until when the lease is believed now
	Err      error
}

// LostInfo is about the end of a lease that its holder did not end.
type LostInfo struct {
	Event
	Fence uint64
	Held  time.Duration
	Err   error // an ErrLost
}

// ReleasedInfo is about the end of a lease by Unlock.
type ReleasedInfo struct {
	Event
	Fence uint64
	Held  time.Duration
}

// LeftInfo is about a waiter that left without the lock.
type LeftInfo struct {
	Event
	Wait time.Duration
	Err  error
}

// ListeningInfo is about the subscription for wake-ups.
type ListeningInfo struct{ Err error }

// call calls a callback if there is one.
func call[T any](f func(T), info T) {
	if f != nil {
		f(info)
	}
}
