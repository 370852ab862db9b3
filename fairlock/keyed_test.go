package fairlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// turns records who is granted the permits of a keyed semaphore.
type turns struct {
	wg    sync.WaitGroup
	mu    sync.Mutex
	all   []grantOf              // guarded by mu: who was granted permits
	held  map[string]int         // guarded by mu: permits by key; those of all keys by ""
	most  map[string]int         // guarded by mu: the most that were held at once
	times map[string][]time.Time // guarded by mu: of the grants of each key; of all keys by ""
}

// grantOf is a grant of permits to a key, or to one of its callers.
type grantOf struct {
	fence uint64
	key   string
}

func newTurns() *turns {
	return &turns{held: map[string]int{}, most: map[string]int{}, times: map[string][]time.Time{}}
}

func (r *turns) add(ctx context.Context, key string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 {
		r.all = append(r.all, grantOf{leaseIn(ctx).Fence(), key})
	}
	for _, k := range []string{key, ""} {
		r.held[k] += n
		r.most[k] = max(r.most[k], r.held[k])
		if n > 0 {
			r.times[k] = append(r.times[k], time.Now())
		}
	}
}

// count returns what stands for all keys in held or in most.
func (r *turns) count(of map[string]int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return of[""]
}

// order returns who was granted permits since the last call, and begins anew.
func (r *turns) order() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.all = nil }()
	slices.SortFunc(r.all, func(a, b grantOf) int { return cmp.Compare(a.fence, b.fence) })
	var keys []string
	for _, g := range r.all {
		keys = append(keys, g.key)
	}
	return strings.Join(keys, " ")
}

// doer is a Semaphore, also of a key.
type doer interface {
	Do(ctx context.Context, n int, f func(ctx context.Context) error) error
}

// ask begins calls of Do that hold n permits each for d, and returns when they wait or run.
func (r *turns) ask(ctx context.Context, t *testing.T, k doer, key string, calls, n int, d time.Duration) {
	t.Helper()
	for range calls {
		r.wg.Go(func() {
			err := k.Do(ctx, n, func(ctx context.Context) error {
				r.add(ctx, key, n)
				defer r.add(ctx, key, -n)
				select {
				case <-time.After(d):
				case <-ctx.Done():
				}
				return nil
			})
			assert.True(t, err == nil || ctx.Err() != nil || errors.Is(err, fairlock.ErrClosed), "%v", err)
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

// Case 1: a limit in all and one for each key. What is cancelled gives back, and so does what crashes. A busy try says
// why.
//
//fairlock:promise Limits of a keyed semaphore: no more permits are held than there are, and by no key more than its limit; a key at its limit lets others pass
func TestKeyed_Limits(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		gpu := s.Client(fairlock.Config{}).KeyedSemaphore("gpu", 10)
		a := gpu.Key("A", fairlock.WithKeyLimit(4))
		assert.Empty(t, busyBy(t, a))
		ctx, cancel := context.WithCancel(t.Context())
		r := newTurns()
		r.ask(ctx, t, a, "A", 4, 1, time.Hour)
		assert.Equal(t, fairlock.AtKeyLimit, busyBy(t, a))
		r.ask(ctx, t, a, "A", 6, 1, time.Hour)
		assert.Equal(t, "A A A A", r.order())
		assert.Equal(t, fairlock.NotNext, busyBy(t, gpu.Key("A")), "without a limit, others of its key come first")
		for range 3 {
			r.ask(ctx, t, gpu.Key("B"), "B", 1, 1, time.Hour)
			r.ask(ctx, t, gpu.Key("C"), "C", 1, 1, time.Hour)
		}
		assert.Equal(t, "B C B C B C", r.order(), "at once")
		assert.Equal(t, fairlock.Held, busyBy(t, gpu.Key("B")))

		st := s.KeyedSemaphore("gpu", 10).State()
		require.Len(t, st.Keys, 1)
		assert.Equal(t, admin.KeyState{Key: "A", Held: 4, Waiting: 6, Limit: 4, Share: 1, Age: st.Keys[0].Age,
			AtLimit: true}, st.Keys[0])
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
		s.AssertNothingLeft()
	})
}

// MaxWaiters bounds the waiters of all keys, or those of one key: the error says which.
func TestKeyed_QueueFull(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		gpu := s.Client(fairlock.Config{}).KeyedSemaphore("gpu", 1, fairlock.WithMaxWaiters(3))
		lease := hold(t, func(ctx context.Context) (*fairlock.Lease, error) { return gpu.Key("H").Acquire(ctx, 1) })
		a, b := gpu.Key("A", fairlock.WithMaxWaiters(2)), gpu.Key("B", fairlock.WithMaxWaiters(2))
		r := newTurns()
		ctx, cancel := context.WithCancel(t.Context())
		full := func(k fairlock.Semaphore) fairlock.QueueFullError {
			_, err := k.Acquire(t.Context(), 1)
			var full *fairlock.QueueFullError
			require.ErrorAs(t, err, &full)
			return *full
		}
		r.ask(ctx, t, a, "A", 2, 1, 0)
		assert.Equal(t, fairlock.QueueFullError{Waiting: 2, Limit: 2, Key: "A"}, full(a))
		r.ask(ctx, t, b, "B", 1, 1, 0)
		assert.Equal(t, fairlock.QueueFullError{Waiting: 3, Limit: 3}, full(b))
		cancel()
		r.wg.Wait()
		unlock(t, lease)
		pass(time.Second)
		s.AssertNothingLeft()
	})
}

