package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

func TestForceRelease_TakesAllPermits(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		said := w.listen("c")
		a := w.hold(1, 2)
		q := w.join(2, 1, 2)
		fence := w.fence()
		h := w.forceRelease()
		assert.True(t, h.Released)
		g := w.grants(h, q[0], q[1])
		assert.Greater(t, g[0].Fence, fence+1, "one step is its own")
		assert.Greater(t, g[1].Fence, g[0].Fence)
		w.held(holdings{q[0]: 2, q[1]: 1})
		assert.Len(t, said(), 2)
		for _, who := range a {
			w.unchanged(func() { w.late(who) }, "robbed")
		}
		w.grants(w.release(q[1]), q[2])
		w.held(each(2, q[0], q[2]))
	})
}

// Whoever was granted after what the caller has seen keeps it.
func TestForceRelease_SparesLaterHolders(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		w.hold(1)
		seen := w.fence()
		after := w.hold(2)
		w.join(3)
		force := func() bool {
			h, err := w.lock.ForceRelease(t.Context(), ttl, seen)
			require.NoError(t, err)
			return h.Released
		}
		assert.True(t, force())
		w.held(holdings{after[0]: 2})
		w.unchanged(func() { assert.False(t, force()) }, "a late call")
	})
}

func TestForceRelease_OfIdleOrExpiredPermits(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		assert.False(t, w.forceRelease().Released)
		assert.Empty(t, w.left())
		w.expire(w.hold(1, 2)...)
		assert.False(t, w.forceRelease().Released)
		assert.Equal(t, []string{"fence"}, w.left())
	})
}

func TestInspect_ShowsWeights(t *testing.T) {
	semaphores(t, 6, func(t *testing.T, w *permitWorld) {
		assert.Zero(t, w.inspect(10).Capacity)
		a := w.hold(2)
		a = append(a, w.token())
		w.acquire(lua.Request{Token: a[1], Weight: 1, TTL: 3 * ttl})
		gone := w.hold(1)[0]
		q := w.ticketed(4, 1, 6)
		w.expire(gone)
		for range 2 { // looking changes nothing that can be seen
			s := w.inspect(10)
			assert.InDelta(t, w.now().Unix(), s.Now.Unix(), 10)
			assert.Equal(t, w.fence(), s.Fence)
			assert.Equal(t, 3, s.Used)
			assert.Equal(t, 6, s.Capacity)
			require.Len(t, s.Holders, 2, "the expired one is not listed")
			for i, weight := range []int{2, 1} {
				h := s.Holders[i]
				assert.Equal(t, a[i].Text(), h.Token)
				assert.Equal(t, weight, h.Weight)
				assert.Equal(t, w.remembered(a[i]), h.Fence)
				assert.InDelta(t, []time.Duration{ttl, 3 * ttl}[i].Seconds(), h.Left.Seconds(), 10)
			}
			assert.Equal(t, 3, s.Waiting)
			require.Len(t, s.Waiters, 3)
			for i, weight := range []int{4, 1, 6} {
				assert.Equal(t, q[i].Token.Text(), s.Waiters[i].Token)
				assert.Equal(t, q[i].Ticket, s.Waiters[i].Ticket)
				assert.Equal(t, weight, s.Waiters[i].Weight)
				assert.InDelta(t, s.Now.Add(waiterTTL).Unix(), s.Waiters[i].Expires.Unix(), 10)
			}
		}
		s := w.inspect(1)
		assert.Len(t, s.Holders, 1)
		assert.Len(t, s.Waiters, 1)
		assert.Equal(t, 3, s.Waiting)
		s = w.inspect(0)
		assert.Empty(t, s.Holders)
		assert.Empty(t, s.Waiters)
		assert.Equal(t, 3, s.Used)
	})
}

func TestInspect_ChangesNothing(t *testing.T) {
	semaphores(t, 6, func(t *testing.T, w *permitWorld) {
		a := w.hold(2, 3)
		w.join(6)
		w.expire(a[0])
		w.unchanged(func() { assert.Equal(t, 3, w.inspect(10).Used) }, "inspect")
	})
}

// Most leases may have ended, or few; and what is used may be lost, when as much counts as used as there is.
func TestInspect_CountsLeasesThatHaveNotExpired(t *testing.T) {
	for name, c := range map[string]struct {
		expired int
		used    int
	}{"few expired": {1, 5}, "many expired": {3, 2}, "all expired": {4, 0}} {
		t.Run(name, func(t *testing.T) {
			semaphores(t, 8, func(t *testing.T, w *permitWorld) {
				a := w.hold(1, 1, 2, 2)
				w.expire(a[:c.expired]...)
				assert.Equal(t, c.used, w.inspect(10).Used)
				w.do("HDEL", w.keys.Holders, "used")
				assert.Equal(t, 8, w.inspect(10).Used)
			})
		})
	}
}

func TestInspect_ShowsReadersAndWriters(t *testing.T) {
	rwMutexes(t, func(t *testing.T, w *permitWorld) {
		w.hold(reader, reader)
		w.join(writer, reader)
		s := w.inspect(10)
		assert.Equal(t, 2, s.Used)
		assert.Equal(t, lua.WriterWeight, s.Capacity)
		assert.Equal(t, []int{reader, reader}, []int{s.Holders[0].Weight, s.Holders[1].Weight})
		assert.Equal(t, []int{writer, reader}, []int{s.Waiters[0].Weight, s.Waiters[1].Weight})
		w.forceRelease()
		assert.Equal(t, lua.WriterWeight, w.inspect(1).Used)
	})
}
