package fairlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A TryLock that is refused, and a Lock that times out, name a holder, of all kinds of locks.
func TestHeldError_NamesAHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		holder, other := server.Client(fairlock.Config{Name: "web-3"}), server.Client(fairlock.Config{})
		ctx := t.Context()
		type locks struct {
			kind      string
			try, wait func(*fairlocktest.Client, context.Context) (*fairlock.Lease, error)
		}
		for _, l := range []locks{
			{
				"mutex",
				func(c *fairlocktest.Client, ctx context.Context) (*fairlock.Lease, error) {
					return c.Mutex("x").TryLock(ctx)
				},
				func(c *fairlocktest.Client, ctx context.Context) (*fairlock.Lease, error) {
					return c.Mutex("x").Lock(ctx)
				},
			},
			{
				"semaphore",
				func(c *fairlocktest.Client, ctx context.Context) (*fairlock.Lease, error) {
					return c.Semaphore("x", 3).TryAcquire(ctx, 2)
				},
				func(c *fairlocktest.Client, ctx context.Context) (*fairlock.Lease, error) {
					return c.Semaphore("x", 3).Acquire(ctx, 2)
				},
			},
			{
				"rwmutex",
				func(c *fairlocktest.Client, ctx context.Context) (*fairlock.Lease, error) {
					return c.RWMutex("x").TryLock(ctx)
				},
				func(c *fairlocktest.Client, ctx context.Context) (*fairlock.Lease, error) {
					return c.RWMutex("x").Lock(ctx)
				},
			},
		} {
			lease, err := l.try(holder, ctx)
			require.NoError(t, err)
			_, err = l.try(other, ctx)
			require.ErrorIs(t, err, fairlock.ErrBusy)
			var held *fairlock.HeldError
			require.ErrorAs(t, err, &held, l.kind)
			assert.Equal(t, "web-3", held.Holder)
			require.ErrorContains(t, err, "lock is busy (held by web-3)")

			short, cancel := context.WithTimeout(ctx, time.Second)
			_, err = l.wait(other, short)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorAs(t, err, &held)
			assert.Equal(t, "web-3", held.Holder)
			require.ErrorContains(t, err, "x: context deadline exceeded (held by web-3)")

			gone, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			_, err = l.wait(other, gone)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorAs(t, err, &held, "the caller went by itself")
			require.NoError(t, lease.Unlock(ctx))
		}
	})
}

// The subscription comes up while the reply "queued" is on its way, and the grant was before that: the waiter finds it
// as soon as the reply arrives, not at the next heartbeat.
func TestWaiter_GrantBeforeTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Second
		server := fairlocktest.NewServer(t)
		holder, client := server.Client(fairlock.Config{}), server.Client(fairlock.Config{})
		held, err := holder.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		other, err := holder.Mutex("y").Lock(t.Context())
		require.NoError(t, err)
		warm, err := client.Mutex("warm").Lock(t.Context()) // the connections are there
		require.NoError(t, err)
		require.NoError(t, warm.Unlock(t.Context()))

		start := time.Now()
		client.Link.Delay(0, delay)
		first := make(chan error)
		go func() {
			lease, err := client.Mutex("x").Lock(t.Context())
			assert.Equal(t, delay, time.Since(start))
			first <- errors.Join(err, lease.Unlock(t.Context()))
		}()
		server.Mutex("x").WaitQueued(1)
		client.Link.Mend()
		require.NoError(t, held.Unlock(t.Context())) // nobody receives the notification
		second := make(chan error)
		go func() { // its contention starts the subscription
			lease, err := client.Mutex("y").Lock(t.Context())
			second <- errors.Join(err, lease.Unlock(t.Context()))
		}()
		server.Mutex("y").WaitQueued(1)
		require.NoError(t, <-first)
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, <-second)
	})
}

// Waiters of one lock with different TTLs come and go while heartbeats are sent: nothing is shared unguarded (-race).
func TestLocalWaiters_DifferentTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		held, err := server.Client(fairlock.Config{}).Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		client := server.Client(fairlock.Config{WaiterTTL: 100 * time.Millisecond})
		done := make(chan error)
		for i := range 50 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+50)*10*time.Millisecond)
				defer cancel()
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				_, err := client.Mutex("x").WithTTL(time.Duration(100-i) * 20 * time.Millisecond).Lock(ctx)
				done <- err
			}()
		}
		for range 50 {
			require.ErrorIs(t, <-done, context.DeadlineExceeded)
		}
		server.Mutex("x").AssertQueue()
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// A heartbeat and a renewal that hang on a connection cost neither the ticket nor the lease: the next ones go over
// another connection.
func TestClient_HungConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		client.Redis.Options().MaxRetries = -1
		lease, err := client.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		next := make(chan error)
		go func() {
			lease, err := client.Mutex("x").Lock(t.Context())
			next <- errors.Join(err, lease.Unlock(t.Context()))
		}()
		server.Mutex("x").WaitQueued(1)
		for range 5 { // each time what is in flight never returns
			client.Link.Delay(0, time.Hour)
			time.Sleep(4 * time.Second)
			client.Link.Mend()
			time.Sleep(4 * time.Second)
			require.NoError(t, lease.Err())
			server.Mutex("x").AssertQueue(client.Name())
			require.Positive(t, server.Mutex("x").State().Waiters[0].TTL)
		}
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, <-next)
	})
}
