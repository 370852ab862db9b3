package fairlock

import (
	"time"

	"github.com/fairlock/fairlock-go/token"
)

// Trace is a set of callbacks; each may be nil. They run in the goroutine in which the event occurs and delay it, so
// they should be quick; they may be called from several goroutines at once. They must not call the Client's Close.
type Trace struct {
	// Queued is called when an acquisition joins the queue, and again if it was dropped and came back with its ticket.
	Queued func(QueuedInfo)
	// Granted is called when a lease begins.
	Granted func(GrantedInfo)
	// Renewed is called after each renewal, also after one by Lease.Renew. If it failed (Err is not nil, also because the
	// ctx of Lease.Renew ended), another follows until the lease's deadline, unless Config.NoRenewal is set.
	Renewed func(RenewedInfo)
	// Lost is called when a lease ends that its holder did not end.
	Lost func(LostInfo)
	// Released is called when a lock was released by Unlock.
	Released func(ReleasedInfo)
	// Left is called when a waiter leaves without the lock. Err says why.
	Left func(LeftInfo)
	// NotificationLost is called when a heartbeat finds that a waiter was granted the lock and was not notified.
	NotificationLost func(Event)
	// Subscription is called when the subscription for notifications came up (Err is nil) or broke.
	Subscription func(SubscriptionInfo)
}

// Event is part of every callback about one acquisition.
type Event struct {
	Name string // the lock's
	Kind string // "mutex", "semaphore" or "rwmutex"
	// Weight is a number of permits: 1 for a mutex and for a reader, 1 << 30 for a writer; 0 if it is not known, because
	// the lease was resumed.
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
	Ticket  uint64        // of the waiter; 0 if it was never queued
	Wait    time.Duration // since Lock was called
	Handoff bool          // a release handed the lock over, and the waiter needed no further request
}

// RenewedInfo is about one renewal.
type RenewedInfo struct {
	Event
	Deadline time.Time // until when the lease is trusted now
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

// SubscriptionInfo is about the subscription for notifications.
type SubscriptionInfo struct{ Err error }

// call calls a callback if there is one.
func call[T any](f func(T), info T) {
	if f != nil {
		f(info)
	}
}
