package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/token"
)

// Trace is a set of callbacks. Each may be nil. A callback delays the event, so it should be quick. Several goroutines
// may call one at once. A callback must not call the Client's Close or Shutdown, which wait for it.
//
// Queued, Abandoned and Granted run in their caller's goroutine, as does the Ended of an Unlock or of a loss that a
// method has found. A panic there reaches the caller, and the lease or ticket is released. All others run in goroutines
// of the Client, where a panic of a callback or of the Logger ends the process.
//
// Each call of Lock, Try…, Do or Resume causes exactly one Granted or Abandoned, after one Queued if it has joined the
// queue. One Ended follows each Granted. A call that cannot send a request (bad input, a ctx that has ended, a closed
// Client, ErrReentrant) causes no event.
type Trace struct {
	// an acquisition joins the queue; once, even if its waiter is dropped and queued again
	Queued           func(QueuedInfo)
	Granted          func(GrantedInfo)   // a lease begins, by Lock or Resume
	Renewed          func(RenewedInfo)   // a renewal has succeeded, or failed, and others follow until the deadline
	Ended            func(EndedInfo)     // a lease has ended; after Unlock, once its outcome is known
	Abandoned        func(AbandonedInfo) // an acquisition ends without a lease, such as a Try… that finds the lock busy
	NotificationLost func(Event)         // a heartbeat finds a grant whose notification was lost
	Subscription     func(err error)     // the subscription for notifications has come up, with nil, or has broken
}

// Event is part of every callback about one acquisition.
type Event struct {
	Ctx       context.Context // the caller's, for its values, such as a span; it may have ended
	Namespace string          // Config.Namespace
	ID                        // the lock
	Key       string          // of a KeyedSemaphore; "" of another lock
	Weight    int             // number of permits; 1 except for semaphores
	Writer    bool            // for an RWMutex, for writing
	Token     token.Token
}

// QueuedInfo is about a waiter in the queue.
type QueuedInfo struct {
	Event
	Position int    // 1 is the head; of a KeyedSemaphore, the first of the key
	Ticket   uint64 // µs of server time, strictly increasing over the waiters of a lock
}

// GrantedInfo is about the beginning of a lease.
type GrantedInfo struct {
	Event
	Fence   uint64
	Ticket  uint64        // the waiter's ticket; 0 if it was never queued
	Wait    time.Duration // since Lock was called
	Handoff bool          // a release handed the lock to the waiter, which needed no further request
}

// RenewedInfo is about one renewal.
type RenewedInfo struct {
	Event
	Deadline time.Time // when the lease ends here without another renewal
	Err      error
}

// EndedInfo is about the end of a lease. Err is nil if Unlock has released the lock, ErrLost after a loss, ErrDetached
// after Detach, and ErrClosed if the Client was closed. Any other Err is that of Unlock.
type EndedInfo struct {
	Event
	Fence uint64
	Held  time.Duration
	Err   error
}

// AbandonedInfo is about an acquisition that has ended without a lease.
type AbandonedInfo struct {
	Event
	Wait   time.Duration
	Err    error
	Ticket uint64 // the waiter's ticket; 0 if it was never queued
}

// JoinTraces returns a Trace that calls the callbacks of a, and then those of b. Either may be nil.
func JoinTraces(a, b *Trace) *Trace {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return &Trace{
		Queued:           join(a.Queued, b.Queued),
		Granted:          join(a.Granted, b.Granted),
		Renewed:          join(a.Renewed, b.Renewed),
		Ended:            join(a.Ended, b.Ended),
		Abandoned:        join(a.Abandoned, b.Abandoned),
		NotificationLost: join(a.NotificationLost, b.NotificationLost),
		Subscription:     join(a.Subscription, b.Subscription),
	}
}

func join[T any](f, g func(T)) func(T) {
	if f == nil {
		return g
	}
	if g == nil {
		return f
	}
	return func(info T) {
		f(info)
		g(info)
	}
}

// emit calls a callback, if there is one.
func emit[T any](f func(T), info T) {
	if f != nil {
		f(info)
	}
}
