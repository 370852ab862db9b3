package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// ticketed lets waiters join and returns them with their tickets.
func (w *permitWorld) ticketed(weights ...int) []lua.Request {
	w.t.Helper()
	all := make([]lua.Request, len(weights))
	for i, weight := range weights {
		all[i] = lua.Request{Token: w.token(), Weight: weight}
		a := w.acquire(all[i])
		require.Equal(w.t, lua.Queued, a.Outcome)
		all[i].Ticket = a.Ticket
	}
	return all
}

func TestQuarantine_PermitsGoOnInTheOldOrder(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		old := w.hold(1, 3)
		q := w.ticketed(2, 2, 1, 4)
		fence := w.fence()
		w.do("FLUSHALL")
		for i, n := range []int{2, 0, 3, 1} {
			a := w.acquire(q[n])
			assert.Equal(t, lua.Queued, a.Outcome)
			assert.Equal(t, q[n].Ticket, a.Ticket)
			require.Equal(t, map[string]int{lua.Quarantined: 4}, w.holders(), "all of them rest")
			if i == 0 {
				w.lasts(w.keys.Permits, ttl)
				w.lasts(w.keys.Holders, ttl)
			}
		}
		for _, who := range old {
			w.unchanged(func() { w.late(who) }, "the old holders find out")
		}
		w.try(lua.Busy, 1)
		assert.Equal(t, 5, w.acquire(lua.Request{}).Position)
		s := w.inspect(10)
		assert.Equal(t, 4, s.Used)
		assert.Equal(t, lua.Quarantined, s.Holders[0].Token)

		w.do("ZADD", w.keys.Permits, "XX", 1, lua.Quarantined) // the rest is over
		assert.Equal(t, lua.Queued, w.acquire(q[2]).Outcome)
		first, second := q[0].Token, q[1].Token
		w.held(holdings{first: 2, second: 2})
		assert.Greater(t, w.remembered(first), fence)
		assert.Greater(t, w.remembered(second), w.remembered(first))
		w.grants(w.release(second), q[2].Token)
	})
}

func TestQuarantine_OfPermitsLastsOneTTL(t *testing.T) {
	t.Parallel()
	w := memory(t).asSemaphore(4)
	began := w.freeze()
	w.hold(4)
	q := w.ticketed(1, 4)
	w.do("FLUSHALL")
	for i := range 10 { // asking meanwhile neither ends nor prolongs it
		w.mini.SetTime(began.Add(time.Duration(i) * ttl / 10))
		w.acquire(q[i%2])
		w.heartbeat(q[0].Token, q[1].Token)
		require.Equal(t, map[string]int{lua.Quarantined: 4}, w.holders())
	}
	w.mini.SetTime(began.Add(ttl - time.Microsecond))
	require.Equal(t, lua.Queued, w.acquire(q[0]).Outcome)
	w.mini.SetTime(began.Add(ttl))
	require.Equal(t, lua.Granted, w.acquire(q[0]).Outcome)
}

func TestTicket_ReturningWaiterOfFreePermitsIsNotOvertaken(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		a := w.hold(4)
		q := w.ticketed(3, 1, 1)
		w.forget(q[0].Token)
		w.do("HDEL", w.keys.Wants, q[0].Token.Text())
		w.expire(a[0])
		assert.Equal(t, lua.Granted, w.acquire(q[0]).Outcome)
		w.held(holdings{q[0].Token: 3, q[1].Token: 1})
		assert.Equal(t, texts(q[2].Token), w.queue())
	})
}

// The fence alone is lost while somebody holds: nobody has to rest.
func TestQuarantine_NotWhilePermitsAreHeld(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		w.hold(4)
		q := w.ticketed(2)
		w.do("FLUSHALL")
		a := w.hold(3)
		w.do("DEL", w.keys.Fence)
		assert.Equal(t, lua.Queued, w.acquire(q[0]).Outcome)
		w.held(each(3, a...))
		w.grants(w.release(a[0]), []token.Token{q[0].Token}...)
	})
}
