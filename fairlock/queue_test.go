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
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/script"
)

// The waiters of one client send one heartbeat together, each second. It keeps their tickets.
//
//fairlock:promise Waiting is cheap: one heartbeat per lock each second, for up to 250 waiters of a client; leases cost timers, not goroutines
func TestHeartbeat_OneForAllWaitersOfAClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, sent, _ := listening(t, s, fairlock.Config{})
		held := s.Mutex("x").HoldAs("holder")
		var queue []*acquisition
		for range 30 {
			queue = append(queue, begin(t.Context(), client.Mutex("x").Lock))
		}
		sent.reset()
		start := time.Now()
		pass(10 * interval)
		require.Len(t, sent.times("heartbeat", start), 10)
		assert.Len(t, sent.requests(), 10)
		for i, at := range sent.times("heartbeat", start) {
			assert.Equal(t, time.Duration(i+1)*interval, at)
		}
		waiters := s.Mutex("x").State().Waiters
		require.Len(t, waiters, 30)
		for _, w := range waiters {
			assert.GreaterOrEqual(t, w.TTL, bounds.DefaultWaiterTTL-2*interval)
		}
		unlock(t, held)
		for _, q := range queue {
			unlock(t, q.granted(t))
		}
		sent.reset()
		pass(time.Hour)
		assert.Empty(t, sent.requests(), "heartbeats without a waiter")
	})
}

// A heartbeat waits for its reply until the third one after it is due, so no more than three are under way.
func TestHeartbeat_TimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		start := time.Now()
		var log logged
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		client := clientWith(t, s, fairlock.Config{Logger: logger}, sendOnce)
		s.Mutex("x").HoldAs("holder")
		begin(t.Context(), client.Mutex("x").Lock)
		client.Link.Delay(0, time.Hour)
		pass(6 * interval)
		var failed []time.Duration
		for i, line := range log.lines {
			if strings.Contains(line, "heartbeat failed; the next one follows") {
				failed = append(failed, log.at[i].Sub(start))
				assert.Contains(t, line, "no answer within 3s")
			}
		}
		assert.Equal(t, []time.Duration{4 * interval, 5 * interval, 6 * interval}, failed)
	})
}

// When the subscription comes up again, a heartbeat finds the grants that were made meanwhile.
//
//fairlock:fault A notification is lost
func TestHeartbeat_WhenTheSubscriptionIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, _, j := listening(t, s, fairlock.Config{})
		held := s.Mutex("x").HoldAs("holder")
		next := begin(t.Context(), client.Mutex("x").Lock)
		start := time.Now()
		client.Link.Break()
		unlock(t, held)
		next.granted(t)
		up := j.of("subscribed")[1].at
		assert.Equal(t, up.Add(10*time.Millisecond), next.at)
		for i := range 3 {
			assert.Less(t, j.of("subscribed")[1+i].at.Sub(start), 20*time.Millisecond, "the first back-off")
			pass(interval)
			start = time.Now()
			client.Link.Break()
			pass(interval)
		}
	})
}

// A heartbeat that grants the lock to all whom it lists, and to as many others as one call may, has another call go on.
func TestHeartbeat_GoesOnForOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		x := s.RWMutex("x")
		x.CrashHolding("writer", 3*interval/2)
		client, others := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		for range 2 { // they are told when the lease ends, and are cut off then
			begin(t.Context(), others.RWMutex("x").RLock)
		}
		third := begin(t.Context(), client.RWMutex("x").RLock)
		for range 200 {
			begin(t.Context(), others.RWMutex("x").RLock)
		}
		others.Link.Cut()
		third.granted(t)
		synctest.Wait()
		assert.Len(t, x.State().Holders, 203)
	})
}

// After a loss of data two waiters of one client can have one ticket: heartbeats keep both.
func TestHeartbeat_OfTwoWithOneTicket(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		x, client := s.Mutex("x"), s.Client(fairlock.Config{})
		for _, holder := range []string{"before", "after"} {
			s.LoseData() // no time passes, so the numbers are given again
			x.HoldAs(holder)
			begin(t.Context(), client.Mutex("x").Lock)
			begin(t.Context(), client.Mutex("x").Lock) // behind the first two: it is not told when to ask again
		}
		pass(2 * time.Minute)
		waiters := x.State().Waiters
		require.Len(t, waiters, 4)
		require.Equal(t, waiters[2].Ticket, waiters[3].Ticket)
	})
}

// A waiter whose TTL is shorter than a round trip costs the others nothing, also when it is gone.
func TestHeartbeat_TTLBelowTheRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const others = script.MaxHeartbeat + 10 // a second request has the rest
		client, sent, _ := listening(t, s, fairlock.Config{WaiterTTL: bounds.MinWaiterTTL})
		s.Mutex("x").HoldAs("holder")
		for range others {
			begin(t.Context(), client.Mutex("x").Lock)
		}
		client.Link.Delay(50*time.Millisecond, 50*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), bounds.MinWaiterTTL+interval)
		defer cancel()
		begin(ctx, client.Mutex("x", fairlock.WithTTL(60*time.Millisecond)).Lock)
		pass(bounds.MinWaiterTTL + interval)
		for _, w := range s.Mutex("x").State().Waiters[:others] {
			require.Positive(t, w.TTL)
		}
		pass(interval / 2) // it has left
		sent.reset()
		start := time.Now()
		pass(3 * interval)
		require.LessOrEqual(t, len(sent.times("heartbeat", start)), 6, "one a second, in one or two requests")
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

// Close returns also while a subscription is made over a connection that hangs.
//
//fairlock:promise Close
func TestSubscription_CloseWhileItConnects(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		hangs := false
		var client *fairlocktest.Client
		client = clientWith(t, s, fairlock.Config{}, func(o *redis.Options) {
			dial := o.Dialer
			o.MaxRetries, o.ReadTimeout = -1, time.Second
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				if hangs {
					client.Link.Hang()
				}
				return conn, err
			}
		})
		lease := s.Mutex("x").HoldAs("holder")
		begin(t.Context(), client.Mutex("x").Lock)
		pass(time.Second)
		hangs = true
		client.Link.Break()
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
		var j journal
		client, holder := s.Client(fairlock.Config{Trace: j.trace()}), s.Client(fairlock.Config{})
		late := func() time.Duration { // from the release to the grant
			lease := hold(t, holder.Mutex("x").Lock)
			next := begin(t.Context(), client.Mutex("x").Lock)
			pass(100 * time.Millisecond)
			released := time.Now()
			unlock(t, lease)
			unlock(t, next.granted(t))
			return next.at.Sub(released)
		}
		client.Link.DropNotifications() // the confirmation, too
		start := time.Now()
		assert.Equal(t, 910*time.Millisecond, late(), "the heartbeat after a second, and 10 ms for the notification")
		client.Link.Mend()
		pass(10 * time.Second)
		assert.Zero(t, late())
		broke := j.of("subscription broke")
		require.Len(t, broke, 1)
		assert.Equal(t, 5*time.Second, broke[0].at.Sub(start))
		assert.Len(t, j.of("subscribed"), 1)
	})
}
