package fairlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The errors to branch on, with errors.Is. Methods return them inside an *Error.
var (
	// ErrBusy is TryLock's: the lock is held, or somebody waits for it.
	ErrBusy = errors.New("lock is busy")
	// ErrQueueFull is Lock's: MaxWaiters others wait already.
	ErrQueueFull = errors.New("queue is full")
	// ErrLost says that a lease is over and its holder did not end it. It comes with ErrExpired, ErrTaken or
	// ErrUnreachable.
	ErrLost = errors.New("lock is lost")
	// ErrUnlocked is a lease's Err once Unlock was called, unless the lease was over before.
	ErrUnlocked = errors.New("lock is unlocked")
	// ErrClosed says that the Client was closed.
	ErrClosed = errors.New("client is closed")
	// ErrInvalid is what every error about bad input is; a *FieldError says which. Nothing has been sent.
	ErrInvalid = errors.New("invalid")
)

// Why a lease is lost.
var (
	// ErrExpired: it was not renewed in time, because renewal is off or this process was paused.
	ErrExpired = errors.New("lease expired")
	// ErrTaken: Redis says that another owns the lock now, or nobody: it was released by force, deleted, evicted, or
	// Redis lost its data.
	ErrTaken = errors.New("no longer the owner")
	// ErrUnreachable: Redis could not be asked to renew it until it was over. It comes with the last error.
	ErrUnreachable = errors.New("redis is unreachable")
)

// Error is what went wrong with one lock.
type Error struct {
	Op   string // what was asked for: "lock", "unlock", …
	Name string // of the lock
	Err  error
}

// Error names the operation and the lock, quoted if its name is not plain.
func (e *Error) Error() string {
	return fmt.Sprintf("fairlock: %s %s: %v", e.Op, plain(e.Name), e.Err)
}

// Unwrap returns the error behind it.
func (e *Error) Unwrap() error { return e.Err }

// CapacityError says that a semaphore is in use with another number of permits. It ends with the last who holds or waits.
type CapacityError struct {
	Want int // what was asked for
	Have int // what is in use
}

// Error names both numbers.
func (e *CapacityError) Error() string {
	return fmt.Sprintf("semaphore is in use with %d permits, not with %d", e.Have, e.Want)
}

// FieldError says which input is out of its bounds. It is an ErrInvalid.
type FieldError struct {
	Field string // "TTL", "name", …
	Bound string // what is wrong and what would do
}

// Error names the field and its bound.
func (e *FieldError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Bound) }

// Is reports that it is an ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// plain shows a name so that it cannot disturb a line of text.
func plain(name string) string {
	const most = 64
	more := ""
	if len(name) > most {
		name, more = name[:most], "…"
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || !strconv.IsPrint(r) }) ||
		strings.ToValidUTF8(name, "") != name || name == "" {
		return strconv.Quote(name) + more
	}
	return name + more
}

// ended says how ctx ended: context.Canceled or context.DeadlineExceeded, and the cause if that is another.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
