package fairlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
)

// Errors to branch on with errors.Is. Methods return them inside an *Error.
var (
	// ErrBusy means that a method whose name begins with Try did not get the lock, because it is held or others wait for it. A
	// *HeldError names a holder.
	ErrBusy = errors.New("lock is busy")
	// ErrQueueFull means that MaxWaiters others wait already. It is in a *QueueFullError.
	ErrQueueFull = errors.New("queue is full")
	// ErrWaitTimeout means that a call has waited for as long as WithMaxWait says. It comes with a *HeldError, or with the last
	// error of Redis if there was one. It is no context.DeadlineExceeded.
	ErrWaitTimeout = errors.New("wait timed out")
	// ErrReentrant means that a call would wait for a lease that its own ctx carries: that of the function of Do, of
	// Lease.Context, or one made of these. Nothing has been sent. Work that shall wait for the end of the lease needs another
	// ctx.
	ErrReentrant = errors.New("ctx carries a lease of this lock, which the call would wait for")
	// ErrLost means that a lease has ended without its holder's doing. It comes with ErrExpired, ErrTaken or ErrUnreachable.
	ErrLost = errors.New("lock is lost")
	// ErrUnlocked is a lease's Err after Unlock.
	ErrUnlocked = errors.New("lock is unlocked")
	// ErrDetached is a lease's Err after Detach.
	ErrDetached = errors.New("lease is detached")
	// ErrClosed means that the Client was closed, or that Shutdown was called.
	ErrClosed = errors.New("client is closed")
	// ErrNumber means that the key of a lock's numbers has a content that is not ours, or a number above 2^53 - 2^40, or that a
	// ticket is more than 407 days ahead. Nothing was written. If nobody uses the lock, delete the key.
	ErrNumber = script.ErrNumber
	// ErrInvalid means that an input is out of its bounds. A *FieldError says which. Nothing has been sent.
	ErrInvalid = errors.New("invalid")
)

// Reasons for which a lease is lost. They come with ErrLost.
var (
	// ErrExpired means that it was not renewed in time, and no request failed: this process was paused or had no CPU. Or Redis
	// refused its renewals, for example because a right is missing.
	ErrExpired = errors.New("lease expired")
	// ErrTaken means that the lease does not hold the lock in Redis any more. The lock was force-released or resumed, its key was
	// deleted or evicted, or Redis lost its data.
	ErrTaken = errors.New("no longer the owner")
	// ErrUnreachable means that the lease ended during an outage (see Stats), or that its latest renewal had failed or had no
	// reply. It comes with the last error. Without ErrLost it is the error of a call that gave up because Redis did not serve it.
	// Its text says for how long it was tried.
	ErrUnreachable = errors.New("redis is unreachable")
)

// Error is the error of an operation on one lock.
type Error struct {
	Op   string // the operation, by its method's name: "lock", "unlock", "do", "trydo", …
	Name string // the lock's name
	Err  error
}

