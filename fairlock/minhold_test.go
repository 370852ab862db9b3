package fairlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// wake is how long after a minimum hold the next waiter is served at the latest.
const wake = 100 * time.Millisecond

// Several machines whose clocks differ try to do a job each ten seconds, for twenty minutes. It is done once in each,
// though some of them are killed while they do it.
//
//fairlock:promise At most once in d: of replicas that do TryDo with a minimum hold, one does the job each time, though their clocks differ; a crash costs at most one time
func TestMinHold_OncePerPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const hold, period, periods = 9 * time.Second, 10 * time.Second, 120
		begin := time.Now()
		done := make([]int, periods+1)
		var mu sync.Mutex
		var wait sync.WaitGroup
		for i, skew := range []time.Duration{-3 * time.Second, 0, 3 * time.Second} {
			wait.Go(func() {
				client := s.Client(fairlock.Config{TTL: hold})
				for n := 1; n <= periods; n++ {
					time.Sleep(time.Until(begin.Add(time.Duration(n)*period + skew)))
					killed := n%(7+i) == 0
					err := client.Mutex("job", fairlock.WithMinHold(hold)).TryDo(t.Context(), func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						done[n]++
						time.Sleep(time.Millisecond)
						if killed {
							client.Crash()
						}
						return nil
					})
					if killed { // perhaps it has crashed, and another process takes its place
						client.Crash()
						client = s.Client(fairlock.Config{TTL: hold})
					} else if !errors.Is(err, fairlock.ErrBusy) {
						assert.NoError(t, err)
					}
				}
			})
		}
		wait.Wait()
		for n := 1; n <= periods; n++ {
			assert.LessOrEqual(t, done[n], 1, "period %d", n)
			assert.True(t, done[n] > 0 || done[n-1] > 0, "period %d, and the one before it was missed, too", n)
		}
	})
}

// The minimum holds through what happens to its holder, and no longer.
//
//fairlock:fault The holder of a lock with a minimum hold crashes, or releases it and the reply is lost: it stays taken until the minimum is over
//fairlock:promise A minimum hold: the lock stays taken until d after the grant, whatever its holder does; at most so many holders start in d, in order, and the next one starts within 100 ms after d
func TestMinHold_StaysTaken(t *testing.T) {
	const d = 5 * time.Minute
	bubbles(t, map[string]func(*testing.T, *fairlocktest.Client, *fairlock.Lease){
		"killed after half of the minimum": func(t *testing.T, c *fairlocktest.Client, l *fairlock.Lease) {
			pass(d / 2)
			require.NoError(t, l.Err())
			c.Crash()
		},
		"the reply to the release is lost": func(t *testing.T, c *fairlocktest.Client, l *fairlock.Lease) {
			c.Link.DropReply()
			require.NoError(t, l.Unlock(t.Context()))
		},
		"the client is closed": func(_ *testing.T, c *fairlocktest.Client, _ *fairlock.Lease) { c.Close() },
	}, func(t *testing.T, s *fairlocktest.Server, _ string, end func(*testing.T, *fairlocktest.Client, *fairlock.Lease)) {
		client := s.Client(fairlock.Config{Name: "job"})
		lease := hold(t, client.Mutex("x", fairlock.WithMinHold(d)).Lock)
		granted := time.Now()
		end(t, client, lease)
		q := begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
		pass(time.Until(granted.Add(d - time.Millisecond)))
		s.Mutex("x").AssertHeldBy("job")
		assert.True(t, q.pending())
		pass(wake)
		unlock(t, q.granted(t))
		pass(12 * time.Minute)
		s.AssertNothingLeft()
	})
}

// ForceRelease frees a lock that was released and is kept, and others see who released it.
func TestMinHold_OthersSeeThatItWasReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		m := s.Client(fairlock.Config{Name: "job"}).Mutex("x", fairlock.WithMinHold(5*time.Second))
		unlock(t, hold(t, m.Lock))
		pass(2 * time.Second)
		other := s.Client(fairlock.Config{}).Mutex("x")
		_, err := other.TryLock(t.Context())
		var held *fairlock.HeldError
		require.ErrorAs(t, err, &held)
		assert.True(t, held.Released)
		require.ErrorIs(t, err, fairlock.ErrBusy)
		require.ErrorContains(t, err, "released by job, free in 3s")
		st := s.Mutex("x").State()
		assert.Equal(t, []any{"job", true}, []any{st.Holders[0].Client, st.Holders[0].Released})
		taken, err := operator(s).ForceRelease(t.Context(), idX(fairlock.KindMutex))
		require.NoError(t, err)
		assert.True(t, taken)
		s.Mutex("x").AssertFree()
	})
}

// A message that tells the head when the minimum is over may be lost.
//
//fairlock:fault The message that tells the first waiter when a minimum hold ends is lost: a heartbeat tells it
func TestMinHold_LostNotification(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const d = 5 * time.Second // less than the remaining time of the lease when the waiter queues
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x", fairlock.WithMinHold(d)).Lock)
		granted := time.Now()
		client := s.Client(fairlock.Config{})
		pass(300 * time.Millisecond) // so that no heartbeat is due when the minimum is over
		q := begin(t.Context(), client.Mutex("x").Lock)
		pass(time.Second / 2)
		client.Link.DropNotifications()
		unlock(t, lease)
		next := q.granted(t)
		assert.GreaterOrEqual(t, q.at.Sub(granted), d)
		assert.LessOrEqual(t, q.at.Sub(granted), d+wake)
		unlock(t, next)
	})
}
