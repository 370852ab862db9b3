package fairlock

import (
	"time"

	"github.com/fairlock/fairlock-go/token"
)

// Trace is a set of callbacks. Each may be nil. A callback runs in the goroutine in which the event occurs and delays it,
// so it should be quick. Several goroutines may call one at once. A callback must not call the Client's Close.
type Trace struct {
	// Queued is called when an acquisition joins the queue, and again if it was dropped and came back with its ticket.
	Queued func(QueuedInfo)
	// Granted is called when a lease begins.
	Granted func(GrantedInfo)
	// Renewed is called after each renewal, also after one by Lease.Renew. If Err is not nil, the renewal has failed, or the
	// ctx of Lease.Renew has ended. Others follow until the lease's deadline, unless Config.NoRenewal is set.
	Renewed func(RenewedInfo)
	// Lost is called when a lease ends without its holder's doing.
	Lost func(LostInfo)
	// Released is called when Unlock has released a lock.
	Released func(ReleasedInfo)
	// Left is called when a waiter leaves without the lock. Err says why.
	Left func(LeftInfo)
	// NotificationLost is called when a heartbeat finds that a waiter was granted the lock and was not notified.
	NotificationLost func(Event)
	// Subscription is called when the subscription for notifications has come up, or has broken.
	Subscription func(SubscriptionInfo)
}

// Event is part of every callback about one acquisition.
type Event struct {
	Name string // the lock's name
	Kind string // "mutex", "semaphore" or "rwmutex"
	// Weight is a number of permits. It is 1 for a mutex and for a reader, and 1 << 30 for a writer.
	Weight int
	Token  token.Token
}

// QueuedInfo is about a waiter in the queue.
type QueuedInfo struct {
	Event
	Position int    // 1 is the head
	Ticket   uint64 // µs of server time, strictly increasing over the waiters of a lock
}

// GrantedInfo is about the beginning of a lease.
type GrantedInfo struct {
	Event
	Fence   uint64
	Ticket  uint64        // the waiter's ticket; 0 if it was never queued
	Wait    time.Duration // since Lock was called
	Handoff bool          // a release handed the lock over, and the waiter needed no further request
}

// RenewedInfo is about one renewal.
type RenewedInfo struct {
	Event
	Deadline time.Time // the lease ends here then, if it is not renewed again
	Err      error
}

// LostInfo is about a lease that has ended without its holder's doing.
type LostInfo struct {
	Event
	Fence uint64
	Held  time.Duration
	Err   error // an ErrLost
}

// ReleasedInfo is about a lease that Unlock has ended.
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

// SubscriptionInfo is about the subscription for notifications.
type SubscriptionInfo struct {
	Err error // why it has broken; nil if it has come up
}

// call calls a callback, if there is one.
func call[T any](f func(T), info T) {
	if f != nil {
		f(info)
	}
}