// Error names the operation and the lock, whose name it shortens to 64 characters.
func (e *Error) Error() string {
	return fmt.Sprintf("fairlock: %s %.64q: %v", e.Op, e.Name, e.Err)
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Busy says what a holder has that a call wants.
type Busy string

// BusyLock is the lock, or permits of it.
const BusyLock Busy = "lock"

// HeldError is an ErrBusy, an ErrWaitTimeout or a context.DeadlineExceeded with the name of a holder.
type HeldError struct {
	Busy   Busy   // what is held
	Holder string // the Name of the holder's client, from Redis's latest reply
	// Released means that the holder has released the lock, which is taken until its minimum hold is over. Free is after how long
	// that is, if a try asked.
	Released bool
	Free     time.Duration
	Err      error
}

// Error adds the holder's name to the error.
func (e *HeldError) Error() string {
	switch {
	case !e.Released:
		return fmt.Sprintf("%v (held by %s)", e.Err, e.Holder)
	case e.Free == 0:
		return fmt.Sprintf("%v (released by %s)", e.Err, e.Holder)
	default:
		return fmt.Sprintf("%v (released by %s, free in %v)", e.Err, e.Holder, e.Free.Round(10*time.Millisecond))
	}
}

// Unwrap returns ErrBusy, ErrWaitTimeout or the error of ctx.
func (e *HeldError) Unwrap() error { return e.Err }

// QueueFullError is an ErrQueueFull with its numbers.
type QueueFullError struct {
	Waiting int // number of waiters, also of those that have crashed and not expired yet
	Limit   int // MaxWaiters
}

// Error names both numbers.
func (e *QueueFullError) Error() string {
	return fmt.Sprintf("%v: %d wait, at most %d", ErrQueueFull, e.Waiting, e.Limit)
}

// Unwrap returns ErrQueueFull.
func (e *QueueFullError) Unwrap() error { return ErrQueueFull }

// CapacityError means that a request is for more permits than Semaphore.Resize has set.
type CapacityError struct {
	Want int // the number of permits that were requested
	Have int // how many the semaphore has
}

// Error names both numbers.
func (e *CapacityError) Error() string {
	return fmt.Sprintf("semaphore was resized to %d permits, %d are wanted", e.Have, e.Want)
}

// FieldError is an ErrInvalid that says which input is out of its bounds.
type FieldError struct {
	Field string // "TTL", "name", …
	Bound string // what is wrong, and the bounds
}

// Error names the field and its bounds.
func (e *FieldError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Bound) }

// Is reports whether target is ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// stopped is the cause with which the Client itself ends a ctx, and the error that its methods return then. A cause that
// the caller has set may be an ErrClosed too, of another Client, but it is not a stopped.
type stopped struct{ error }

// ended returns the error for a ctx that has ended. If the Client has stopped it, that is the Client's error. Otherwise
// it is context.Canceled or context.DeadlineExceeded, with the cause if that is another error.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	var own stopped
	switch {
	case errors.As(cause, &own):
		return own.error
	case errors.Is(cause, err):
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}

// orEnded returns err, or the error of ctx if Redis has not replied because ctx has ended. It returns an ErrLost or a
// triedError as it is: they come with an error of Redis.
func orEnded(ctx context.Context, err error) error {
	var tried *triedError
	if ctx.Err() != nil && script.OriginOf(err) == script.NoReply && !errors.Is(err, ErrLost) && !errors.As(err, &tried) {
		return ended(ctx)
	}
	return err
}

// triedError is the error of a call that has ended while Redis did not serve it.
type triedError struct {
	err     error         // why the call has ended
	failure error         // of the request
	lasted  time.Duration // for how long it was tried
}

// Error says why the call has ended, for how long it was tried, and what the request failed with.
func (e *triedError) Error() string {
	return fmt.Sprintf("%v: tried for %v: %v", e.err, e.lasted.Round(time.Millisecond), e.failure)
}

// Unwrap hides a context.DeadlineExceeded of a connection: go-redis and package net return it for timeouts of their own.
func (e *triedError) Unwrap() []error {
	if errors.Is(e.failure, context.DeadlineExceeded) {
		return []error{e.err, typed{e.failure}}
	}
	return []error{e.err, e.failure}
}

// typed is an error whose types errors.As finds, and whose values errors.Is does not.
type typed struct{ error }

// As reports whether the error, or one that it wraps, has the type of target.
func (t typed) As(target any) bool { return errors.As(t.error, target) }

// latest returns which of two failures, one after the other, to report: one that has no reply because ctx has ended says
// less than an earlier one. before may be nil.
func latest(ctx context.Context, before, failure error) error {
	var abandoned *dispatch.AbandonedError
	cut := errors.As(failure, &abandoned) || ctx.Err() != nil && errors.Is(failure, ctx.Err()) // by go-redis, of an inline command
	if before != nil && cut {
		return before
	}
	return failure
}
