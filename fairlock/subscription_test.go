package fairlock_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// lossy is a connection on which SUBSCRIBE is lost, and which shows no error.
type lossy struct {
	net.Conn
	lose func() bool
}

func (c *lossy) Write(p []byte) (int, error) {
	if strings.Contains(strings.ToLower(string(p)), "\r\nsubscribe\r\n") && c.lose() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close returns also while a subscription is made over a connection that hangs.
//
//fairlock:promise Close
func TestSubscription_CloseWhileItConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		holder, link := server.Client(fairlock.Config{}), server.Link()
		hangs := false
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", Protocol: 2, MaxRetries: -1, ReadTimeout: time.Second,
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := link.Dial(ctx)
				if hangs {
					link.Hang()
				}
				return conn, err
			},
		})
		defer func() { _ = rdb.Close() }()
		client, err := fairlock.New(rdb, fairlock.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		lease := hold(t, holder.Mutex("x").Lock)
		begin(t.Context(), client.Mutex("x").Lock)
		pass(time.Second)
		hangs = true
		link.Break()
		pass(100 * time.Millisecond)
		require.NoError(t, client.Close())
		unlock(t, lease)
	})
}

// A subscription that Redis does not confirm within 5 s is replaced; before, heartbeats find the grants.
//
//fairlock:fault The connection of a subscription dies before Redis has confirmed it: replaced after 5 s; heartbeats find the grants meanwhile
func TestSubscription_ThatIsNeverConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		holder, link := server.Client(fairlock.Config{}), server.Link()
		subscriptions := 0
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", Protocol: 2, PoolSize: 100,
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := link.Dial(ctx)
				return &lossy{conn, func() bool { subscriptions++; return subscriptions == 1 }}, err
			},
		})
		defer func() { _ = rdb.Close() }()
		var broke []time.Duration
		start := time.Now()
		client, err := fairlock.New(rdb, fairlock.Config{Logger: slog.New(slog.DiscardHandler), Trace: &fairlock.Trace{
			Subscription: func(i fairlock.SubscriptionInfo) {
				if i.Err != nil {
					broke = append(broke, time.Since(start))
				}
			},
		}})
		require.NoError(t, err)
		defer func() { _ = client.Close() }()
		late := func() time.Duration { // from the release to the grant
			lease, err := holder.Mutex("x").Lock(t.Context())
			require.NoError(t, err)
			var released time.Time
			time.AfterFunc(100*time.Millisecond, func() {
				released = time.Now()
				assert.NoError(t, lease.Unlock(context.Background()))
			})
			lease, err = client.Mutex("x").Lock(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, lease.Unlock(t.Context())) }()
			return time.Since(released)
		}
		assert.Equal(t, 1910*time.Millisecond, late(), "the heartbeat after 2 s, and 10 ms for the notification")
		time.Sleep(10 * time.Second)
		assert.Zero(t, late())
		assert.Equal(t, []time.Duration{5 * time.Second}, broke)
		assert.Equal(t, 2, subscriptions)
	})
}

// A waiter with a shorter TTL needs heartbeats in shorter intervals, from its first one on.
func TestHeartbeat_EarlierForAShorterTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		client.Link.DropNotifications()
		lease, err := server.Client(fairlock.Config{}).Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		start := time.Now()
		var granted []time.Duration
		var all sync.WaitGroup
		wait := func(m fairlock.Mutex) {
			all.Go(func() {
				lease, err := m.Lock(t.Context())
				granted = append(granted, time.Since(start))
				assert.NoError(t, err)
				assert.NoError(t, lease.Unlock(t.Context()))
			})
			synctest.Wait()
		}
		wait(client.Mutex("x")) // a heartbeat each 2 s, after 2 s
		time.Sleep(time.Second)
		wait(client.Mutex("x").WithTTL(300 * time.Millisecond)) // each 100 ms, after 1.1 s
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, lease.Unlock(t.Context()))
		all.Wait()
		slices.Sort(granted)
		assert.Equal(t, 1110*time.Millisecond, granted[0], "the heartbeat, and 10 ms for the notification")
	})
}
