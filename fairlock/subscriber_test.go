package fairlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// publishing has each PUBLISH of a script go through f, which may refuse it; nil: none does.
func publishing(s *fairlocktest.Server, f func(channel, message string) bool) {
	s.Miniredis.Server().SetPreHook(func(peer *server.Peer, command string, args ...string) bool {
		if command != "PUBLISH" || f == nil || f(args[0], args[1]) {
			return false
		}
		peer.WriteError("NOPERM this user has no permissions to run the 'publish' command")
		return true
	})
}

// A subscription is made again if a heartbeat finds a grant whose notification it has not brought 10 ms after the
// reply. The next notification arrives.
//
//fairlock:fault A notification is lost
func TestSubscriber_MissesANotification(t *testing.T) {
	const late = 10 * time.Millisecond
	bubbles(t, map[time.Duration]int{late - 1: 0, late + 1: 1},
		func(t *testing.T, s *fairlocktest.Server, delay time.Duration, missed int) {
			client, _, j := listening(t, s, fairlock.Config{})
			held := s.Mutex("x").HoldAs("holder")
			next, start := begin(t.Context(), client.Mutex("x").Lock), time.Now()
			publishing(s, func(channel, message string) bool {
				time.AfterFunc(interval+delay, func() { s.Miniredis.Publish(channel, message) })
				return false
			})
			unlock(t, held)
			held = next.granted(t)
			pass(10 * interval)
			publishing(s, nil)
			require.Len(t, j.of("NotificationLost"), missed)
			require.Len(t, j.of("subscription broke"), missed)
			for _, broke := range j.of("subscription broke") {
				require.ErrorContains(t, broke.info.(error), "did not bring a notification")
				assert.Equal(t, interval+late, broke.at.Sub(start))
			}
			next = begin(t.Context(), client.Mutex("x").Lock)
			start = time.Now()
			unlock(t, held)
			unlock(t, next.granted(t))
			assert.Equal(t, start, next.at)
		})
}

// A connection that is silent is pinged after 3 s, and replaced if it stays silent for 3 s more, also while nobody
// waits.
//
//fairlock:fault The connection of a subscription is half-open, and shows no error: replaced within 6 s, also while the client waits for no lock
func TestSubscriber_Silent(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, _, j := listening(t, s, fairlock.Config{})
		pass(time.Minute)
		require.Empty(t, j.of("subscription broke"))
		client.Link.DropNotifications()
		start := time.Now()
		pass(6 * time.Second)
		client.Link.Mend()
		pass(6 * time.Second)
		require.Len(t, j.of("subscription broke"), 1)
		assert.Equal(t, 6*time.Second, j.of("subscription broke")[0].at.Sub(start))
		require.Len(t, j.of("subscribed"), 2)
	})
}

// A subscription that is down for a second is logged, and so is that it is up again. It is no outage. One that Redis
// refuses is requested again once a second.
func TestSubscriber_Down(t *testing.T) {
	bubbles(t, map[string]bool{"refused": true, "unreachable": false},
		func(t *testing.T, s *fairlocktest.Server, name string, refused bool) {
			var log logged
			var j journal
			rdb := &subscribing{Client: s.Link().Redis()}
			rdb.refused.Store(refused)
			client, err := fairlock.New(rdb, fairlock.Config{Logger: log.logger(), Trace: j.trace()})
			require.NoError(t, err)
			defer client.Close()
			listen(t, &fairlocktest.Client{Client: client})
			if !refused {
				s.Stop()
			}
			pass(time.Minute + interval/2)
			if refused {
				assert.Len(t, j.of("subscription broke"), 1+60)
			}
			require.Len(t, log.lines, 1)
			assert.Contains(t, log.lines[0], `level=WARN msg="the subscription is down; heartbeats replace notifications"`)
			assert.Zero(t, client.Stats().OutageSince)
			rdb.refused.Store(false)
			if !refused {
				s.Start()
			}
			pass(interval)
			require.Len(t, log.lines, 2)
			assert.Contains(t, log.lines[1], `level=INFO msg="the subscription is up again"`)
			assert.Contains(t, log.lines[1], "lasted=1m", name)
		})
}

// subscribing is a client whose subscriptions Redis may refuse: they need a user that it does not know.
type subscribing struct {
	*redis.Client

	refused atomic.Bool
}

func (s *subscribing) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	if !s.refused.Load() {
		return s.Client.Subscribe(ctx, channels...)
	}
	o := *s.Options()
	o.Username, o.Password = "nobody", "wrong"
	return redis.NewClient(&o).Subscribe(ctx, channels...)
}
