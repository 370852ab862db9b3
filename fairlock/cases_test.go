package fairlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A copy of an acquire that arrives after its lease has ended, for whatever reason, is refused: nobody holds the lock then.
//
//fairlock:fault A copy of an acquire arrives after the lease was lost or unlocked: it is refused, and the lock is free
func TestLease_LateAcquire(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T, s *fairlocktest.Server, l *fairlock.Lease){
		"its lease has expired here": func(_ *testing.T, _ *fairlocktest.Server, l *fairlock.Lease) { <-l.Done() },
		"its lease was taken": func(t *testing.T, s *fairlocktest.Server, l *fairlock.Lease) {
			taken, err := s.Client(fairlock.Config{}).Mutex("x").ForceRelease(t.Context())
			require.NoError(t, err)
			require.True(t, taken)
			require.ErrorIs(t, l.Renew(t.Context()), fairlock.ErrTaken)
		},
		"Redis has lost its data": func(t *testing.T, s *fairlocktest.Server, l *fairlock.Lease) {
			s.LoseData()
			require.ErrorIs(t, l.Renew(t.Context()), fairlock.ErrTaken)
		},
		"it was released": func(t *testing.T, _ *fairlocktest.Server, l *fairlock.Lease) { unlock(t, l) },
	}, func(t *testing.T, s *fairlocktest.Server, _ string, ends func(*testing.T, *fairlocktest.Server, *fairlock.Lease)) {
		client := clientWith(t, s, fairlock.Config{NoRenewal: true}, func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond })
		unlock(t, hold(t, client.Mutex("warm").Lock))
		start, late := time.Now(), 20*time.Second
		client.Link.Delay(late, 0)
		time.AfterFunc(1, client.Link.Mend) // only the first copy is late
		ends(t, s, hold(t, client.Mutex("x").Lock))
		pass(time.Until(start.Add(late)) + time.Millisecond)
		s.Mutex("x").AssertFree()
	})
}

// An outage of a second that begins half a second after a handoff costs no lease, however long its TTL.
func TestLease_OutageAfterAHandoff(t *testing.T) {
	bubbles(t, map[string]time.Duration{
		"10s": 10 * time.Second, "1m": time.Minute, "2m": 2 * time.Minute, "5m": 5 * time.Minute, "1h": time.Hour,
	}, func(t *testing.T, s *fairlocktest.Server, _ string, ttl time.Duration) {
		held := hold(t, s.Client(fairlock.Config{TTL: ttl}).Mutex("x").Lock)
		b := clientWith(t, s, fairlock.Config{Name: "b", TTL: ttl}, func(*redis.Options) {})
		next := begin(t.Context(), b.Mutex("x").Lock)
		pass(1500 * time.Millisecond)
		unlock(t, held)
		lease := next.granted(t)
		b.Link.Cut()
		pass(time.Second)
		b.Link.Mend()
		pass(20 * time.Second)
		assert.NoError(t, lease.Err())
	})
}

// Many waiters of one client leave together: few requests tell Redis, and the queue is empty within a second.
//
//fairlock:promise Waiters that leave together: share their requests, and are out of the queue within a second
func TestWaiters_LeaveTogether(t *testing.T) {
	const n = 2000
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		hold(t, s.Client(fairlock.Config{TTL: time.Hour}).Mutex("x").Lock)
		client := s.Client(fairlock.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, n)
		for range n {
			go func() {
				_, err := client.Mutex("x").Lock(ctx)
				ends <- err
			}()
		}
		pass(5 * time.Second)
		require.Equal(t, n, s.Mutex("x").State().Waiting)
		at := time.Now()
		cancel()
		for range n {
			require.ErrorIs(t, <-ends, context.Canceled)
		}
		assert.LessOrEqual(t, time.Since(at), 100*time.Millisecond)
		pass(time.Second)
		assert.Zero(t, s.Mutex("x").State().Waiting)
	})
}

// A key is somebody else's: each waiter gets an error that says so, by its next heartbeat, and not only the head.
//
//fairlock:fault A key of ours is somebody else's
func TestWaiters_LearnOfAForeignKey(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		hold(t, s.Client(fairlock.Config{TTL: time.Hour}).Mutex("x").Lock)
		var waiters []*acquisition
		for i := range 3 {
			waiters = append(waiters, begin(t.Context(), s.Client(fairlock.Config{Name: fmt.Sprint("c", i)}).Mutex("x").Lock))
			pass(10 * time.Millisecond)
		}
		key := "fairlock:{x}:number"
		s.Miniredis.Del(key)
		_, err := s.Miniredis.Push(key, "somebody's")
		require.NoError(t, err)
		pass(4 * time.Second)
		for _, w := range waiters {
			require.False(t, w.pending())
			require.ErrorContains(t, w.err, "is not ours")
		}
	})
}

// A client is away for 5 s of its WaiterTTL of 6 s, and is handed the lock meanwhile: it keeps its turn.
func TestWaiter_AwayForLessThanItsWaiterTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		held := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		b := clientWith(t, s, fairlock.Config{Name: "b", WaiterTTL: 6 * time.Second}, func(*redis.Options) {})
		next := begin(t.Context(), b.Mutex("x").Lock)
		last := begin(t.Context(), s.Client(fairlock.Config{Name: "c"}).Mutex("x").Lock)
		pass(2 * time.Second)
		b.Link.Cut()
		unlock(t, held)
		pass(5 * time.Second)
		b.Link.Mend()
		lease := next.granted(t)
		require.True(t, last.pending())
		unlock(t, lease)
		last.granted(t)
	})
}

// 500 waiters of a killed process are queued before a living one, and then the key with their times, or the one with the
// queue's clock, is lost: they expire together, and the living one holds the lock within 10 s.
func TestWaiters_KilledAndTheirTimesLost(t *testing.T) {
	bubbles(t, map[string]string{"heartbeats": "heartbeats", "number": "number"},
		func(t *testing.T, s *fairlocktest.Server, _, key string) {
			held := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
			for range 500 {
				s.Mutex("x").CrashQueued("dead", 6*time.Second)
			}
			living := begin(t.Context(), s.Client(fairlock.Config{WaiterTTL: 6 * time.Second}).Mutex("x").Lock)
			require.True(t, s.Miniredis.Del("fairlock:{x}:"+key))
			at := time.Now()
			unlock(t, held)
			living.granted(t)
			assert.LessOrEqual(t, living.at.Sub(at), 10*time.Second)
		})
}
