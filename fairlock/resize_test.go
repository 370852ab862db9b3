package fairlock_test

import (
	"context"
	"fmt"
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
	"github.com/fairlock/fairlock-go/internal/script"
)

// load is what workers of many clients do with a semaphore.
type load struct {
	mu   sync.Mutex
	errs []error // guarded by mu: of Acquire
	wg   sync.WaitGroup
}

// works has a worker acquire 1 to most permits again and again, until ctx ends.
func (l *load) works(ctx context.Context, s fairlock.Semaphore, most int) {
	l.wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			lease, err := s.Acquire(ctx, 1+i%most)
			if err != nil {
				if ctx.Err() == nil {
					l.mu.Lock()
					l.errs = append(l.errs, err)
					l.mu.Unlock()
				}
				return
			}
			time.Sleep(time.Duration(10+i%5) * 10 * time.Millisecond)
			_ = lease.Unlock(ctx)
		}
	})
}

// watch lets time pass, and checks that no permit is granted while as many are held as there are, or more: *used were
// held before. It returns the most that were.
func watch(t *testing.T, s *fairlocktest.Server, d time.Duration, permits int, used *int) (most int) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		st := s.Semaphore("x", permits).State()
		require.LessOrEqual(t, st.Used, max(permits, *used), "at %v", st.At)
		*used, most = st.Used, max(most, st.Used)
	}
	return most
}

// A semaphore is resized under load, with clients that bring different numbers and some that crash: no more permits are
// held than there are, or were before.
//
//fairlock:promise Resize: from then on the number counts for every client, whatever number it brings; no more are held than there are, but for holders from before there were fewer
func TestResize_UnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const ttl = time.Second
		ctx, cancel := context.WithCancel(t.Context())
		operator, x := operator(s), idX(fairlock.KindSemaphore)
		require.NoError(t, operator.Resize(ctx, x, 5))
		var l load
		defer func() { // also when it fails
			cancel()
			l.wg.Wait()
		}()
		var clients []*fairlocktest.Client
		for i := range 8 {
			c := s.Client(fairlock.Config{Name: fmt.Sprint("c", i), TTL: ttl})
			clients = append(clients, c)
			for range 2 {
				l.works(ctx, c.Semaphore("x", 5+i%2), 2)
			}
		}
		used := 0
		for i, permits := range []int{5, 8, 2, 5} {
			require.NoError(t, operator.Resize(ctx, x, permits))
			go clients[i].Crash()
			watch(t, s, ttl+200*time.Millisecond, permits, &used)
			assert.Equal(t, permits, watch(t, s, 2*time.Second, permits, &used), "all are used again")
			assert.Equal(t, permits, s.Semaphore("x", 1).State().Permits)
		}
		cancel()
		l.wg.Wait()
		for _, err := range l.errs {
			require.ErrorIs(t, err, fairlock.ErrClosed) // of those that have crashed
		}
	})
}

// A rolling deploy of a service that brings 6 permits, not 5: nobody gets an error, and never more than 6 are held.
//
//fairlock:promise Two numbers of permits in use, as during a deploy: no error; at most the larger one is held, never the sum
func TestSemaphore_RollingDeploy(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var l load
		var stop []context.CancelFunc
		end := func() {
			for _, stop := range stop {
				stop()
			}
			l.wg.Wait()
		}
		defer end() // also when it fails
		start := func(permits int) {
			c := s.Client(fairlock.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			for range 4 {
				l.works(ctx, c.Semaphore("x", permits), 1)
			}
			stop = append(stop, cancel)
		}
		for range 4 {
			start(5)
		}
		used := 0
		assert.Equal(t, 5, watch(t, s, time.Second/2, 5, &used))
		for i := range 4 {
			start(6)
			assert.GreaterOrEqual(t, watch(t, s, time.Second/2, 6, &used), 5)
			stop[i]()
		}
		assert.Equal(t, 6, watch(t, s, time.Second/2, 6, &used))
		end()
		require.Empty(t, l.errs)
	})
}

// A request with the smaller number waits at the head, before all others, until so few are held; State tells both
// numbers.
func TestSemaphore_ASmallerNumberAtTheHead(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := s.Client(fairlock.Config{})
		eight, three := c.Semaphore("x", 8), c.Semaphore("x", 3)
		var held []*fairlock.Lease
		for range 4 {
			held = append(held, hold(t, permits(eight, 1)))
		}
		small, behind := begin(t.Context(), permits(three, 1)), begin(t.Context(), permits(eight, 1))
		pass(interval)
		st := s.Semaphore("x", 8).State()
		assert.Equal(t, []any{3, []int{8}, 4}, []any{st.Permits, st.Others, st.Used})
		unlock(t, held[0])
		require.True(t, small.pending() && behind.pending())
		unlock(t, held[1])
		small.granted(t)
		behind.granted(t)
		st = s.Semaphore("x", 8).State()
		assert.Equal(t, []any{8, []int{3}, 4}, []any{st.Permits, st.Others, st.Used})
	})
}

