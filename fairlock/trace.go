package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/token"
)

// Trace is a set of callbacks. Each may be nil. A callback runs where the event occurs and delays it, so it should be quick.
// Several goroutines may call one at once. A callback must not call the Client's Close.
//
// The events balance, so that gauges can be made of them. An acquisition is a call of Lock, Try…, Do or Resume. One that is
// refused before anything could be sent (bad input, a ctx that has ended, a closed Client, ErrReentrant) gives none. Each other
// one gives exactly one of Granted and Left, with one Queued before it if it has joined the queue. After each Granted has
// returned comes exactly one Ended. Only a hook of the Redis client that panics breaks that.
type Trace struct {
	// Queued is called when an acquisition joins the queue. It is not called again if the waiter is dropped and comes back.
	Queued func(QueuedInfo)
	// Granted is called when a lease begins, also by Resume.
	Granted func(GrantedInfo)
	// Renewed is called after each renewal, unless that finds the lease lost. If Err is not nil, the renewal has failed, and
	// others follow until the deadline.
	Renewed func(RenewedInfo)
	// Ended is called when a lease has ended: when its Unlock has its outcome, and otherwise at once.
	Ended func(EndedInfo)
	// Left is called when an acquisition ends without a lease, also for a Try… that finds the lock busy.
	Left func(LeftInfo)
	// NotificationLost is called when a heartbeat finds that a waiter was granted the lock and was not notified.
	NotificationLost func(Event)
	// Subscription is called when the subscription for notifications has come up, or has broken.
	Subscription func(SubscriptionInfo)
}

// Event is part of every callback about one acquisition.
type Event struct {
	Ctx       context.Context // the caller's, for the values in it, such as a span; it may have ended
	Namespace string          // Config.Namespace
	ID                        // the lock
	Weight    int             // number of permits; 1 for a mutex and for a reader, 1 << 30 for a writer
	Token     token.Token
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
	Queued  bool          // Queued was called for it
}

// RenewedInfo is about one renewal.
type RenewedInfo struct {
	Event
	Deadline time.Time // the lease ends here then, if it is not renewed again
	Err      error
}

// EndedInfo is about the end of a lease. Err is nil if Unlock has released the lock, an ErrLost after a loss, ErrDetached after
// Detach, and ErrClosed if the Client was closed. Any other Err is that of the Unlock: the lock may be held until its TTL ends.
type EndedInfo struct {
	Event
	Fence uint64
	Held  time.Duration
	Err   error
}

// LeftInfo is about an acquisition that has ended without a lease.
type LeftInfo struct {
	Event
	Wait   time.Duration
	Err    error
	Queued bool // Queued was called for it
}

// SubscriptionInfo is about the subscription for notifications.
type SubscriptionInfo struct {
	Err error // why it has broken; nil if it has come up
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
		Left:             join(a.Left, b.Left),
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