// Case 2: one key alone gets everything, and is granted permits in the same order as by a semaphore.
//
//fairlock:promise Order within a key: first come, first served; one key alone has the order of a semaphore
func TestKeyed_OneKeyIsASemaphore(t *testing.T) {
	bubbles(t, map[uint64]int{1: 1, 2: 3, 3: 8}, func(t *testing.T, s *fairlocktest.Server, seed uint64, permits int) {
		c := s.Client(fairlock.Config{})
		run := func(k doer) string {
			random, r := rand.New(rand.NewPCG(seed, 0)), newTurns()
			for i := range 60 {
				r.ask(t.Context(), t, k, fmt.Sprint(i), 1, 1+random.IntN(permits), time.Duration(random.IntN(40))*time.Millisecond)
				pass(time.Duration(random.IntN(20)) * time.Millisecond)
			}
			r.wg.Wait()
			return r.order()
		}
		want := run(c.Semaphore("x", permits))
		assert.Equal(t, want, run(c.KeyedSemaphore("x", permits).Key("A")))
	})
}

// Case 3: keys take turns. A stream of new keys does not starve one that has waited for long.
//
//fairlock:promise Turns between keys: the next permit goes to the key that holds the least for its share, of several to the one whose turn began first: whoever sends many requests delays the first waiter of another key by one turn
func TestKeyed_Turns(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T, x fairlock.KeyedSemaphore, r *turns){
		"one after another": func(t *testing.T, x fairlock.KeyedSemaphore, r *turns) {
			r.ask(t.Context(), t, x.Key("H"), "H", 1, 1, time.Second)
			r.ask(t.Context(), t, x.Key("A"), "A", 100, 1, 10*time.Millisecond)
			r.ask(t.Context(), t, x.Key("B"), "B", 3, 1, 10*time.Millisecond)
			r.ask(t.Context(), t, x.Key("C"), "C", 3, 1, 10*time.Millisecond)
			r.wg.Wait()
			order := r.order()
			assert.True(t, strings.HasPrefix(order, "H A B C A B C A B C A A A"), order)
		},
		"new keys": func(t *testing.T, x fairlock.KeyedSemaphore, r *turns) {
			r.ask(t.Context(), t, x.Key("A"), "A", 50, 1, 10*time.Millisecond)
			for i := range 40 {
				r.ask(t.Context(), t, x.Key(fmt.Sprint("new", i)), "new", 1, 1, 10*time.Millisecond)
				pass(20 * time.Millisecond)
			}
			order := strings.Fields(r.order())
			r.wg.Wait()
			ofA := len(slices.DeleteFunc(slices.Clone(order), func(key string) bool { return key != "A" }))
			assert.GreaterOrEqual(t, ofA*2, len(order)-1, order)
			assert.GreaterOrEqual(t, len(order)-ofA, 38, "each new key waits for one turn: %v", order)
		},
		"shares": func(t *testing.T, x fairlock.KeyedSemaphore, r *turns) {
			r.ask(t.Context(), t, x.Key("H"), "H", 1, 1, time.Second)
			r.ask(t.Context(), t, x.Key("A", fairlock.WithShare(3)), "A", 9, 1, 10*time.Millisecond)
			r.ask(t.Context(), t, x.Key("B"), "B", 9, 1, 10*time.Millisecond)
			r.wg.Wait()
			assert.Equal(t, "H A A A B A A A B A A A B B B B B B B", r.order())
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, test func(t *testing.T, x fairlock.KeyedSemaphore, r *turns)) {
		test(t, s.Client(fairlock.Config{}).KeyedSemaphore("x", 1), newTurns())
		pass(time.Second)
		s.AssertNothingLeft()
	})
}

