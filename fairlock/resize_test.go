package fairlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A request with the smaller number waits at the head, before all others, until so few are held; State tells both
// numbers.
//
//fairlock:promise Two numbers of permits in use, as during a deploy: no error; at most the larger one is held, never the sum
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

// All permits are held for an hour. A first waiter that wants more than there are now has its error within a heartbeat,
// and those behind it keep their places.
//
//fairlock:promise Shrinking a semaphore: holders finish; the first waiter, if it wants more than there are, gets a CapacityError by its next heartbeat, and those behind it keep their places
func TestResize_RefusesTheHead(t *testing.T) {
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
