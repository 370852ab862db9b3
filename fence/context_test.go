package fence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/fence"
)

// FromContext is of the lock that it is asked for, not of the innermost.
//
//fairlock:promise Fence of a lock in ctx: that of the lock that is named, however locks are nested; an error for none, an ended lease or a reader
func TestFromContext_NestedLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		outer, inner, rw := client.Mutex("outer"), client.Mutex("inner"), client.RWMutex("outer") // names are of a kind
		semaphore := client.Semaphore("outer", 1)
		one, err := outer.Lock(t.Context())
		require.NoError(t, err)
		two, err := rw.Lock(t.Context())
		require.NoError(t, err)
		permit, err := semaphore.Acquire(t.Context(), 1)
		require.NoError(t, err)
		ctx, cancel := one.Context(t.Context())
		defer cancel()
		ctx, cancel = two.Context(ctx)
		defer cancel()
		ctx, cancel = permit.Context(ctx)
		defer cancel()

		for lock, want := range map[fence.Lock]uint64{outer: one.Fence(), rw: two.Fence()} {
			got, err := fence.FromContext(ctx, lock)
			require.NoError(t, err)
			assert.Equal(t, want, got)
			require.NoError(t, fence.AssertHeld(ctx, lock))
		}
		require.NoError(t, fence.AssertHeld(ctx, semaphore))
		got, err := fence.FromContext(ctx, client.Mutex("outer", fairlock.WithTTL(time.Hour)))
		require.NoError(t, err, "the same lock, with other options")
		assert.Equal(t, one.Fence(), got)

		for _, lock := range []fence.Lock{inner, server.Client(fairlock.Config{}).Mutex("outer"), fairlock.Mutex{},
			fairlock.RWMutex{}} {
			_, err := fence.FromContext(ctx, lock)
			require.ErrorIs(t, err, fence.ErrNotHeld)
			require.ErrorIs(t, fence.AssertHeld(ctx, lock), fence.ErrNotHeld)
		}
		_, err = fence.FromContext(t.Context(), outer)
		require.ErrorIs(t, err, fence.ErrNotHeld)
		require.NotErrorIs(t, err, fairlock.ErrLost)

		shared := client.RWMutex("shared") // readers hold it together, so none of their fences is the last
		require.NoError(t, shared.RDo(t.Context(), func(ctx context.Context) error {
			_, err := fence.FromContext(ctx, shared)
			require.ErrorIs(t, err, fence.ErrReader)
			return fence.AssertHeld(ctx, shared)
		}))
	})
}

// A lease that has ended has no fence to show, and the error says why it has ended.
//
//fairlock:promise Fence of a lock in ctx
func TestFromContext_Ended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fairlocktest.NewServer(t).Client(fairlock.Config{})
		m := client.Mutex("m")
		lease, err := m.Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		ctx = context.WithoutCancel(ctx)
		client.Link.Cut()
		<-lease.Done()
		_, err = fence.FromContext(ctx, m)
		require.ErrorIs(t, err, fence.ErrNotHeld)
		require.ErrorIs(t, err, fairlock.ErrLost)
		require.ErrorIs(t, fence.AssertHeld(ctx, m), fairlock.ErrLost)

		client.Link.Mend()
		err = m.Do(ctx, func(ctx context.Context) error { // within the ctx of the ended lease
			number, err := fence.FromContext(ctx, m)
			assert.Greater(t, number, lease.Fence())
			return err
		})
		require.NoError(t, err)
	})
}
