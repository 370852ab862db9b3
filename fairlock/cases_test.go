package fairlock_test

import (
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A copy of an acquire that arrives after its lease has ended, for whatever reason, is refused: nobody holds the lock
// then.
//
//fairlock:fault A copy of an acquire arrives after the lease was lost or unlocked: it is refused, and the lock is free
func TestLease_LateAcquire(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T, s *fairlocktest.Server, l *fairlock.Lease){
		"its lease has expired here": nil,
		"its lease was taken": func(t *testing.T, s *fairlocktest.Server, l *fairlock.Lease) {
			taken, err := operator(s).ForceRelease(t.Context(), idX(fairlock.KindMutex))
			require.NoError(t, err)
			require.True(t, taken)
			require.ErrorIs(t, l.Renew(t.Context()), fairlock.ErrRevoked)
		},
		"Redis has lost its data": func(t *testing.T, s *fairlocktest.Server, l *fairlock.Lease) {
			s.LoseData()
			require.ErrorIs(t, l.Renew(t.Context()), fairlock.ErrRevoked)
		},
		"it was released": func(t *testing.T, _ *fairlocktest.Server, l *fairlock.Lease) { unlock(t, l) },
	}, func(t *testing.T, s *fairlocktest.Server, _ string, ends func(*testing.T, *fairlocktest.Server, *fairlock.Lease)) {
		clock := s.LocalClock()
		client := clientWith(t, s, fairlock.Config{Clock: clock},
			func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond })
		unlock(t, hold(t, client.Mutex("warm").Lock))
		start, late := time.Now(), 20*time.Second
		client.Link.Delay(late, 0)
		time.AfterFunc(1, client.Link.Mend) // only the first copy is late
		if lease := hold(t, client.Mutex("x").Lock); ends != nil {
			ends(t, s, lease)
		} else {
			clock.Pause()
			pass(ttl)
			require.ErrorIs(t, lease.Err(), fairlock.ErrExpired)
			clock.Resume()
		}
		pass(time.Until(start.Add(late)) + time.Millisecond)
		s.Mutex("x").AssertFree()
	})
}

// replica is a replica of the server with mutex x, which has what the server had when it was made. Its method takes
// over.
func replica(t *testing.T, s *fairlocktest.Server) (takeOver func()) {
	t.Helper()
	s.StepClock(0) // TTLs are those of now
	m, at := s.Miniredis, s.Now()
	texts, sets, left := map[string]string{}, map[string]map[string]float64{}, map[string]time.Duration{}
	for _, key := range m.Keys() {
		if left[key] = m.TTL(key); m.Type(key) == "string" {
			texts[key], _ = m.Get(key)
		} else {
			set, err := m.SortedSet(key)
			require.NoError(t, err)
			sets[key] = maps.Clone(set) // of the server's own
		}
	}
	return func() {
		s.Stop()
		s.LoseData()
		s.StepClock(0)
		for key, text := range texts {
			require.NoError(t, m.Set(key, text))
		}
		for key, set := range sets {
			for member, score := range set {
				_, err := m.ZAdd(key, score, member)
				require.NoError(t, err)
			}
		}
		for key, d := range left {
			m.SetTTL(key, d-s.Now().Sub(at))
		}
		s.Start()
	}
}

// A planned failover loses the last release. Its client sends it again when its subscription comes up on the new
// primary. Then the waiters are served in their order, including one that was handed the lock by the lost release.
//
//fairlock:fault Failover to a replica that missed a release: its client sends again what it has released in the last 3 s when it reaches the new primary, and the next waiter is in; if it does not live any more, when what was left of that lease has passed
func TestFailover_ForgottenRelease(t *testing.T) {
	type lease = *fairlock.Lease
	bubbles(t, map[string]func(*testing.T, lease){
		"nobody waited": nil,
		"it was handed to a waiter that renews": func(t *testing.T, forgotten lease) {
			<-forgotten.Done()
			require.ErrorIs(t, forgotten.Err(), fairlock.ErrRevoked)
		},
		"it was handed to a waiter that unlocks": func(t *testing.T, forgotten lease) {
			require.ErrorIs(t, forgotten.Unlock(t.Context()), fairlock.ErrRevoked)
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, ends func(*testing.T, lease)) {
		cfg := fairlock.Config{WaiterTTL: 30 * time.Second}
		a, b, c := s.Client(cfg), s.Client(cfg), s.Client(cfg)
		for _, client := range []*fairlocktest.Client{a, b, c} {
			listen(t, client)
		}
		held := hold(t, a.Mutex("x").Lock)
		var queue []*acquisition
		join := func() {
			for _, client := range []*fairlocktest.Client{b, c} {
				queue = append(queue, begin(t.Context(), client.Mutex("x").Lock))
				pass(time.Millisecond) // it connects again
			}
		}
		pass(300 * time.Millisecond) // no heartbeat meets the end
		if ends != nil {
			join()
		}
		pass(2200 * time.Millisecond)
		takeOver := replica(t, s)
		unlock(t, held)
		takeOver()
		failedOver := time.Now()
		if ends == nil {
			join()
		} else {
			ends(t, queue[0].granted(t))
			queue = queue[1:]
		}
		for _, q := range queue {
			next := q.granted(t)
			assert.LessOrEqual(t, q.at, failedOver.Add(time.Second))
			unlock(t, next)
		}
	})
}
