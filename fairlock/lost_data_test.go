package fairlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/sim"
)

// The machine of the holder sleeps beyond the lease and FenceTTL: the idle lock is not quarantined.
func TestLease_SuspendedMachineQuarantinesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := sim.MachineClock{LocalClock: s.LocalClock()}
		start := c.Now()
		lease := hold(t, s.Client(fairlock.Config{Clock: c}).Mutex("x").Lock)
		c.SetRate(0)
		pass(15 * time.Minute)
		c.SetRate(1)
		require.Equal(t, 15*time.Minute, c.Now().Round(0).Sub(start.Round(0)))
		require.Equal(t, time.Duration(0), c.Now().Sub(start))
		pass(5 * time.Second)
		require.Error(t, lease.Err())
		assert.Zero(t, s.Mutex("x").State().Quarantine)
	})
}

// suspendWaiter has a waiter granted the lock while its machine is suspended. wake ends that.
func suspendWaiter(t *testing.T, s *fairlocktest.Server) (q *acquisition, other *fairlocktest.Client, wake func() time.Time) {
	t.Helper()
	c := sim.MachineClock{LocalClock: s.LocalClock()}
	asleep, other := s.Client(fairlock.Config{Clock: c}), s.Client(fairlock.Config{})
	listen(t, asleep)
	first := hold(t, other.Mutex("x").Lock)
	q = begin(t.Context(), asleep.Mutex("x").Lock)
	asleep.Link.Hang()
	c.SetRate(0)
	unlock(t, first)
	return q, other, func() time.Time {
		asleep.Link.Mend()
		c.SetRate(1)
		return c.Now()
	}
}

// The machine of a waiter sleeps for less than what the lease has left when it is notified: the lease is trusted for less.
func TestWaiter_SuspendedMachineTrustsNotificationForLess(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		q, _, wake := suspendWaiter(t, s)
		ends := time.Now().Add(fairlock.DefaultWaiterTTL)
		pass(fairlock.DefaultWaiterTTL / 2)
		now := wake()
		left := q.granted(t).Deadline().Sub(now)
		assert.Less(t, left, time.Until(ends), "it is trusted for longer than Redis lets it last")
	})
}

// The machine of a waiter sleeps while it is notified: the old notification is not trusted.
func TestWaiter_SuspendedMachineTrustsNoOldNotification(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		q, other, wake := suspendWaiter(t, s)
		pass(time.Minute)
		second := hold(t, other.Mutex("x").Lock)
		wake()
		pass(10 * time.Millisecond)
		require.NoError(t, second.Err())
		assert.True(t, q.pending(), "two hold the lock")
	})
}

// The holder that reports knows of another lease of its client, and of waiters, with a longer TTL.
func TestDataLoss_ReportForTheLongestTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		hold(t, client.RWMutex("x").WithTTL(3*time.Second).RLock)
		long := hold(t, client.RWMutex("x").WithTTL(time.Minute).RLock)
		s.LoseData()
		pass(1500 * time.Millisecond)
		writer := begin(t.Context(), s.Client(fairlock.Config{}).RWMutex("x").Lock)
		lease := writer.granted(t)
		require.NoError(t, lease.Err())
		assert.Error(t, long.Err(), "a reader and a writer hold the lock")
	})
}

// A holder with a short TTL reports the loss before the waiter is back that knows of a longer one.
func TestDataLoss_LongerTTLIsKnownLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		short, long, waiting := s.Client(fairlock.Config{TTL: 2400 * time.Millisecond}), s.Client(fairlock.Config{TTL: time.Minute}),
			s.Client(fairlock.Config{TTL: time.Minute})
		listen(t, waiting)
		hold(t, short.RWMutex("x").RLock)
		other := hold(t, long.RWMutex("x").RLock)
		writer := begin(t.Context(), waiting.RWMutex("x").Lock)
		s.LoseData()
		lease := writer.granted(t)
		require.NoError(t, lease.Err())
		assert.Error(t, other.Err(), "a reader and a writer hold the lock")
	})
}

// An Unlock that finds the loss has the lock quarantined for the other holders.
func TestDataLoss_UnlockReportsIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		first := hold(t, s.Client(fairlock.Config{}).RWMutex("x").RLock)
		second := hold(t, s.Client(fairlock.Config{}).RWMutex("x").RLock)
		s.LoseData()
		require.ErrorIs(t, first.Unlock(t.Context()), fairlock.ErrTaken)
		pass(time.Second)
		writer := begin(t.Context(), s.Client(fairlock.Config{}).RWMutex("x").Lock)
		lease := writer.granted(t)
		require.NoError(t, lease.Err())
		assert.Error(t, second.Err(), "a reader and a writer hold the lock")
	})
}

// Redis loses its data twice.
func TestDataLoss_Twice(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		old := hold(t, s.Client(fairlock.Config{TTL: time.Minute}).Mutex("x").Lock)
		q := begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
		s.LoseData()
		pass(interval)
		assert.Equal(t, time.Minute, s.Mutex("x").State().Quarantine)
		s.LoseData()
		pass(interval)
		assert.Equal(t, time.Minute, s.Mutex("x").State().Quarantine)
		lease := q.granted(t)
		require.NoError(t, lease.Err())
		assert.Error(t, old.Err(), "two hold the lock")
	})
}
