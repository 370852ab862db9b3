package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

func TestLeave_RemovesAWaiter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		before := w.state().Queue
		h := w.leave(q[1], 0)
		assert.False(t, h.Released)
		w.grants(h)
		assert.Equal(t, append(before[:1:1], before[2]), w.state().Queue)
		assert.ElementsMatch(t, shorts(q[0], q[2]), w.state().Alive)
		w.leave(q[0], 0)
		w.leave(q[2], 0)
		assert.Empty(t, w.state().Queue)
		assert.Empty(t, w.state().Alive)
	})
}

func TestLeave_ReleasesTheLock(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		holder := w.hold()
		q := w.join(2)
		w.release(holder)
		h := w.leave(q[0], 0)
		assert.True(t, h.Released)
		w.grants(h, q[1])
		assert.True(t, w.leave(q[1], 0).Released)
		assert.Empty(t, w.owner())
		assert.Len(t, said(), 2)
	})
}

func TestLeave_AdmitsTheNextIfTheLockIsFree(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		w.expire()
		h := w.leave(q[0], 0)
		assert.False(t, h.Released)
		w.grants(h, q[1])
		assert.Equal(t, texts(q[2]), w.queue())
	})
}

// An acquire that went astray and arrives after its waiter has left must not be granted a lock nobody waits for.
func TestTombstone_RefusesTheToken(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const bury = time.Hour
		who := w.token()
		w.leave(who, bury)
		for _, ask := range []lua.Request{{Token: who}, {Token: who, Try: true}, {Token: who, Ticket: 1e15}, {Token: who, MaxWaiters: 1}} {
			assert.Equal(t, lua.Busy, w.acquire(ask).Outcome)
			assert.Empty(t, w.owner())
			assert.Empty(t, w.queue())
		}
		other := w.hold()
		assert.Equal(t, lua.Busy, w.acquire(lua.Request{Token: who}).Outcome)
		next := w.join(1)
		assert.Equal(t, lua.Queued, w.acquire(lua.Request{MaxWaiters: 2}).Outcome, "the buried do not count")
		w.grants(w.release(other), next...)
	})
}

func TestTombstone_LastsForItsTTL(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		who := w.token()
		w.leave(who, time.Hour)
		w.lasts(w.keys.Alive, time.Hour)
		w.leave(w.token(), time.Second)
		w.lasts(w.keys.Alive, time.Hour)
		w.leave(w.token(), 0)
		assert.Equal(t, lua.Busy, w.acquire(lua.Request{Token: who}).Outcome)
		w.do("FLUSHALL")

		const short = 50 * time.Millisecond
		began := time.Now()
		w.leave(who, short)
		require.Eventually(t, func() bool { return w.acquire(lua.Request{Token: who}).Outcome == lua.Granted }, 20*time.Second, time.Millisecond)
		assert.GreaterOrEqual(t, time.Since(began), short-5*time.Millisecond)
	})
}

func TestTombstone_OldOnesAreRemoved(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		w.join(1)
		for range 20 {
			w.leave(w.token(), time.Millisecond)
		}
		last := w.now()
		require.Eventually(t, func() bool { return w.now().After(last.Add(2 * time.Millisecond)) }, 20*time.Second, time.Millisecond)
		w.leave(w.token(), time.Hour)
		assert.Len(t, w.state().Alive, 2)
	})
}

func TestInspect_ShowsTheLock(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		s := w.inspect(10)
		assert.WithinDuration(t, w.now(), s.Now, 10*time.Second)
		s.Now = time.Time{}
		assert.Equal(t, lua.Snapshot{Capacity: 1}, s, "idle")

		holder := w.hold()
		q := w.ticketed(5)
		from := w.now()
		s = w.inspect(3)
		assert.WithinRange(t, s.Now, from, w.now())
		assert.Equal(t, w.fence(), s.Fence)
		require.Len(t, s.Holders, 1)
		assert.Equal(t, holder.Text(), s.Holders[0].Token)
		assert.Equal(t, w.fence(), s.Holders[0].Fence)
		assert.Equal(t, []int{1, 1, 1}, []int{s.Used, s.Capacity, s.Holders[0].Weight})
		assert.InDelta(t, ttl.Seconds(), s.Holders[0].Left.Seconds(), 10)
		assert.Equal(t, 5, s.Waiting)
		require.Len(t, s.Waiters, 3)
		for i, waiter := range s.Waiters {
			alive := time.UnixMicro(int64(w.score(w.keys.Alive, q[i].Token)))
			assert.Equal(t, lua.Waiter{Token: q[i].Token.Text(), Ticket: q[i].Ticket, Expires: alive, Weight: 1}, waiter)
		}
		assert.Empty(t, w.inspect(0).Waiters)
		assert.Equal(t, 5, w.inspect(0).Waiting)
		assert.Len(t, w.inspect(1).Waiters, 1)
		assert.Len(t, w.inspect(1000).Waiters, 5)
	})
}

func TestInspect_ShowsAForeignOwner(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.do("SET", w.keys.Lock, "a stranger's")
		s := w.inspect(1)
		assert.Equal(t, []lua.Holder{{Token: "a stranger's", Left: -time.Millisecond, Weight: 1}}, s.Holders)
		w.do("DEL", w.keys.Lock)
		w.acquire(lua.Request{Ticket: 1})
		assert.Equal(t, lua.Quarantined, w.inspect(1).Holders[0].Token)
	})
}

func TestForceRelease_HandsOff(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		old := w.hold()
		fence := w.fence()
		q := w.join(2)
		h := w.forceRelease()
		assert.True(t, h.Released)
		g := w.grants(h, q[0])[0]
		assert.Equal(t, q[0].Text(), w.owner())
		assert.Equal(t, w.fence(), g.Fence)
		assert.Greater(t, g.Fence, fence)
		assert.Len(t, said(), 1)
		_, ok := w.renew(old, ttl, fence)
		assert.False(t, ok)
		assert.False(t, w.release(old).Released)
		assert.Equal(t, q[0].Text(), w.owner())
	})
}

// Whoever has the old fence must be told apart from the next one even if there is no next one yet.
func TestForceRelease_RaisesTheFence(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		fence := w.fence()
		h := w.forceRelease()
		assert.True(t, h.Released)
		w.grants(h)
		assert.Greater(t, w.fence(), fence)
		assert.Empty(t, w.owner())
		raised := w.fence()
		assert.False(t, w.forceRelease().Released, "nobody holds it")
		assert.Equal(t, raised, w.fence())
	})
}

func TestForceRelease_OfAForeignOwner(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.do("SET", w.keys.Lock, "a stranger's")
		q := w.join(1)
		h := w.forceRelease()
		assert.True(t, h.Released)
		w.grants(h, q[0])
	})
}
