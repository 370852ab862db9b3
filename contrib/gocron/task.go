package gocronfairlock

import (
	"context"
	"errors"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Task returns a function for gocron.NewTask. It runs f while it holds m, as m.TryDo does. If another replica holds m,
// it returns nil, and f is not called.
//
// Give m a minimum hold (see fairlock.WithMinHold). Without one, a replica whose clock is behind runs the job again if
// it has ended by then.
//
// The ctx of f ends when the lock is lost, and when gocron ends the job's ctx. It carries the lease
// (fairlock.LeaseFromContext), which has a fence. Every other error of TryDo is returned, and gocron passes it to the
// listener gocron.AfterJobRunsWithError. It is the error of f, joined with a fairlock.ErrLost if the lock was lost
// while f ran. If Redis did not serve the release after f, it is joined with a *fairlock.Error whose Op is "unlock". If
// Redis could not be reached for 3 s, f was not called, and Op is "trydo".
//
// Task panics if f is nil. Bad input to m's methods, such as a minimum hold below 0, is a fairlock.ErrInvalid at each
// run.
//
// Do not use a Locker with the same job. If m has the job's name, both would take the same lock, and f would never run.
func Task(m fairlock.Mutex, f func(ctx context.Context) error) func(ctx context.Context) error {
	if f == nil {
		panic("gocronfairlock: Task of a nil function")
	}
	return func(ctx context.Context) error {
		began := false
		err := m.TryDo(ctx, func(ctx context.Context) error {
			began = true
			return f(ctx)
		})
		if !began && errors.Is(err, fairlock.ErrBusy) { // f may have returned an ErrBusy of its own
			return nil
		}
		return err
	}
}