// Case 5: a newcomer with nothing held is next, before the backlog of a key that holds something.
//
//fairlock:promise Turns between keys
func TestKeyed_NewcomerBeforeABacklog(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		x, other, r := s.Client(fairlock.Config{}).KeyedSemaphore("x", 2), s.Client(fairlock.Config{}).KeyedSemaphore("x",
			2), newTurns()
		r.ask(ctx, t, x.Key("A"), "A", 1, 1, 2*time.Second)
		r.ask(ctx, t, x.Key("A"), "A", 1000, 1, 3*time.Second)
		r.ask(ctx, t, other.Key("B"), "B", 1, 1, time.Second)
		pass(2*time.Second - time.Millisecond)
		assert.Equal(t, "A A", r.order())
		pass(2 * time.Millisecond)
		assert.Equal(t, "B", r.order())
		pass(time.Second)
		assert.Equal(t, "A", strings.Fields(r.order())[0])
		cancel()
		r.wg.Wait()
		pass(time.Second)
		s.AssertNothingLeft()
	})
}

// Case 6: others pass a key at its limit, for any number of grants. When one of its holders ends, its first waiter is
// next if it holds the least.
//
//fairlock:promise Limits of a keyed semaphore
func TestKeyed_AtItsLimit(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		x, r := s.Client(fairlock.Config{}).KeyedSemaphore("x", 3), newTurns()
		a, b := x.Key("A", fairlock.WithKeyLimit(1)), x.Key("B")
		r.ask(t.Context(), t, a, "A", 1, 1, time.Second)
		r.ask(t.Context(), t, a, "A", 1, 1, time.Second)
		r.ask(t.Context(), t, b, "B", 22, 1, 90*time.Millisecond)
		pass(991 * time.Millisecond)
		assert.Equal(t, "A"+strings.Repeat(" B", 22), r.order(), "two permits serve B without a pause")
		r.ask(t.Context(), t, b, "B", 10, 1, 90*time.Millisecond)
		assert.Equal(t, "B B", r.order())
		pass(10 * time.Millisecond)
		assert.Equal(t, "A", r.order(), "at once, before B, which holds more")
		r.wg.Wait()
		pass(time.Second)
		s.AssertNothingLeft()
	})
}

