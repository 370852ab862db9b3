package fairlock_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
)

// elapse lets time pass for both, and for what the scripts read.
func (w *world) elapse(d time.Duration) {
	w.server.SetTime(w.clock.Now().Add(d))
	w.pass(d)
}

func TestEachHoldersPermitsEndWithItsOwnLease(t *testing.T) {
	w := newWorld(t, fairlock.Config{NoRenewal: true})
	w.server.SetTime(w.clock.Now())
	ctx := context.Background()
	s := w.client.Semaphore("x", 3)
	used := func() int {
		st, err := s.Inspect(ctx)
		require.NoError(t, err)
		return st.Used
	}
	first, err := s.Acquire(ctx, 2)
	require.NoError(t, err)
	w.elapse(4 * time.Second)
	second, err := s.Acquire(ctx, 1)
	require.NoError(t, err)

	w.elapse(ttl - margin - 4*time.Second - 1)
	require.NoError(t, first.Err())
	w.elapse(1)
	require.ErrorIs(t, first.Err(), fairlock.ErrExpired, "told one margin before")
	require.NoError(t, second.Err())
	w.elapse(margin - time.Microsecond)
	assert.Equal(t, 3, used(), "not taken back before its end")
	_, err = s.TryAcquire(ctx, 1)
	require.ErrorIs(t, err, fairlock.ErrBusy)
	w.elapse(time.Microsecond)
	assert.Equal(t, 1, used())

	third, err := s.TryAcquire(ctx, 2)
	require.NoError(t, err)
	_, err = s.TryAcquire(ctx, 1)
	require.ErrorIs(t, err, fairlock.ErrBusy, "they come back once")
	require.ErrorIs(t, first.Unlock(ctx), fairlock.ErrLost)
	assert.Equal(t, 3, used(), "an Unlock that comes late takes nothing from others")
	require.NoError(t, second.Renew(ctx))
	require.NoError(t, third.Renew(ctx))
	require.Len(t, w.lost, 1)
	w.elapse(ttl)
	assert.Zero(t, used())
}

// deaf hears nothing of what is published to it.
type deaf struct{ *redis.Client }

func (d deaf) Subscribe(ctx context.Context, _ ...string) *redis.PubSub {
	return d.Client.Subscribe(ctx, "nothing is said here")
}

func TestTheNextBeatFindsAllWhoWereAdmittedUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience, readers = 6 * time.Second, 5
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		defer server.Close()
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		defer rdb.Close()
		var missed atomic.Int32
		c, err := fairlock.New(deaf{rdb}, fairlock.Config{WaiterTTL: patience, Trace: &fairlock.Trace{
			NotificationLost: func(fairlock.Event) { missed.Add(1) },
		}})
		require.NoError(t, err)
		defer c.Close()
		hears, err := fairlock.New(rdb, fairlock.Config{})
		require.NoError(t, err)
		defer hears.Close()

		writer, err := hears.RWMutex("x").Lock(t.Context())
		require.NoError(t, err)
		leases := make(chan *fairlock.Lease, readers)
		start := time.Now()
		for range readers {
			go func() {
				lease, err := c.RWMutex("x").RLock(t.Context())
				assert.NoError(t, err)
				leases <- lease
			}()
		}
		synctest.Wait()
		require.NoError(t, writer.Unlock(t.Context()))
		for range readers {
			require.NoError(t, (<-leases).Unlock(t.Context()))
			// In the last 10 ms the message might still have come.
			assert.Equal(t, patience/3+10*time.Millisecond, time.Since(start).Round(5*time.Millisecond))
		}
		assert.Equal(t, int32(readers), missed.Load())
	})
}
