package workload_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/workload"
)

// oneAtATime is a lock of this process that is granted a delay after it was released.
func oneAtATime(delay time.Duration) workload.Lock {
	held := make(chan struct{}, 1)
	return func(ctx context.Context, _ int) (func(context.Context) error, error) {
		select {
		case held <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		time.Sleep(delay)
		return func(context.Context) error { <-held; return nil }, nil
	}
}

// measure returns the latencies that are recorded.
func measure(t *testing.T, goroutines int, op workload.Operation) (latencies []time.Duration, err error) {
	t.Helper()
	err = workload.Measure(t.Context(), goroutines, 9500*time.Microsecond, time.Second, op, func(d time.Duration) {
		latencies = append(latencies, d)
	})
	return latencies, err
}

func TestMeasure_CountsWhatEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := workload.Pairs(func(context.Context, int) (func(context.Context) error, error) {
			time.Sleep(time.Millisecond)
			return func(context.Context) error { time.Sleep(time.Millisecond); return nil }, nil
		})
		start := time.Now()
		latencies, err := measure(t, 1, pair)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{2e6, 2e6, 2e6, 2e6}, latencies, "the fifth ends too late")
		assert.Equal(t, 10*time.Millisecond, time.Since(start), "but it ends")
		latencies, err = measure(t, 3, pair)
		require.NoError(t, err)
		assert.Len(t, latencies, 12)
	})
}

// A handoff goes to a goroutine that asked before the release.
func TestHandoffs_OnlyToWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		latencies, err := measure(t, 2, workload.Handoffs(oneAtATime(time.Millisecond)))
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{workload.Unknown, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6}, latencies,
			"the first one gets a free lock")
		latencies, err = measure(t, 1, workload.Handoffs(func(context.Context, int) (func(context.Context) error, error) {
			time.Sleep(time.Millisecond)
			return func(context.Context) error { time.Sleep(time.Millisecond); return nil }, nil
		}))
		require.NoError(t, err)
		for _, latency := range latencies {
			assert.Equal(t, workload.Unknown, latency, "no waiter when this goroutine comes back")
		}
		assert.Len(t, latencies, 4)
	})
}

func TestMeasure_EndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		start := time.Now()
		_, err := measure(t, 3, func(ctx context.Context, i int) (time.Duration, error) {
			if i == 2 {
				return 0, broken
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		assert.Equal(t, broken, err, "the error that came first")
		assert.Zero(t, time.Since(start))

		_, err = measure(t, 3, func(ctx context.Context, _ int) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1009500*time.Microsecond, time.Since(start), "the grace is over")
	})
}

func TestIdle_ObservesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := oneAtATime(0)
		var asked atomic.Int32
		counted := func(ctx context.Context, i int) (func(context.Context) error, error) {
			asked.Add(1)
			return lock(ctx, i)
		}
		require.NoError(t, workload.Idle(t.Context(), 5, counted, func() error {
			synctest.Wait()
			assert.EqualValues(t, 6, asked.Load(), "the holder and the waiters")
			return nil
		}))
		unlock, err := lock(t.Context(), 0)
		require.NoError(t, err, "it is released in the end")
		require.NoError(t, unlock(t.Context()))

		none := func(context.Context, int) (func(context.Context) error, error) {
			return func(context.Context) error { return nil }, nil
		}
		err = workload.Idle(t.Context(), 5, none, func() error { synctest.Wait(); return nil })
		assert.ErrorIs(t, err, workload.ErrNotExcluded)
	})
}
