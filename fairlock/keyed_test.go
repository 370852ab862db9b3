package fairlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// turns records the grants of a keyed semaphore's permits.
type turns struct {
	wg    sync.WaitGroup
	mu    sync.Mutex
	held  map[string]int         // guarded by mu: permits by key; those of all keys by ""
	most  map[string]int         // guarded by mu: the most that were held at once
	times map[string][]time.Time // guarded by mu: of the grants of each key; of all keys by ""
}

func newTurns() *turns {
	return &turns{held: map[string]int{}, most: map[string]int{}, times: map[string][]time.Time{}}
}

func (r *turns) add(key string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range []string{key, ""} {
		r.held[k] += n
		r.most[k] = max(r.most[k], r.held[k])
		if n > 0 {
			r.times[k] = append(r.times[k], time.Now())
		}
	}
}

// ask begins calls of Do that hold a permit each until ctx ends, and returns when they wait or run.
func (r *turns) ask(ctx context.Context, t *testing.T, k fairlock.Semaphore, key string, calls int) {
	t.Helper()
	for range calls {
		r.wg.Go(func() {
			err := k.Do(ctx, 1, func(ctx context.Context) error {
				r.add(key, 1)
				defer r.add(key, -1)
				<-ctx.Done()
				return nil
			})
			assert.True(t, err == nil || ctx.Err() != nil, "%v", err)
		})
		synctest.Wait()
	}
}

// busyBy returns why a try is refused; "": it is not.
func busyBy(t *testing.T, k fairlock.Semaphore) fairlock.BusyReason {
	t.Helper()
	lease, err := k.TryAcquire(t.Context(), 1)
	if err == nil {
		unlock(t, lease)
		return ""
	}
	var held *fairlock.HeldError
	require.ErrorAs(t, err, &held)
	require.ErrorIs(t, err, fairlock.ErrBusy)
	return held.Reason
}

// There is a limit in all, and one for each key. Cancelled and crashed holders give their permits back. A busy try says
// why, and a full queue as well.
//
//fairlock:promise Limits of a keyed semaphore: no more permits are held than there are, and by no key more than its limit; a key at its limit lets others pass
func TestKeyed_Do(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		gpu := s.Client(fairlock.Config{}).KeyedSemaphore("gpu", 10, fairlock.WithMaxWaiters(7))
		a := gpu.Key("A", fairlock.WithKeyLimit(4), fairlock.WithMaxWaiters(6))
		assert.Empty(t, busyBy(t, a))
		ctx, cancel := context.WithCancel(t.Context())
		r := newTurns()
		r.ask(ctx, t, a, "A", 4)
		assert.Equal(t, fairlock.AtKeyLimit, busyBy(t, a))
		r.ask(ctx, t, a, "A", 6)
		assert.Equal(t, fairlock.NotNext, busyBy(t, gpu.Key("A")), "without a limit, others of its key come first")
		r.ask(ctx, t, gpu.Key("B"), "B", 3)
		r.ask(ctx, t, gpu.Key("C"), "C", 3)
		assert.Equal(t, fairlock.Held, busyBy(t, gpu.Key("B")))
		full := func(k fairlock.Semaphore) (full *fairlock.QueueFullError) {
			_, err := k.Acquire(t.Context(), 1)
			require.ErrorAs(t, err, &full)
			return full
		}
		assert.Equal(t, &fairlock.QueueFullError{Waiting: 6, Limit: 6, Key: "A"}, full(a))
		r.ask(ctx, t, gpu.Key("B"), "B", 1)
		assert.Equal(t, &fairlock.QueueFullError{Waiting: 7, Limit: 7}, full(gpu.Key("B")))

		st := s.KeyedSemaphore("gpu", 10).State()
		assert.Equal(t, admin.KeyState{Key: "A", Held: 4, Waiting: 6, Limit: 4, Share: 1, Age: st.Keys[1].Age,
			AtLimit: true}, st.Keys[1])
		assert.Equal(t, []string{"A", "A"}, []string{st.Holders[0].Key, st.Waiters[0].Key})
		cancel()
		r.wg.Wait()
		assert.Equal(t, map[string]int{"A": 4, "B": 3, "C": 3, "": 10}, r.most)
		pass(time.Second)
		s.AssertNothingLeft()

		s.KeyedSemaphore("gpu", 10).Key("A").CrashHolding("dead", ttl)
		assert.Equal(t, fairlock.AtKeyLimit, busyBy(t, gpu.Key("A", fairlock.WithKeyLimit(1))))
		pass(ttl + time.Millisecond)
		assert.Empty(t, busyBy(t, gpu.Key("A", fairlock.WithKeyLimit(1))))
	})
}

// Case 11: with a minimum hold it limits the rate of all starts, and of those of each key, in any window of a second.
// The whole limit is used while there is demand.
//
//fairlock:promise A rate in two levels: with a minimum hold, no more starts in any window of that length than there are permits, nor of one key than its limit; all is used while there is demand
//fairlock:promise A minimum hold
func TestKeyed_Rate(t *testing.T) {
	bubbles(t, map[string]int{"all keys": 8, "one key": 1},
		func(t *testing.T, s *fairlocktest.Server, _ string, keys int) {
			const permits, limit, seconds = 50, 10, 4
			r := newTurns()
			var clients [3]fairlock.KeyedSemaphore
			for i := range clients {
				clients[i] = s.Client(fairlock.Config{}).KeyedSemaphore("api", permits, fairlock.WithMinHold(time.Second),
					fairlock.WithKeyLimit(limit))
			}
			for i := range keys * limit * (seconds + 1) {
				key := fmt.Sprint("k", i%keys)
				r.wg.Go(func() {
					assert.NoError(t, clients[i%3].Key(key).Do(t.Context(), 1, func(context.Context) error {
						r.add(key, 1)
						return nil
					}))
				})
				if i%10 == 0 {
					pass(time.Millisecond)
				}
			}
			begin := time.Now()
			r.wg.Wait()
			rate := min(permits, keys*limit)
			for key, times := range r.times {
				most := limit
				if key == "" {
					most = permits
				}
				slices.SortFunc(times, time.Time.Compare)
				for i := most; i < len(times); i++ {
					require.GreaterOrEqual(t, times[i].Sub(times[i-most]), time.Second, "%s %d", key, i)
				}
			}
			took, want := r.times[""][len(r.times[""])-1].Sub(begin), time.Duration(len(r.times[""])/rate)*time.Second
			assert.LessOrEqual(t, took, want+want/10+time.Second/2)
			pass(2 * time.Second)
			s.AssertNothingLeft()
		})
}
