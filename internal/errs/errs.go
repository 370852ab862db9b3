// Package errs has the errors that the parts of the library share. Package fairlock re-exports those that users see,
// and documents them.
package errs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Sentinels of package fairlock.
var (
	Lost        = errors.New("lock is lost")
	Unlocked    = errors.New("lock is unlocked")
	Detached    = errors.New("lease is detached")
	Closed      = errors.New("client is closed")
	Expired     = errors.New("lease expired")
	Revoked     = errors.New("no longer the owner")
	Unreachable = errors.New("redis is unreachable")
	Refused     = errors.New("redis refuses")
)

// LostBy returns a Lost with its reason.
func LostBy(reason error) error { return fmt.Errorf("%w: %w", Lost, reason) }

// Stopped is the cause with which the Client itself ends a ctx, and the error that its methods return then. A cause
// that the caller has set may be a Closed of another Client, but it is not a Stopped.
type Stopped struct{ error }

// StoppedBy returns the cause for that error.
func StoppedBy(err error) Stopped { return Stopped{err} }

// Ended returns the error for a ctx that has ended. If the Client has stopped it, that is the Client's error. Otherwise
// it is context.Canceled or context.DeadlineExceeded, with the cause if that is another error.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	var own Stopped
	switch {
	case errors.As(cause, &own):
		return own.error
	case errors.Is(cause, err):
		return cause
	default:
		return fmt.Errorf("%w: %w", err, cause)
	}
}

// Tried is the error of a call that has ended while Redis did not serve it.
type Tried struct {
	Err     error         // why the call has ended
	Failure error         // of the request
	Lasted  time.Duration // how long it was tried
}

// Error says why the call has ended, how long it was tried, and why the request failed.
func (e *Tried) Error() string {
	return fmt.Sprintf("%v: tried for %v: %v", e.Err, e.Lasted.Round(time.Millisecond), e.Failure)
}

// Unwrap hides a context.DeadlineExceeded of a connection: go-redis and package net return it for timeouts of their
// own.
func (e *Tried) Unwrap() []error {
	if errors.Is(e.Failure, context.DeadlineExceeded) {
		return []error{e.Err, typed{e.Failure}}
	}
	return []error{e.Err, e.Failure}
}

// typed is an error whose types errors.As finds, and whose values errors.Is does not.
type typed struct{ error }

// As reports whether the error, or one that it wraps, has the type of target.
func (t typed) As(target any) bool { return errors.As(t.error, target) }
