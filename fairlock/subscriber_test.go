package fairlock_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A subscription that has been up for more than a second is replaced when it loses a notification: it may be half open.
// The next notification arrives.
//
//fairlock:fault A notification is lost
func TestSubscriber_ReplacedAfterALostNotification(t *testing.T) {
	bubbles(t, map[time.Duration]int{
		time.Second: 0, time.Second + time.Millisecond: 1,
	}, func(t *testing.T, s *fairlocktest.Server, up time.Duration, replaced int) {
		var j journal
		client := s.Client(fairlock.Config{TTL: 300 * time.Millisecond, Trace: j.trace()})
		listen(t, client)
		found := up - 110*time.Millisecond // the heartbeat finds the grant after 100 ms, and 10 ms later it is lost
		pass(found)
		x := client.Mutex("x")
		held := s.Mutex("x").HoldAs("holder")
		next := begin(t.Context(), x.Lock)
		client.Link.DropNotifications()
		unlock(t, held)
		lease := next.granted(t)
		require.Len(t, j.of("NotificationLost"), 1)
		client.Link.Mend()
		pass(time.Second)
		assert.Len(t, j.of("subscription broke"), replaced)
		assert.Len(t, j.of("subscribed"), 1+replaced)

		next = begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
		last := begin(t.Context(), x.Lock)
		unlock(t, lease)
		start := time.Now()
		unlock(t, next.granted(t))
		last.granted(t)
		assert.Equal(t, start, last.at)
	})
}

// A client subscribes at its first contention, and once for all its locks.
func TestSubscriber_StartsAtTheFirstContention(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		channel := "fairlock:notify:" + client.Name()
		subscribers := func() int { return s.Miniredis.PubSubNumSub(channel)[channel] }
		unlock(t, hold(t, client.Mutex("x").Lock))
		assert.Zero(t, subscribers())
		for _, name := range []string{"x", "y", "z"} {
			s.Mutex(name).HoldAs("holder")
			begin(t.Context(), client.Mutex(name).Lock)
			assert.Equal(t, 1, subscribers())
		}
	})
}

// A message on the channel that is no notification is logged, and has no effect.
func TestSubscriber_ForeignMessage(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var log logged
		client := s.Client(fairlock.Config{Logger: log.logger()})
		listen(t, client)
		s.Mutex("x").HoldAs("holder")
		q := begin(t.Context(), client.Mutex("x").Lock)
		require.Equal(t, 1, s.Miniredis.Publish("fairlock:notify:"+client.Name(), "hello"))
		synctest.Wait()
		assert.True(t, q.pending())
		require.Len(t, log.lines, 1)
		assert.Contains(t, log.lines[0], "unknown message on the notification channel")
	})
}

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
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		holder, link := s.Client(fairlock.Config{}), s.Link()
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
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		holder, link := s.Client(fairlock.Config{}), s.Link()
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
			lease := hold(t, holder.Mutex("x").Lock)
			var released time.Time
			time.AfterFunc(100*time.Millisecond, func() {
				released = time.Now()
				assert.NoError(t, lease.Unlock(context.Background()))
			})
			lease = hold(t, client.Mutex("x").Lock)
			defer func() { unlock(t, lease) }()
			return time.Since(released)
		}
		assert.Equal(t, 910*time.Millisecond, late(), "the heartbeat after a second, and 10 ms for the notification")
		time.Sleep(10 * time.Second)
		assert.Zero(t, late())
		assert.Equal(t, []time.Duration{5 * time.Second}, broke)
		assert.Equal(t, 2, subscriptions)
	})
}

// A waiter with a shorter TTL needs heartbeats in shorter intervals, from its first one on.
func TestHeartbeat_EarlierForAShorterTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		client.Link.DropNotifications()
		held, start := s.Mutex("x").HoldAs("holder"), time.Now()
		first := begin(t.Context(), client.Mutex("x").Lock) // a heartbeat each 2 s, after 2 s
		pass(time.Second)
		begin(t.Context(), client.Mutex("x").WithTTL(300*time.Millisecond).Lock) // each 100 ms, after 1.1 s
		pass(50 * time.Millisecond)
		unlock(t, held)
		first.granted(t)
		assert.Equal(t, 1110*time.Millisecond, first.at.Sub(start), "the heartbeat, and 10 ms for the notification")
	})
}
