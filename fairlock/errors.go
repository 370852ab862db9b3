package fairlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
)

// Errors to branch on with errors.Is. Methods return them inside an *Error.
var (
	// ErrBusy means that a Try… did not get the lock, because it is held or others come first. A *HeldError names a
	// holder.
	ErrBusy = errors.New("lock is busy")
	// ErrQueueFull means that MaxWaiters others wait already, for the lock or of the key. It is in a *QueueFullError.
	ErrQueueFull = errors.New("queue is full")
	// ErrWaitTimeout means that a call has waited for as long as WithMaxWait says, while its ctx lasted. It comes with a
	// *HeldError, or with the last error of Redis if there was one.
	ErrWaitTimeout = errors.New("wait timed out")
	// ErrReentrant means that a call would wait for a lease that its own ctx carries. The ctx comes from Do or
	// Lease.Context. Nothing was sent. Work that should wait for the end of the lease needs another ctx.
	ErrReentrant = errors.New("this context already holds the lock")
	// ErrLost means that a lease has ended before its holder ended it. It comes with ErrExpired, ErrRevoked or
	// ErrUnreachable.
	ErrLost = errs.Lost
	// ErrUnlocked is a lease's Err after Unlock.
	ErrUnlocked = errs.Unlocked
	// ErrDetached is a lease's Err after Detach.
	ErrDetached = errs.Detached
	// ErrClosed means that the Client was closed, or that Shutdown was called.
	ErrClosed = errs.Closed
	// ErrInvalid means that an input is out of its bounds. A *FieldError says which. Nothing was sent.
	ErrInvalid = errors.New("invalid")
)

// Reasons of ErrLost.
var (
	// ErrExpired means that this process was paused or had no CPU for too long. With ErrRefused it means that Redis
	// refused the renewals.
	ErrExpired = errs.Expired
	// ErrRevoked means that the lock was force-released or resumed, that its key was deleted or evicted, or that Redis
	// lost its data.
	ErrRevoked = errs.Revoked
	// ErrRefused means that Redis, or a proxy before it, refuses the request: a right is missing, the password has
	// changed, the server is full. A call without a ticket or a lease returns it at once. Queued waiters and held leases
	// retry once a second; if one ends meanwhile, it comes with ErrExpired or the error of ctx.
	ErrRefused = errs.Refused
	// ErrUnreachable with ErrLost means that the lease ended during an outage (see Stats), or that its latest renewal had
	// failed or had no reply. Without ErrLost, a call gave up because Redis did not serve it; the text says after how
	// long. It comes with the last error.
	ErrUnreachable = errs.Unreachable
)

// Error is the error of an operation on one lock.
type Error struct {
	Op   string // the method's name: "lock", "unlock", "do", "trydo", …
	Name string // the lock's name
	Err  error
}

