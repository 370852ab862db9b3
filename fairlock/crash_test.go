package fairlock_test

import (
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/machine"
)

// later is how long after an expiry in Redis a waiter sends acquire: Redis rounds to milliseconds.
const later = time.Millisecond

// The waiter behind a crashed holder is granted the lock as soon as the holder's TTL has ended, by one acquire.
//
//fairlock:fault A holder crashes: the next one is in when the rest of its TTL has passed, and not before
func TestCrash_HolderCostsTheRestOfItsTTL(t *testing.T) {
	bubbles(t, map[string]time.Duration{
		"no heartbeat meets the end":       time.Second / 2,
		"the end comes before a heartbeat": ttl - 100*time.Millisecond,
	}, func(t *testing.T, s *fairlocktest.Server, _ string, before time.Duration) {
		crashing, client := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		sent := record(client)
		listen(t, client)
		lease := hold(t, crashing.Mutex("x").Lock)
		end := time.Now().Add(ttl)
		crashing.Crash()
		require.ErrorIs(t, lease.Err(), fairlock.ErrClosed)
		pass(before)
		next := begin(t.Context(), client.Mutex("x").Lock)
		sent.reset()
		assert.Greater(t, next.granted(t).Fence(), lease.Fence())
		assert.Equal(t, end.Add(later), next.at)
		assert.Len(t, sent.times("acquire", end), 1)
	})
}

// A row of crashed waiters costs one WaiterTTL in all, even if the first of them has just been granted the lock.
//
//fairlock:fault Waiters crash, a hundred in a row: one WaiterTTL in all, and at most one interval between heartbeats
func TestCrash_RowOfWaitersCostsOneWaiterTTL(t *testing.T) {
	const waiterTTL = 3500 * time.Millisecond // half an interval after a heartbeat
	bubbles(t, map[string]time.Duration{
		"expired at the release": waiterTTL, "granted at the release": time.Second,
	}, func(t *testing.T, s *fairlocktest.Server, _ string, release time.Duration) {
		client := s.Client(fairlock.Config{})
		listen(t, client)
		x, start := s.Mutex("x"), time.Now()
		held := x.HoldAs("holder")
		for range 100 {
			x.CrashQueued("crashed", waiterTTL)
		}
		survivor := begin(t.Context(), client.Mutex("x").Lock)
		pass(release)
		unlock(t, held)
		survivor.granted(t)
		want := waiterTTL
		if release < waiterTTL {
			want += interval / 2 // until the next heartbeat: the survivor is not told when they expire
		}
		assert.Equal(t, want, survivor.at.Sub(start))
	})
}

// suspendWaiter grants a waiter the lock while its machine is suspended. The function wake ends that.
func suspendWaiter(t *testing.T, s *fairlocktest.Server) (q *acquisition, other *fairlocktest.Client,
	wake func() time.Time) {
	t.Helper()
	c := machine.Clock{LocalClock: s.LocalClock()}
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

// The machine of a waiter sleeps for less than what the lease has left when it is notified: the lease is trusted for
// less.
//
//fairlock:fault A waiter is stopped while the lock is handed to it
func TestWaiter_SuspendedMachineTrustsNotificationForLess(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		q, _, wake := suspendWaiter(t, s)
		ends := time.Now().Add(bounds.DefaultWaiterTTL)
		pass(bounds.DefaultWaiterTTL / 2)
		now := wake()
		left := q.granted(t).Deadline().Sub(now)
		assert.Less(t, left, time.Until(ends), "it is trusted for longer than Redis lets it last")
	})
}

// The machine of a waiter sleeps while it is notified: the old notification is not trusted.
//
//fairlock:fault A waiter is stopped while the lock is handed to it: beyond the time given it does not trust the grant; within it, it has the lock
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
