package gocronfairlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/fairlock/fairlock-go/fairlock"
)

var _ gocron.Locker = (*Locker)(nil)

// Locker is a gocron.Locker, for gocron.WithDistributedLocker or gocron.WithDistributedJobLocker. gocron calls it
// before and after each run of a job. It is safe for concurrent use.
type Locker struct {
	client  *fairlock.Client
	minHold time.Duration
}

const year = 365 * 24 * time.Hour

// NewLocker returns a Locker that locks the Mutex of client with the job's name until the job ends, and at least for
// minHold. That is the duration of fairlock.WithMinHold, above 0 and at most a year. The README says which to choose.
// NewLocker does no I/O. The error is a fairlock.ErrInvalid, which says what is wrong with client or minHold.
//
// Close the client after the scheduler's Shutdown has returned.
func NewLocker(client *fairlock.Client, minHold time.Duration) (*Locker, error) {
	if client == nil {
		return nil, &fairlock.FieldError{Field: "client", Reason: "nil"}
	}
	if minHold <= 0 || minHold > year {
		return nil, &fairlock.FieldError{
			Field: "MinHold", Reason: fmt.Sprintf("%v, must be above 0, and at most %v (a year)", minHold, year),
		}
	}
	return &Locker{client, minHold}, nil
}

// shared matches the names that the compiler gives to several functions:
//   - To closures. One in another closure has a number alone, after the names of the functions that are inlined there:
//     main.main.func1.2, main.main.func1.makeReport.2.
//   - To the instances of a generic function, and to the methods of those of a generic type: main.sync[...],
//     main.job[...].run-fm.
//   - To a method of an interface that has no name, whatever implements it: go:interface { Run() }.Run-fm.
var shared = regexp.MustCompile(`\.func\d+((\..+)?\.\d+)?$|\w\[\.\.\.\]|^go:`)

// Lock is called by gocron, with the job's ctx and name. It does not wait for the lock. If another replica has it, the
// error is a fairlock.ErrBusy, and gocron skips this run, as it does after any other error. While Redis cannot be
// reached, Lock tries for 3 s.
//
// A name that the compiler gives to several functions is a fairlock.ErrInvalid, and nothing is sent. Such are the names
// of closures, main.main.func1 or main.main.func1.makeReport.2, and of generic functions, main.sync[...]. They are the
// names of jobs without gocron.WithName. All jobs that are made at one place of the source, or of one generic function,
// would share a lock. The number of a closure also changes with the source.
//
// gocron passes the error to the listener gocron.AfterLockError, and drops it if the job has none. So Lock logs it to
// slog.Default, unless it is an ErrBusy or ctx has ended.
//
// If the lease is lost, gocron does not end the job. Task does. fairlock.Config.Logger gets the loss.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	lease, err := l.tryLock(ctx, name)
	if err == nil {
		return lease, nil
	}
	if !errors.Is(err, fairlock.ErrBusy) && ctx.Err() == nil {
		slog.Default().ErrorContext(ctx, "job skipped", "job", name, "err", err)
	}
	return nil, err
}

func (l *Locker) tryLock(ctx context.Context, name string) (*fairlock.Lease, error) {
	if shared.MatchString(name) {
		return nil, &fairlock.FieldError{
			Field: "name of a job",
			Reason: fmt.Sprintf(
				"%q is the compiler's for a closure or a generic function, and other jobs may share it: use gocron.WithName", name),
		}
	}
	return l.client.Mutex(name, fairlock.WithMinHold(l.minHold)).TryLock(ctx)
}