// Case 7: a wide request is passed by at most one grant of each key that waited before it, once its key holds nothing.
// While its key holds something, keys that hold less pass it.
//
//fairlock:promise A wide request of a key: once its key holds nothing, at most one grant of each key that waited before it comes first
func TestKeyed_Wide(t *testing.T) {
	bubbles(t, map[string]struct {
		before int // permits that the key holds
		want   string
	}{
		"its key holds nothing":   {0, "B C A W A"},
		"its key holds something": {1, "B C A D D A A A A W A"},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c struct {
		before int
		want   string
	},
	) {
		x, r := s.Client(fairlock.Config{}).KeyedSemaphore("x", 4), newTurns()
		r.ask(t.Context(), t, x.Key("W"), "W", c.before, 1, 20*time.Second)
		r.ask(t.Context(), t, x.Key("A"), "A", 4-c.before, 1, time.Second)
		r.ask(t.Context(), t, x.Key("A"), "A", 20, 1, 4*time.Second)
		r.ask(t.Context(), t, x.Key("B"), "B", 1, 1, 2*time.Second)
		r.ask(t.Context(), t, x.Key("C"), "C", 1, 1, 2*time.Second)
		r.ask(t.Context(), t, x.Key("W"), "W", 1, 4, time.Second)
		_ = r.order()
		pass(1500 * time.Millisecond)
		if c.before > 0 { // nobody is granted permits for W until its holder ends, but those who hold less
			for range 2 {
				r.ask(t.Context(), t, x.Key("D"), "D", 1, 1, time.Second)
				pass(2 * time.Second)
			}
		}
		r.wg.Wait()
		order := r.order()
		assert.True(t, strings.HasPrefix(order, c.want), order)
		pass(time.Second)
		s.AssertNothingLeft()
	})
}

// Case 8: a client is killed that has holders and waiters of 50 keys. The others go on when its TTL is over, and one
// WaiterTTL.
//
//fairlock:fault A client is killed that has holders and waiters of many keys of a keyed semaphore: the others go on within one TTL and one WaiterTTL in all
func TestKeyed_KilledClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		dead, c, r, lost := s.Client(fairlock.Config{}), s.Client(fairlock.Config{}), newTurns(), newTurns()
		for i := range 100 {
			lost.ask(ctx, t, dead.KeyedSemaphore("x", 50).Key(fmt.Sprint("dead", i%50)), "dead", 1, 1, time.Hour)
		}
		r.ask(ctx, t, c.KeyedSemaphore("x", 50).Key("A"), "A", 5, 1, time.Second)
		r.ask(ctx, t, c.KeyedSemaphore("x", 50).Key("dead1"), "B", 5, 1, time.Second)
		dead.Crash()
		begin := time.Now()
		r.wg.Wait()
		assert.LessOrEqual(t, time.Since(begin), ttl+bounds.DefaultWaiterTTL+2*time.Second)
		cancel()
		lost.wg.Wait()
		pass(2 * bounds.DefaultWaiterTTL)
		assert.Empty(t, busyBy(t, c.KeyedSemaphore("x", 50).Key("A")))
		s.AssertNothingLeft()
	})
}

