package fairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// While they wait, the waiters of one client send one heartbeat together for a third of WaiterTTL. It keeps their
// tickets.
//
//fairlock:promise Waiting is cheap: one heartbeat for all waiters of a client; leases cost timers, not goroutines
func TestHeartbeat_OneForAllWaitersOfAClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		sent := record(client)
		listen(t, client)
		held := s.Mutex("x").HoldAs("holder")
		var queue []*acquisition
		for range 30 {
			queue = append(queue, begin(t.Context(), client.Mutex("x").Lock))
		}
		sent.reset()
		start := time.Now()
		const interval = fairlock.DefaultWaiterTTL / 3
		pass(10 * interval)
		require.Len(t, sent.times("heartbeat", start), 10)
		assert.Len(t, sent.times("acquire", start), 2, "of the second waiter, whenever the lease could have ended")
		assert.Len(t, sent.requests(), 12)
		for i, at := range sent.times("heartbeat", start) {
			assert.Equal(t, time.Duration(i+1)*interval, at)
		}
		waiters := s.Mutex("x").State().Waiters
		require.Len(t, waiters, 30)
		for _, w := range waiters {
			assert.Equal(t, fairlock.DefaultWaiterTTL, w.TTL)
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

// The interval follows from WaiterTTL, and from the smallest TTL of the waiters if that is shorter: the lease of a waiter
// whose notification is lost lasts no longer.
func TestHeartbeat_Interval(t *testing.T) {
	for name, c := range map[string]struct {
		waiterTTL time.Duration
		ttls      []time.Duration // of the waiters
		want      time.Duration
	}{
		"WaiterTTL":        {6 * time.Second, []time.Duration{time.Minute}, 2 * time.Second},
		"TTL":              {time.Minute, []time.Duration{6 * time.Second}, 2 * time.Second},
		"the smallest TTL": {time.Minute, []time.Duration{time.Minute, 6 * time.Second, 30 * time.Second}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				client := s.Client(fairlock.Config{WaiterTTL: c.waiterTTL})
				sent := record(client)
				listen(t, client)
				s.Mutex("x").HoldAs("holder")
				for _, ttl := range c.ttls {
					begin(t.Context(), client.Mutex("x").WithTTL(ttl).Lock)
				}
				pass(c.ttls[0] / 3) // the interval of the first one
				sent.reset()
				start := time.Now()
				pass(3 * c.want)
				assert.Equal(t, []time.Duration{c.want, 2 * c.want, 3 * c.want}, sent.times("heartbeat", start))
			})
		})
	}
}

// A heartbeat waits for its reply until the third one after it is due, so no more than three are under way.
func TestHeartbeat_TimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const interval = fairlock.DefaultWaiterTTL / 3
		start := time.Now()
		var log logged
		client := clientWith(t, s, fairlock.Config{Logger: log.logger()}, sendOnce)
		s.Mutex("x").HoldAs("holder")
		begin(t.Context(), client.Mutex("x").Lock)
		client.Link.Delay(0, time.Hour)
		pass(6 * interval)
		require.Len(t, log.lines, 3)
		for i, line := range log.lines {
			assert.Equal(t, time.Duration(4+i)*interval, log.at[i].Sub(start))
			assert.Contains(t, line, "heartbeat failed; the next one follows")
			assert.Contains(t, line, "no answer within 6s")
		}
	})
}

// When the subscription comes up again, a heartbeat finds the grants that were made meanwhile.
//
//fairlock:fault A notification is lost
func TestHeartbeat_WhenTheSubscriptionIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var j journal
		client := s.Client(fairlock.Config{Trace: j.trace()})
		listen(t, client)
		held := s.Mutex("x").HoldAs("holder")
		next := begin(t.Context(), client.Mutex("x").Lock)
		start := time.Now()
		client.Link.Break()
		unlock(t, held)
		next.granted(t)
		require.Len(t, j.of("subscription broke"), 1)
		up := j.of("subscribed")[1].at
		assert.Less(t, up.Sub(start), 20*time.Millisecond, "the first back-off")
		assert.Equal(t, up.Add(10*time.Millisecond), next.at)
	})
}

// Waiters of one lock with different TTLs come and go while heartbeats are sent: nothing is shared unguarded (-race).
func TestLocalWaiters_DifferentTTLs(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		held := s.Mutex("x").HoldAs("holder")
		client := s.Client(fairlock.Config{WaiterTTL: 100 * time.Millisecond})
		done := make(chan error)
		for i := range 30 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+50)*10*time.Millisecond)
				defer cancel()
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				_, err := client.Mutex("x").WithTTL(time.Duration(100-i) * 20 * time.Millisecond).Lock(ctx)
				done <- err
			}()
		}
		for range 30 {
			require.ErrorIs(t, <-done, context.DeadlineExceeded)
		}
		synctest.Wait()
		s.Mutex("x").AssertQueue()
		unlock(t, held)
	})
}