// Error names the operation, and the lock by at most 64 characters.
func (e *Error) Error() string {
	return fmt.Sprintf("fairlock: %s %.64q: %v", e.Op, e.Name, e.Err)
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// BusyReason says why a Try… would wait.
type BusyReason string

// The reasons.
const (
	Held       BusyReason = "lock" // the lock is held, or too few permits are free
	AtKeyLimit BusyReason = "key"  // the key of a KeyedSemaphore is at its limit
	NotNext    BusyReason = "turn" // enough is free, and others come first
)

// HeldError is an ErrBusy, an ErrWaitTimeout or a context.DeadlineExceeded with the name of a holder.
type HeldError struct {
	Reason   BusyReason // why a Try… was refused; Held after a timeout
	Holder   string     // the Name of the client of a holder, whatever its key, from Redis's latest reply
	Released bool       // the holder has released the lock, and its minimum hold is not over
	// after which a retry can succeed, if only minimum holds prevent it. 0 means unknown, because of leases that may be
	// renewed, waiters, or more than 200 holders
	Free time.Duration
	Err  error
}

// Error adds why the lock is busy, or the holder's name, to the error.
func (e *HeldError) Error() string {
	var outage *errs.Tried
	switch {
	case errors.Is(e.Err, ErrRefused):
		return fmt.Sprintf("%v; held by %s until then", e.Err, e.Holder)
	case errors.As(e.Err, &outage):
		return fmt.Sprintf("%v: Redis has not answered for %v: %v; held by %s until then", outage.Err,
			outage.Lasted.Round(time.Millisecond), outage.Failure, e.Holder)
	case e.Reason == AtKeyLimit && e.Free > 0:
		return fmt.Sprintf("%v (the key is at its limit, free in %v)", e.Err, e.Free.Round(10*time.Millisecond))
	case e.Reason == AtKeyLimit:
		return fmt.Sprintf("%v (the key is at its limit)", e.Err)
	case e.Reason == NotNext:
		return fmt.Sprintf("%v (others come first)", e.Err)
	case !e.Released:
		return fmt.Sprintf("%v (held by %s)", e.Err, e.Holder)
	case e.Free == 0:
		return fmt.Sprintf("%v (released by %s)", e.Err, e.Holder)
	default:
		return fmt.Sprintf("%v (released by %s, free in %v)", e.Err, e.Holder, e.Free.Round(10*time.Millisecond))
	}
}

// Unwrap returns ErrBusy, ErrWaitTimeout or the error of ctx, with the last error of Redis if it had stopped answering.
func (e *HeldError) Unwrap() error { return e.Err }

// QueueFullError is an ErrQueueFull with its numbers.
type QueueFullError struct {
	Waiting int    // number of waiters, including crashed ones that have not expired
	Limit   int    // MaxWaiters
	Key     string // the key whose waiters reach the limit; "" if the waiters of the whole lock do
}

// Error names both numbers, and the key by at most 64 characters.
func (e *QueueFullError) Error() string {
	if e.Key != "" {
		return fmt.Sprintf("%v: key %.64q has %d waiting, limit %d", ErrQueueFull, e.Key, e.Waiting, e.Limit)
	}
	return fmt.Sprintf("%v: %d waiting, limit %d", ErrQueueFull, e.Waiting, e.Limit)
}

// Unwrap returns ErrQueueFull.
func (e *QueueFullError) Unwrap() error { return ErrQueueFull }

// CapacityError means that a call requested more permits than Resize has set.
type CapacityError struct {
	Want int // permits that were requested
	Have int // permits that the semaphore has
}

// Error names both numbers.
func (e *CapacityError) Error() string {
	return fmt.Sprintf("semaphore was resized to %d permits, %d are wanted", e.Have, e.Want)
}

// FieldError is an ErrInvalid that says which input is out of its bounds.
type FieldError struct {
	Field  string // "TTL", "name", …
	Reason string // the value and its bounds
}

// Error names the field and its bounds.
func (e *FieldError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Reason) }

// Is reports whether target is ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// errorTypes are the types of errors that ErrorType knows by their values. An error can be several of them: the first
// counts. So a lost lease is "unreachable", whatever error of Redis comes with it. A ctx that was canceled because
// another Client was closed is "canceled".
var errorTypes = []struct {
	err  error
	name string
}{
	{ErrInvalid, "invalid"},
	{ErrReentrant, "reentrant"},
	{ErrBusy, "busy"},
	{ErrQueueFull, "queue_full"},
	{ErrRefused, "refused"},
	{ErrWaitTimeout, "wait_timeout"},
	{ErrExpired, "expired"},
	{ErrRevoked, "revoked"},
	{ErrUnreachable, "unreachable"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{context.Canceled, "canceled"},
	{ErrClosed, "closed"},
	{ErrDetached, "detached"},
	{ErrUnlocked, "unlocked"},
}

// ErrorType returns a short name of an error of this package, for a label of a metric. It is "" for nil, "broken" for
// an unknown error of Redis, and "_OTHER" for other unknown errors. The names are "invalid", "reentrant", "busy",
// "queue_full", "wait_timeout", "refused", "expired", "revoked", "unreachable", "deadline_exceeded", "canceled",
// "closed", "detached", "unlocked" and "capacity".
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	if call.Passes(err) { // the error of one request, such as a renewal, which is retried
		return "unreachable"
	}
	var capacity *CapacityError
	var reply redis.Error
	switch {
	case errors.As(err, &capacity):
		return "capacity"
	case errors.As(err, &reply):
		return "broken"
	default:
		return "_OTHER"
	}
}
