package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// ticketed lets n waiters join and returns them with their tickets.
func (w *world) ticketed(n int) []lua.Request {
	w.t.Helper()
	all := make([]lua.Request, n)
	for i := range all {
		who := w.token()
		all[i] = lua.Request{Token: who, Ticket: w.acquire(lua.Request{Token: who}).Ticket}
	}
	return all
}

// forget drops a waiter, as if it had been dead for a while.
func (w *world) forget(t token.Token) {
	w.t.Helper()
	w.do("ZREM", w.keys.Queue, t.Text())
	w.do("ZREM", w.keys.Alive, short(t))
}

func TestTicket_ReturningWaiterKeepsItsPosition(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		q := w.ticketed(5)
		before := w.state().Queue
		for _, i := range []int{2, 0, 4, 3} {
			w.forget(q[i].Token)
			a := w.acquire(q[i])
			assert.Equal(t, lua.Queued, a.Outcome)
			assert.Equal(t, i+1, a.Position)
			assert.Equal(t, q[i].Ticket, a.Ticket)
			assert.Equal(t, before, w.state().Queue)
		}
		for _, next := range q {
			w.grants(w.release(holder), next.Token)
			holder = next.Token
		}
	})
}

func TestTicket_NewWaiterIsBehindAReturningOne(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.ticketed(3)
		w.do("DEL", w.keys.Queue)
		assert.Equal(t, 1, w.acquire(q[2]).Position)
		late := w.acquire(lua.Request{})
		assert.Greater(t, late.Ticket, q[2].Ticket)
		assert.Equal(t, 1, w.acquire(q[0]).Position)
		assert.Equal(t, 2, w.acquire(q[1]).Position)
		assert.Len(t, w.queue(), 4)
	})
}

func TestQuarantine_GoesOnInTheOldOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		old := w.hold()
		q := w.ticketed(4)
		fence := w.fence()
		w.do("FLUSHALL")

		back := []int{2, 0, 3, 1}
		for i, n := range back {
			a := w.acquire(q[n])
			assert.Equal(t, lua.Queued, a.Outcome)
			assert.Equal(t, q[n].Ticket, a.Ticket)
			assert.Equal(t, lua.Quarantined, w.owner())
			if i == 0 {
				w.lasts(w.keys.Lock, ttl)
			}
		}
		_, ok := w.renew(old, ttl, fence)
		assert.False(t, ok, "the old holder finds out")
		newcomer := w.acquire(lua.Request{})
		assert.Equal(t, 5, newcomer.Position)
		assert.Equal(t, lua.Busy, w.acquire(lua.Request{Try: true}).Outcome)

		w.expire() // the rest is over
		a := w.acquire(lua.Request{Token: q[2].Token, Ticket: q[2].Ticket})
		assert.Equal(t, lua.Queued, a.Outcome)
		assert.Equal(t, q[0].Token.Text(), w.owner())
		for i, who := range q[:3] {
			assert.Greater(t, w.fence(), fence)
			fence = w.fence()
			w.grants(w.release(who.Token), q[i+1].Token)
		}
	})
}

// The one who finds out first asks again while the lock rests: that must neither end nor prolong the rest.
func TestQuarantine_LastsOneTTL(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.ticketed(2)
		w.do("FLUSHALL")
		const rest = 300 * time.Millisecond
		q[1].TTL = rest
		began := time.Now()
		w.acquire(q[1])
		q[0].TTL, q[1].TTL = time.Hour, time.Hour
		w.acquire(q[0]) // from now on it is its turn, however long this test is stopped
		for w.owner() == lua.Quarantined {
			for _, ask := range q {
				w.acquire(ask)
			}
			w.heartbeat(q[0].Token, q[1].Token)
			if left := w.pttl(w.keys.Lock); w.owner() == lua.Quarantined {
				require.LessOrEqual(t, left, rest)
			}
			if time.Since(began) > rest+20*time.Second {
				require.FailNow(t, "the rest does not end")
			}
		}
		assert.GreaterOrEqual(t, time.Since(began), rest-time.Millisecond)
		w.acquire(q[1])
		assert.Equal(t, q[0].Token.Text(), w.owner())
	})
}

func TestQuarantine_NotIfAFenceIsLeft(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.ticketed(2)
		w.do("DEL", w.keys.Queue, w.keys.Alive, w.keys.Lock)
		a := w.acquire(q[1])
		assert.Equal(t, lua.Granted, a.Outcome)
		assert.Equal(t, w.fence(), a.Fence)
	})
}

func TestQuarantine_NotWhileTheLockIsHeld(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.ticketed(1)
		w.do("FLUSHALL")
		holder := w.hold()
		w.do("DEL", w.keys.Fence)
		assert.Equal(t, lua.Queued, w.acquire(q[0]).Outcome)
		assert.Equal(t, holder.Text(), w.owner())
	})
}

func TestQuarantine_NotWithoutATicket(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		w.join(2)
		w.do("FLUSHALL")
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{}).Outcome)
		w.do("FLUSHALL")
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{Try: true}).Outcome)
	})
}

// The fences after the rest are above the tickets that were brought, though the clock of the empty server be behind.
func TestQuarantine_FencesStayAboveTheTickets(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ticket := lua.Ticket(w.now().Add(time.Hour).UnixMicro())
		who := w.token()
		a := w.acquire(lua.Request{Token: who, Ticket: ticket})
		assert.Equal(t, lua.Queued, a.Outcome)
		assert.Equal(t, ticket, a.Ticket)
		assert.GreaterOrEqual(t, a.Fence, uint64(ticket))
		w.lasts(w.keys.Fence, day)
		assert.Greater(t, w.acquire(lua.Request{}).Ticket, ticket)
		w.expire()
		assert.Greater(t, w.acquire(lua.Request{Token: who}).Fence, uint64(ticket))
		w.lasts(w.keys.Fence, day)
	})
}
