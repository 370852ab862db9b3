package fairlock_test

import (
	"context"
	"fmt"
	"maps"
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

// 500 waiters of a killed process are queued before a living one, and then the key with their times, or the one with
// the queue's clock, is lost: they expire together, and the living one holds the lock within 10 s.
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
// primary. Then the waiters are served in their order, also one that was handed the lock by the lost release.
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

// A process is in a crash loop: fifty times a second it joins the queue, and dies. The queue has no more of its waiters
// than joined within one WaiterTTL, positions are right, and the living waiter before them is granted the lock at once.
//
//fairlock:fault A process is in a crash loop and joins each time: the queue stays as long as what joins in one WaiterTTL; a living head has its turn at once
func TestWaiters_CrashLoop(t *testing.T) {
	const waiterTTL, pause = 6 * time.Second, time.Second / 50
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var j journal
		x, living := s.Mutex("x"), s.Client(fairlock.Config{Name: "living", Trace: j.trace()})
		listen(t, living)
		held := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		head := begin(t.Context(), living.Mutex("x").Lock)
		for i := range int(3 * waiterTTL / pause) {
			pass(pause)
			x.CrashQueued("crashed", waiterTTL)
			if i%50 == 0 {
				st := x.State()
				require.LessOrEqual(t, st.Waiting, 1+int(waiterTTL/pause))
				require.Equal(t, "living", st.Waiters[0].Client)
			}
		}
		last := begin(t.Context(), living.Mutex("x").Lock)
		joined := j.of("Queued")
		assert.Equal(t, 2+int(waiterTTL/pause), joined[len(joined)-1].info.(fairlock.QueuedInfo).Position)
		at := time.Now()
		unlock(t, held)
		lease := head.granted(t)
		assert.Equal(t, at, head.at)
		unlock(t, lease)
		last.granted(t)
		assert.LessOrEqual(t, last.at.Sub(at), waiterTTL+interval)
	})
}

// With a FenceTTL that is shorter than what a queue is kept for, the number lasts longer than the queue all the same.
// Eleven minutes after the last waiter has expired, nothing but the number is left, and FenceTTL later nothing.
//
//fairlock:promise Nothing stays
func TestExpiry_ShortFenceTTL(t *testing.T) {
	const fenceTTL, waiterTTL, kept = 10 * time.Second, 30 * time.Second, 11 * time.Minute
	for end, test := range map[string]struct {
		ends func(t *testing.T, holder *fairlock.Lease, waiter *acquisition, cancel func(), clients []*fairlocktest.Client)
		left []string // until ten minutes after the waiter has expired, at least
	}{
		"all crash": {func(_ *testing.T, _ *fairlock.Lease, _ *acquisition, _ func(), clients []*fairlocktest.Client) {
			for _, c := range clients {
				c.Crash()
			}
		}, []string{"number", "queue"}},
		"the waiter gives up": {func(t *testing.T, holder *fairlock.Lease, _ *acquisition, cancel func(),
			_ []*fairlocktest.Client) {
			cancel()
			synctest.Wait()
			unlock(t, holder)
		}, []string{"number"}},
		"all unlock": {func(t *testing.T, holder *fairlock.Lease, waiter *acquisition, _ func(), _ []*fairlocktest.Client) {
			unlock(t, holder)
			unlock(t, waiter.granted(t))
		}, nil},
	} {
		t.Run(end, func(t *testing.T) {
			bubbleForKinds(t, []string{"mutex", "semaphore", "rwmutex"},
				func(t *testing.T, s *fairlocktest.Server, of func(*fairlocktest.Client) kind) {
					cfg := fairlock.Config{FenceTTL: fenceTTL, WaiterTTL: waiterTTL}
					clients := []*fairlocktest.Client{s.Client(cfg), s.Client(cfg)}
					holder := hold(t, of(clients[0]).all)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					waiter := begin(ctx, of(clients[1]).all)
					pass(time.Minute)
					test.ends(t, holder, waiter, cancel, clients)
					synctest.Wait()
					left := func() (all []string) {
						s.StepClock(0) // keys expire
						for _, key := range s.Miniredis.Keys() {
							all = append(all, key[strings.LastIndexByte(key, ':')+1:])
						}
						return all
					}
					// the last heartbeat was sent within 10 s, and has the keys last for up to a minute less
					const last = 10*time.Second + time.Minute
					pass(waiterTTL + kept - last)
					assert.Subset(t, left(), test.left)
					pass(last)
					assert.Subset(t, []string{"number"}, left())
					pass(fenceTTL)
					assert.Empty(t, left())
				})
		})
	}
}