// Case 9: a client's heartbeats are lost, or the data, or the lines, turns or holders. Those who come back are granted
// permits in order within their keys, nobody twice, and nothing stays.
//
//fairlock:fault The lines, turns or holders of a keyed semaphore are lost: order within a key among those who are back; nobody is granted twice; nothing stays
func TestKeyed_Losses(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T, s *fairlocktest.Server, c *fairlocktest.Client){
		"heartbeats": func(t *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) {
			c.Link.Cut()
			pass(2 * bounds.DefaultWaiterTTL) // its waiters expire, and come back by their tickets
			c.Link.Mend()
		},
		"data": func(_ *testing.T, s *fairlocktest.Server, _ *fairlocktest.Client) { s.LoseData() },
		"lines": func(t *testing.T, s *fairlocktest.Server, _ *fairlocktest.Client) {
			require.True(t, s.Miniredis.Del("fairlock:{x}:key:lines"))
		},
		"turns": func(t *testing.T, s *fairlocktest.Server, _ *fairlocktest.Client) {
			require.True(t, s.Miniredis.Del("fairlock:{x}:key:turns"))
		},
		"holders": func(t *testing.T, s *fairlocktest.Server, _ *fairlocktest.Client) {
			require.True(t, s.Miniredis.Del("fairlock:{x}:key:holders"))
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, lose func(*testing.T, *fairlocktest.Server,
		*fairlocktest.Client)) {
		var clients [3]*fairlocktest.Client
		for i := range clients {
			clients[i] = s.Client(fairlock.Config{})
		}
		r := newTurns()
		lease := hold(t, func(ctx context.Context) (*fairlock.Lease, error) {
			return clients[2].KeyedSemaphore("x", 2).Key("H").Acquire(ctx, 2)
		})
		for i := range 10 {
			for _, key := range []string{"A", "B", "C"} { // each client has waiters of each key
				who := fmt.Sprintf("%s%d", key, i)
				r.ask(t.Context(), t, clients[i%3].KeyedSemaphore("x", 2).Key(key), who, 1, 1, time.Second)
			}
		}
		pass(time.Second)
		lose(t, s, clients[0])
		pass(2 * interval)
		back := strings.Fields(r.order()) // of those who were there first; only if the lease was lost are there any
		if err := lease.Unlock(t.Context()); err == nil {
			require.Empty(t, back)
		} else {
			require.ErrorIs(t, err, fairlock.ErrLost)
		}
		r.wg.Wait()
		granted := strings.Fields(r.order())
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(slices.Concat(back, granted)))), 30)
		require.Len(t, slices.Concat(back, granted), 30, "nobody is granted permits twice")
		slices.SortStableFunc(granted, func(a, b string) int { return cmp.Compare(a[0], b[0]) })
		require.True(t, slices.IsSorted(granted), granted)
		assert.Equal(t, 2, r.most[""])
		pass(2 * bounds.DefaultWaiterTTL)
		s.AssertNothingLeft()
	})
}

// Case 10: a resize counts for all keys. Two numbers of permits in use are shown. The first waiter of a key speaks for
// its limit.
//
//fairlock:promise Terms of a key travel with the request: the first waiter of a key speaks for its limit and its share; a resize counts for all keys; two numbers in use are shown
func TestKeyed_Resize(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c, small := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		x, r := c.KeyedSemaphore("x", 8), newTurns()
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 20 {
			r.ask(ctx, t, x.Key(fmt.Sprint("k", i%4)), fmt.Sprint("k", i%4), 1, 1, time.Second+time.Duration(i)*time.Millisecond)
		}
		assert.Equal(t, 8, r.count(r.most))
		require.NoError(t, operator(s).Resize(ctx, idX(fairlock.KindKeyedSemaphore), 2))
		pass(1500 * time.Millisecond)
		assert.Equal(t, 2, r.count(r.held))
		_, err := x.Key("k0").Acquire(ctx, 3)
		var capacity *fairlock.CapacityError
		require.ErrorAs(t, err, &capacity)
		assert.Equal(t, fairlock.CapacityError{Want: 3, Have: 2}, *capacity)
		require.NoError(t, operator(s).Resize(ctx, idX(fairlock.KindKeyedSemaphore), 5))
		synctest.Wait()
		assert.Equal(t, 5, r.count(r.held))
		require.NoError(t, operator(s).ResetSize(ctx, idX(fairlock.KindKeyedSemaphore)))
		synctest.Wait()
		assert.Equal(t, 8, r.count(r.held))
		cancel()
		r.wg.Wait()

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		r.ask(ctx, t, x.Key("A"), "A", 3, 1, time.Hour)
		r.ask(ctx, t, small.KeyedSemaphore("x", 3).Key("B"), "B", 1, 1, time.Second)
		r.ask(ctx, t, x.Key("C"), "C", 1, 1, time.Second)
		st := s.KeyedSemaphore("x", 8).State()
		assert.Equal(t, []any{3, []int{8}, 3, 2}, []any{st.Permits, st.Others, st.Used, st.Waiting})

		limited := c.KeyedSemaphore("y", 8)
		r.ask(ctx, t, limited.Key("A"), "A", 2, 1, time.Hour)
		r.ask(ctx, t, limited.Key("A", fairlock.WithKeyLimit(2)), "A", 1, 1, time.Second)
		r.ask(ctx, t, limited.Key("A", fairlock.WithShare(5)), "A", 1, 1, time.Second)
		st = s.KeyedSemaphore("y", 8).State()
		assert.Equal(t, []admin.KeyState{{Key: "A", Held: 2, Waiting: 2, Limit: 2, Share: 1, AtLimit: true,
			Age: st.Keys[0].Age, Others: []int{0}}}, st.Keys)
		cancel()
		r.wg.Wait()
	})
}

