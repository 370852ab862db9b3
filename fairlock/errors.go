package fairlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlock/fairlock-go/lua"
)

// The errors to branch on, with errors.Is. Methods return them inside an *Error.
var (
	// ErrBusy means that TryLock, TryRLock or TryAcquire did not get the lock, because it is held or others wait for it. A
	// *HeldError names a holder.
	ErrBusy = errors.New("lock is busy")
	// ErrQueueFull means that a call did not wait for the lock, because MaxWaiters others wait already.
	ErrQueueFull = errors.New("queue is full")
	// ErrLost means that a lease has ended and its holder did not end it. It comes with ErrExpired, ErrTaken or
	// ErrUnreachable.
	ErrLost = errors.New("lock is lost")
	// ErrUnlocked is a lease's Err after Unlock, unless the lease had ended before.
	ErrUnlocked = errors.New("lock is unlocked")
	// ErrClosed means that the Client was closed. With an error of ctx, it is that ctx's cause: another Client was closed.
	ErrClosed = errors.New("client is closed")
	// ErrInvalid means that an input is out of its bounds; a *FieldError says which. Nothing has been sent.
	ErrInvalid = errors.New("invalid")
)

// Why a lease is lost.
var (
	// ErrExpired: it was not renewed in time, because renewal is off or this process was paused.
	ErrExpired = errors.New("lease expired")
	// ErrTaken: in Redis, another owner has the lock now, or none: it was force-released, deleted or evicted, or Redis
	// lost its data.
	ErrTaken = errors.New("no longer the owner")
	// ErrUnreachable: no renewal reached Redis until the lease ended. It comes with the last error.
	ErrUnreachable = errors.New("redis is unreachable")
)

// Error is what went wrong with one lock.
type Error struct {
	Op   string // the operation: "lock", "unlock", "do", …
	Name string // of the lock
	Err  error
}

// Error names the operation and the lock, by the first 64 characters of its name.
func (e *Error) Error() string {
	return fmt.Sprintf("fairlock: %s %.64q: %v", e.Op, e.Name, e.Err)
}

// Unwrap returns the error that is wrapped.
func (e *Error) Unwrap() error { return e.Err }

// HeldError is an ErrBusy, or the context.DeadlineExceeded of a Lock that waited, and names a holder of the lock.
type HeldError struct {
	Holder string // the Name of its client, as of the latest reply of Redis
	Err    error
}

// Error names the holder.
func (e *HeldError) Error() string { return fmt.Sprintf("%v (held by %s)", e.Err, e.Holder) }

// Unwrap returns ErrBusy or the error of ctx.
func (e *HeldError) Unwrap() error { return e.Err }

// CapacityError means that a semaphore is in use with another number of permits, which is fixed while anybody holds or
// waits.
type CapacityError struct {
	Want int // requested
	Have int // in use
}

// Error names both numbers.
func (e *CapacityError) Error() string {
	return fmt.Sprintf("semaphore is in use with %d permits, not with %d", e.Have, e.Want)
}

// FieldError says which input is out of its bounds. It is an ErrInvalid.
type FieldError struct {
	Field string // "TTL", "name", …
	Bound string // what is wrong, and the bounds
}

// Error names the field and its bounds.
func (e *FieldError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Bound) }

// Is reports whether target is ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// stopped is the cause with which the Client itself ends a ctx, and the error that its methods return then. It tells that
// from a cause of the caller's, which may be ErrClosed, too: of another Client.
type stopped struct{ error }

// ended returns how ctx ended: what the Client has stopped it with, else context.Canceled or context.DeadlineExceeded,
// with the cause if that is another error.
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

// orEnded returns err, or how ctx ended if that is why Redis has not replied. A loss, whose reason may be that, stays one.
func orEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && lua.OriginOf(err) == lua.NoReply && !errors.Is(err, ErrLost) {
		return ended(ctx)
	}
	return err
}
