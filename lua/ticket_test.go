package lua_test

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// arrival is one join, with the moments around it.
type arrival struct {
	who        token.Token
	sent, told time.Time
	lua.Reply
}

// rush lets n waiters join from many goroutines as fast as they can.
func (w *world) rush(n, goroutines int) []arrival {
	w.t.Helper()
	all := make([]arrival, n)
	var tasks sync.WaitGroup
	for g := range goroutines {
		tasks.Go(func() {
			for i := g; i < n; i += goroutines {
				a := arrival{who: numbered("rush", i), sent: time.Now()}
				var err error
				a.Reply, err = w.ask(lua.Request{Token: a.who, WaiterTTL: time.Hour})
				a.told = time.Now()
				assert.NoError(w.t, err)
				all[i] = a
			}
		})
	}
	tasks.Wait()
	return all
}

// inOrder checks that tickets follow the order of arrival, and that the lock goes through the queue in that order.
func (w *world) inOrder(holder token.Token, all []arrival) {
	w.t.Helper()
	slices.SortFunc(all, func(a, b arrival) int { return cmp.Compare(a.Ticket, b.Ticket) })
	var sent time.Time // the latest of those before
	for i, a := range all {
		require.Equal(w.t, lua.Queued, a.Outcome)
		// Nobody left, so the position said how many had come before: the order in which Redis served them.
		require.Equal(w.t, i+1, a.Position, "ticket %d", a.Ticket)
		require.False(w.t, a.told.Before(sent), "ticket %d was given before a lower one was asked for", a.Ticket)
		if a.sent.After(sent) {
			sent = a.sent
		}
		if i > 0 {
			require.Greater(w.t, a.Ticket, all[i-1].Ticket)
		}
		require.Equal(w.t, uint64(a.Ticket), w.score(w.keys.Queue, a.who), "the ticket told is the one in Redis")
	}
	var fence uint64
	for _, a := range all {
		h := w.release(holder)
		require.True(w.t, h.Released)
		require.Len(w.t, h.Grants, 1)
		require.Equal(w.t, a.who, h.Grants[0].Token, "out of order")
		require.Greater(w.t, h.Grants[0].Fence, fence)
		holder, fence = a.who, h.Grants[0].Fence
	}
}

func TestTicket_FIFOInARush(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		n := 1000
		if w.mini != nil { // which sorts the whole queue for each
			n = 300
		}
		w.inOrder(w.hold(), w.rush(n, 50))
	})
}

func TestTicket_FIFOWithinOneMicrosecond(t *testing.T) {
	t.Parallel()
	w := memory(t)
	w.freeze()
	w.inOrder(w.hold(), w.rush(200, 20))
}

func TestTicket_FIFOWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	w := memory(t)
	now := w.freeze()
	holder := w.token()
	w.acquire(lua.Request{Token: holder, TTL: 10 * day})
	var all []arrival
	for i, step := range []time.Duration{0, -time.Microsecond, -time.Second, 0, time.Microsecond, -time.Hour, time.Minute} {
		w.mini.SetTime(now.Add(step))
		for j := range 5 {
			a := arrival{who: numbered("step", 5*i+j)}
			a.Reply = w.acquire(lua.Request{Token: a.who, WaiterTTL: 10 * day})
			all = append(all, a)
		}
	}
	came := slices.Clone(all)
	w.inOrder(holder, all)
	assert.Equal(t, came, all, "tickets in the order of arrival")
}

// A real server's clock cannot be stepped; to it, a queue that is ahead of the clock is the same.
func TestTicket_AboveTheTail(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		w.join(1)
		tail := uint64(w.now().Add(time.Hour).UnixMicro())
		w.do("ZADD", w.keys.Queue, tail, w.token().Text())
		for i := range 20 {
			assert.Equal(t, lua.Ticket(tail+1)+lua.Ticket(i), w.acquire(lua.Request{}).Ticket)
		}
	})
}

func TestTicket_AboveTheLastFence(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		fence := uint64(w.now().Add(time.Hour).UnixMicro())
		w.do("SET", w.keys.Fence, fence)
		for i := range 20 {
			assert.Equal(t, lua.Ticket(fence+1)+lua.Ticket(i), w.acquire(lua.Request{}).Ticket)
		}
	})
}

func TestTicket_StartsFromTheServersTime(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		before := w.now().UnixMicro()
		ticket := int64(w.acquire(lua.Request{}).Ticket)
		assert.GreaterOrEqual(t, ticket, before)
		assert.LessOrEqual(t, ticket, w.now().UnixMicro())
	})
}

// Tickets are given once: a second question, or a beat, does not move anybody.
func TestTicket_NeverChanges(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		before := w.state().Queue
		for _, who := range q {
			w.acquire(lua.Request{Token: who})
			w.acquire(lua.Request{Token: who, Ticket: 1})
		}
		w.heartbeat(q...)
		assert.Equal(t, before, w.state().Queue)
	})
}

// 2^53 - 1 has 16 digits: the last that a double holds exactly. What Lua prints by itself has 14.
func TestNumbers_OfSixteenDigitsStayExact(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const big = 9_007_199_254_740_901
		holder := w.hold()
		w.do("SET", w.keys.Fence, big)
		first, next := w.token(), w.token()
		a := w.acquire(lua.Request{Token: first})
		assert.Equal(t, lua.Ticket(big+1), a.Ticket)
		assert.Equal(t, uint64(big), a.Fence)
		assert.Equal(t, lua.Ticket(big+2), w.acquire(lua.Request{Token: next}).Ticket)
		assert.Equal(t, uint64(big+2), w.score(w.keys.Queue, next))

		s := w.inspect(10)
		assert.Equal(t, uint64(big), s.Fence)
		assert.Equal(t, uint64(big), s.Holders[0].Fence)
		require.Len(t, s.Waiters, 2)
		assert.Equal(t, []lua.Ticket{big + 1, big + 2}, []lua.Ticket{s.Waiters[0].Ticket, s.Waiters[1].Ticket})
		assert.Equal(t, uint64(big), w.heartbeat(next).Fence)
		f, ok := w.renew(holder, ttl, big)
		assert.True(t, ok)
		assert.Equal(t, uint64(big), f)

		said := w.listen("c")
		granted := w.grants(w.release(holder), first)[0]
		assert.Equal(t, uint64(big+1), granted.Fence)
		messages := said()
		require.Len(t, messages, 1)
		g, err := lua.ParseNotification(messages[0])
		require.NoError(t, err)
		assert.Equal(t, granted, g)
		assert.Equal(t, uint64(big+1), w.acquire(lua.Request{Token: g.Token}).Fence)
	})
}