// Growing admits at once, in order, who fits, and needs no request of a waiter.
//
//fairlock:promise Growing a semaphore: admits those that fit, in order, in its one request
func TestResize_GrowingAdmitsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		other, client := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		operator := admin.New(other.Redis, "")
		sent, asked := record(other), record(client)
		sem := client.Semaphore("x", 5)
		hold(t, permits(sem, 5))
		two, three, one := begin(t.Context(), permits(sem, 2)), begin(t.Context(), permits(sem, 3)), begin(t.Context(),
			permits(sem, 1))
		pass(1500 * time.Millisecond)
		sent.reset()
		asked.reset()
		require.NoError(t, operator.Resize(t.Context(), idX(fairlock.KindSemaphore), 8))
		synctest.Wait()
		two.granted(t)
		require.True(t, three.pending())
		require.True(t, one.pending(), "nobody overtakes")
		require.Len(t, sent.requests(), 1)
		require.Empty(t, asked.requests())
		require.NoError(t, operator.Resize(t.Context(), idX(fairlock.KindSemaphore), 11))
		synctest.Wait()
		three.granted(t)
		one.granted(t)
	})
}

// Growing admits all who fit, also more than one script does.
func TestResize_GrowingAdmitsMany(t *testing.T) {
	const n = 200
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{TTL: time.Hour})
		sem := client.Semaphore("x", 1)
		hold(t, permits(sem, 1))
		var waiters []*acquisition
		for range n {
			waiters = append(waiters, begin(t.Context(), permits(sem, 1)))
		}
		at := time.Now()
		require.NoError(t, operator(s).Resize(t.Context(), idX(fairlock.KindSemaphore), n+1))
		for _, w := range waiters {
			w.granted(t)
			require.Equal(t, at, w.at)
		}
	})
}

// All permits are held for an hour. A first waiter that wants more than there are now has its error within a heartbeat,
// and those behind it keep their places.
//
//fairlock:promise Shrinking a semaphore: holders finish; the first waiter, if it wants more than there are, gets a CapacityError by its next heartbeat, and those behind it keep their places
func TestResize_ShrinkingRefusesTheFirstWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, other := s.Client(fairlock.Config{TTL: time.Hour}), s.Client(fairlock.Config{Name: "other"})
		sem := client.Semaphore("x", 5)
		first, one := hold(t, permits(sem, 4)), hold(t, permits(sem, 1))
		four := begin(t.Context(), permits(sem, 4))
		behind := begin(t.Context(), permits(other.Semaphore("x", 5), 2))
		three := begin(t.Context(), permits(other.Semaphore("x", 5), 3))
		last := begin(t.Context(), permits(client.Semaphore("x", 5), 1))
		pass(1300 * time.Millisecond)
		require.NoError(t, operator(s).Resize(t.Context(), idX(fairlock.KindSemaphore), 2))
		pass(interval)
		require.False(t, four.pending())
		var e *fairlock.CapacityError
		require.ErrorAs(t, four.err, &e)
		assert.Equal(t, fairlock.CapacityError{Want: 4, Have: 2}, *e)
		require.True(t, behind.pending() && three.pending() && last.pending())
		s.Semaphore("x", 5).AssertQueue("other", "other", client.Name())
		_, err := sem.TryAcquire(t.Context(), 3)
		require.ErrorAs(t, err, &e)
		assert.Equal(t, fairlock.CapacityError{Want: 3, Have: 2}, *e)
		unlock(t, first)
		require.True(t, behind.pending())
		unlock(t, one)
		unlock(t, behind.granted(t))
		pass(interval)
		require.False(t, three.pending())
		require.ErrorAs(t, three.err, &e)
		unlock(t, last.granted(t))
		assert.Equal(t, 2, s.Semaphore("x", 5).State().Permits, "also when it is idle")
	})
}

// Once it is reset, or Redis has lost the number, the numbers that clients bring count again.
//
//fairlock:promise A resized number: counts until ResetSize, or until Redis loses it
func TestResize_Ends(t *testing.T) {
	bubbles(t, map[string]func(*testing.T, *fairlocktest.Server){
		"reset": func(t *testing.T, s *fairlocktest.Server) {
			require.NoError(t, operator(s).ResetSize(t.Context(), idX(fairlock.KindSemaphore)))
			require.NoError(t, operator(s).ResetSize(t.Context(), idX(fairlock.KindSemaphore)), "there is nothing to reset")
		},
		"its key is lost": func(t *testing.T, s *fairlocktest.Server) {
			require.True(t, s.Miniredis.Del(script.KeysOf("semaphore", bounds.DefaultNamespace, "x").Part("resized")))
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, end func(*testing.T, *fairlocktest.Server)) {
		c := s.Client(fairlock.Config{})
		five, six := c.Semaphore("x", 5), c.Semaphore("x", 6)
		require.NoError(t, operator(s).Resize(t.Context(), idX(fairlock.KindSemaphore), 3))
		pass(24 * time.Hour)
		held := hold(t, permits(five, 2))
		next := begin(t.Context(), permits(six, 4))
		var e *fairlock.CapacityError
		pass(interval)
		require.False(t, next.pending())
		require.ErrorAs(t, next.err, &e)
		require.EqualError(t, e, "semaphore was resized to 3 permits, 4 are wanted")
		end(t, s)
		unlock(t, hold(t, permits(six, 4)))
		unlock(t, hold(t, permits(five, 3)))
		unlock(t, held)
		assert.Zero(t, s.Semaphore("x", 5).State().Permits)
		_, err := five.Acquire(t.Context(), 6)
		require.ErrorIs(t, err, fairlock.ErrInvalid)
	})
}
