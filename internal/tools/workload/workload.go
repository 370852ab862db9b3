// Package workload has what locks are measured with: pairs of lock and unlock, handoffs of one lock among many, and
// waiters that wait. A lock is a function, so that one workload measures the locks of any library, and the floor beside
// them.
package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Lock waits until the goroutine holds its lock, and returns what releases it. Which lock a goroutine wants is the
// function's to say.
type Lock func(ctx context.Context, goroutine int) (unlock func(context.Context) error, err error)

// Operation is what each goroutine of a workload does again and again. It returns how long that took, or Unknown.
type Operation func(ctx context.Context, goroutine int) (time.Duration, error)

// Unknown is the latency of an operation that counts, but whose latency says nothing.
const Unknown = time.Duration(-1)

// Pairs locks and unlocks.
func Pairs(lock Lock) Operation {
	return func(ctx context.Context, goroutine int) (time.Duration, error) {
		began := time.Now()
		unlock, err := lock(ctx, goroutine)
		if err == nil {
			err = unlock(ctx)
		}
		return time.Since(began), err
	}
}

// Handoffs locks and unlocks one lock that all goroutines want. Its latency is the time from the last release before
// the grant, if the waiter's request was sent by then. Otherwise nothing was handed to it, and the latency is Unknown.
func Handoffs(lock Lock) Operation {
	began := time.Now()
	var released atomic.Int64 // when the last holder began to release the lock, in ns since began
	released.Store(-1)
	return func(ctx context.Context, goroutine int) (time.Duration, error) {
		asked := time.Since(began)
		unlock, err := lock(ctx, goroutine)
		if err != nil {
			return 0, err
		}
		granted := time.Since(began)
		before := time.Duration(released.Swap(int64(granted)))
		latency := granted - before
		if before < asked {
			latency = Unknown
		}
		return latency, unlock(ctx)
	}
}

// Measure has that many goroutines repeat an operation for as long as length. It calls record, one call at a time, with
// the latency of each operation that ends by then. The operations under way afterwards may take the grace; if they take
// longer, they are cancelled, and that is an error. The first error ends the others. The end of ctx ends all.
func Measure(
	ctx context.Context, goroutines int, length, grace time.Duration, op Operation, record func(time.Duration),
) error {
	runtime.GC() // the garbage of what was measured before does not count here
	limited, cancel := context.WithTimeout(ctx, length+grace)
	defer cancel()
	work, stop := context.WithCancelCause(limited)
	defer stop(nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error // guarded by mu: the first error
	start := time.Now()
	one := func(i int) error {
		took, err := op(work, i)
		if err == nil && time.Since(start) < length {
			mu.Lock()
			defer mu.Unlock()
			record(took)
		}
		return err
	}
	for i := range goroutines {
		all.Go(func() {
			for work.Err() == nil && time.Since(start) < length {
				if err := one(i); err != nil {
					mu.Lock()
					defer mu.Unlock()
					if failed == nil {
						failed = err
					}
					stop(err)
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}

// ErrNotExcluded says that a lock was granted that another goroutine held.
var ErrNotExcluded = errors.New("the lock was granted while another goroutine held it")

// Idle has one goroutine hold a lock that all want. While the others wait for it, it calls observe.
func Idle(ctx context.Context, waiters int, lock Lock, observe func() error) error {
	unlock, err := lock(ctx, waiters)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	granted := make(chan error, waiters)
	for i := range waiters {
		all.Go(func() {
			unlock, err := lock(waiting, i)
			switch {
			case err == nil:
				granted <- errors.Join(ErrNotExcluded, unlock(ctx))
			case waiting.Err() == nil:
				granted <- fmt.Errorf("a waiter gave up: %w", err)
			}
		})
	}
	err = observe()
	cancel()
	all.Wait()
	close(granted)
	return errors.Join(err, <-granted, unlock(ctx))
}
