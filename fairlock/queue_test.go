package fairlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
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

// If a heartbeat grants the lock to all waiters that it lists, and to as many others as one call may, another call goes
// on.
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
		client.Link.DropNotifications() // and the confirmation
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
