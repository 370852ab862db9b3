package fairlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// ForceRelease takes the permits of holders whose fences it knows only from them: the key of the last fence was lost.
//
//fairlock:fault The key of the fence is lost: ForceRelease takes the lock from all holders all the same; a renewal records one that is not below theirs
func TestForceRelease_AfterTheFenceWasLost(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := fairlocktest.NewServer(t)
			semaphore := server.Client(fairlock.Config{NoRenewal: true}).Semaphore("x", 2)
			first, err := semaphore.Acquire(t.Context(), 1)
			require.NoError(t, err)
			second, err := semaphore.Acquire(t.Context(), 1)
			require.NoError(t, err)
			server.Miniredis.Del("fairlock:{x}:sem:fence")
			time.Sleep(time.Second)
			if renewed {
				require.NoError(t, first.Renew(t.Context()))
			}
			state, err := semaphore.Inspect(t.Context())
			require.NoError(t, err)
			if renewed {
				assert.GreaterOrEqual(t, state.Fence, second.Fence())
			} else {
				assert.Zero(t, state.Fence)
			}
			taken, err := semaphore.ForceRelease(t.Context())
			require.NoError(t, err)
			assert.True(t, taken)
			state, err = semaphore.Inspect(t.Context())
			require.NoError(t, err)
			assert.Zero(t, state.Used)
			assert.Greater(t, state.Fence, second.Fence())
			require.ErrorIs(t, first.Renew(t.Context()), fairlock.ErrTaken)
			require.ErrorIs(t, second.Renew(t.Context()), fairlock.ErrTaken)
		})
	}
}