// Case 11: with a minimum hold it is a limit for the rate of all starts, and one for those of each key, in any window
// of a second; all is used while there is demand.
//
//fairlock:promise A rate in two levels: with a minimum hold, no more starts in any window of that length than there are permits, nor of one key than its limit; all is used while there is demand
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
					assert.NoError(t, clients[i%3].Key(key).Do(t.Context(), 1, func(ctx context.Context) error {
						r.add(ctx, key, 1)
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

// Resume and the rest of a minimum hold keep the key. A handle of another kind of lock, or of another key, is
// refused.
func TestKeyed_Resume(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var j journal
		x := s.Client(fairlock.Config{Trace: j.trace()}).KeyedSemaphore("x", 3, fairlock.WithMinHold(time.Minute))
		lease := hold(t, func(ctx context.Context) (*fairlock.Lease, error) {
			return x.Key("A", fairlock.WithKeyLimit(1)).Acquire(ctx, 1)
		})
		handle, err := lease.Detach()
		require.NoError(t, err)
		_, err = s.Client(fairlock.Config{}).Semaphore("x", 3).Resume(t.Context(), handle)
		require.ErrorIs(t, err, fairlock.ErrInvalid)
		_, err = x.Key("B").Resume(t.Context(), handle)
		require.ErrorIs(t, err, fairlock.ErrInvalid)
		other := s.Client(fairlock.Config{}).KeyedSemaphore("x", 5, fairlock.WithMinHold(time.Minute))
		lease, err = other.Resume(t.Context(), handle)
		require.NoError(t, err)
		unlock(t, lease)
		st := s.KeyedSemaphore("x", 3).State()
		require.Len(t, st.Holders, 1)
		assert.Equal(t, []any{"A", true, 3}, []any{st.Holders[0].Key, st.Holders[0].Released, st.Permits})
		assert.Equal(t, fairlock.AtKeyLimit, busyBy(t, x.Key("A", fairlock.WithKeyLimit(1))))
		assert.Equal(t, "A", j.of("Granted")[0].info.(fairlock.GrantedInfo).Key)
		taken, err := operator(s).ForceRelease(t.Context(), idX(fairlock.KindKeyedSemaphore))
		require.NoError(t, err)
		assert.True(t, taken)
		s.AssertNothingLeft()
	})
}

// A key of Redis that is somebody else's is an error that names the lock's keys. Redis has written nothing then, so
// nobody has to leave, and the log does not say so.
func TestForeignKey_NobodyLeaves(t *testing.T) {
	cases := map[string]string{"queue": "queue", "lines": "lines", "permits": "permits", "holders": "holders",
		"number": "number"}
	bubbles(t, cases, func(t *testing.T, s *fairlocktest.Server, part, _ string) {
		var log logged
		client := s.Client(fairlock.Config{Logger: log.logger()})
		key := "fairlock:{gpu}:key:" + part
		_, err := s.Miniredis.Lpush(key, "somebody's")
		require.NoError(t, err)
		a := client.KeyedSemaphore("gpu", 2).Key("A")
		for _, acquire := range []func(context.Context, int) (*fairlock.Lease, error){a.TryAcquire, a.Acquire} {
			_, err = acquire(t.Context(), 1)
			require.ErrorContains(t, err, "fairlock:{gpu}:key:*")
			pass(time.Minute)
		}
		assert.Empty(t, log.lines)
		s.Miniredis.Del(key)
		require.NoError(t, client.Close())
	})
}
