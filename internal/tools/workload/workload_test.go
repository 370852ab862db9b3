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

// What is measured is tested in cmd/fairlock/internal/bench.
func TestMeasure_EndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		measure := func(op workload.Operation) error {
			return workload.Measure(t.Context(), 3, 9500*time.Microsecond, time.Second, op, func(time.Duration) {})
		}
		start := time.Now()
		err := measure(func(ctx context.Context, i int) (time.Duration, error) {
			if i == 2 {
				return 0, broken
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		assert.Equal(t, broken, err, "the error that came first")
		assert.Zero(t, time.Since(start))

		err = measure(func(ctx context.Context, _ int) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1009500*time.Microsecond, time.Since(start), "the grace is over")
	})
}

func TestIdle_ObservesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{}, 1)
		var asked atomic.Int32
		lock := func(ctx context.Context, _ int) (func(context.Context) error, error) {
			asked.Add(1)
			select {
			case held <- struct{}{}:
				return func(context.Context) error { <-held; return nil }, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		require.NoError(t, workload.Idle(t.Context(), 5, lock, func() error {
			synctest.Wait()
			assert.EqualValues(t, 6, asked.Load(), "the holder and the waiters")
			return nil
		}))
		require.Empty(t, held, "it is released in the end")

		none := func(context.Context, int) (func(context.Context) error, error) {
			return func(context.Context) error { return nil }, nil
		}
		err := workload.Idle(t.Context(), 5, none, func() error { synctest.Wait(); return nil })
		assert.ErrorIs(t, err, workload.ErrNotExcluded)
	})
}
