package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/lua"
)

func TestTry_LeavesNoTraceWhenBusy(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		keys := func() any { return w.rdb.Keys(t.Context(), "*").Val() }
		before, had := w.state(), keys()
		assert.Equal(t, lua.Reply{Outcome: lua.Busy, Holder: holder.Text()}, w.acquire(lua.Request{Try: true}))
		assert.Equal(t, before, w.state())
		assert.ElementsMatch(t, had, keys())

		w.join(2)
		before = w.state()
		assert.Equal(t, lua.Busy, w.acquire(lua.Request{Try: true}).Outcome)
		assert.Equal(t, before, w.state())
	})
}

func TestTry_DoesNotOvertake(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		w.kill(q[0])
		w.expire()
		assert.Equal(t, lua.Busy, w.acquire(lua.Request{Try: true}).Outcome)
		assert.Equal(t, q[1].Text(), w.owner())
		assert.Equal(t, texts(q[2]), w.queue())
	})
}

func TestTry_AcquiresIfAllWaitersHaveExpired(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		who := w.token()
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: who, Try: true}).Outcome)
		w.lasts(w.keys.Lock, ttl)
		w.kill(w.join(3)...)
		w.expire()
		a := w.acquire(lua.Request{Token: who, Try: true})
		assert.Equal(t, lua.Granted, a.Outcome)
		assert.Equal(t, state{Lock: who.Text(), Fence: w.state().Fence, Queue: w.state().Queue, Alive: []string{}}, w.state())
		assert.Empty(t, w.queue())
	})
}

func TestMaxWaiters_CountsWaitersThatHaveNotExpired(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(4)
		assert.Equal(t, lua.Reply{Outcome: lua.Full, Position: 4}, w.acquire(lua.Request{MaxWaiters: 4}))
		assert.Equal(t, lua.Reply{Outcome: lua.Full, Position: 4}, w.acquire(lua.Request{MaxWaiters: 1}))
		w.kill(q[1], q[2])
		before := w.state()
		assert.Equal(t, lua.Reply{Outcome: lua.Full, Position: 2}, w.acquire(lua.Request{MaxWaiters: 2}))
		assert.Equal(t, lua.Reply{Outcome: lua.Full, Position: 2}, w.acquire(lua.Request{MaxWaiters: 1}))
		assert.Equal(t, before, w.state(), "who is refused leaves nothing")
		a := w.acquire(lua.Request{MaxWaiters: 3})
		assert.Equal(t, lua.Queued, a.Outcome)
		assert.Equal(t, 5, a.Position)
		assert.Equal(t, lua.Reply{Outcome: lua.Full, Position: 3}, w.acquire(lua.Request{MaxWaiters: 3}))
	})
}

func TestMaxWaiters_AcceptsAQueuedWaiter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		for i, who := range w.join(3) {
			a := w.acquire(lua.Request{Token: who, MaxWaiters: 1})
			assert.Equal(t, lua.Queued, a.Outcome)
			assert.Equal(t, i+1, a.Position)
		}
	})
}

func TestMaxWaiters_AcceptsIfTheLockIsFree(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.token()
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: holder, MaxWaiters: 1}).Outcome)
		assert.Equal(t, lua.Queued, w.acquire(lua.Request{MaxWaiters: 1}).Outcome)
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: holder, MaxWaiters: 1}).Outcome, "nor the owner")
	})
}

func TestMaxWaiters_ZeroIsUnlimited(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		w.crowd(5000, w.now().Add(time.Hour))
		a := w.acquire(lua.Request{MaxWaiters: 0})
		assert.Equal(t, lua.Queued, a.Outcome)
		assert.Equal(t, 5001, a.Position)
	})
}

// between asks twice what a lease still lasts, and in between something else: that must lie between.
func (w *world) between(key string, helps func() time.Duration) {
	w.t.Helper()
	before := w.pttl(key)
	d := helps()
	assert.LessOrEqual(w.t, d, before+time.Millisecond)
	assert.Greater(w.t, d, w.pttl(key), "asking earlier than that cannot help")
}

func TestRetryAfter_OfTheHead(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		first := w.token()
		w.between(w.keys.Lock, func() time.Duration { return w.acquire(lua.Request{Token: first}).RetryAfter })
		w.between(w.keys.Lock, func() time.Duration { return w.heartbeat(first).RetryAfter })
	})
}

func TestRetryAfter_OfTheSecond(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.acquire(lua.Request{TTL: waiterTTL / 2})
		first, second := w.token(), w.token()
		asked := time.Now()
		w.acquire(lua.Request{Token: first})
		for range 2 {
			for _, d := range []time.Duration{w.acquire(lua.Request{Token: second}).RetryAfter, w.heartbeat(second).RetryAfter} {
				assert.LessOrEqual(t, d, waiterTTL+time.Millisecond)
				assert.Greater(t, d, waiterTTL-time.Since(asked)-time.Millisecond)
			}
		}
		w.kill(first)
		w.between(w.keys.Lock, func() time.Duration { return w.acquire(lua.Request{Token: second}).RetryAfter })
		w.between(w.keys.Lock, func() time.Duration { return w.heartbeat(second).RetryAfter })
	})
}

// The others are woken, or told by a beat; only if the head has missed its beats they are told, too.
func TestRetryAfter_OfTheThirdIfTheHeadMissesHeartbeats(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		assert.Negative(t, w.acquire(lua.Request{Token: q[2]}).RetryAfter)
		w.kill(q[0], q[1])
		w.between(w.keys.Lock, func() time.Duration { return w.acquire(lua.Request{Token: q[2]}).RetryAfter })
	})
}

func TestRetryAfter_UnknownIfTheLeaseHasNoEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.do("SET", w.keys.Lock, "a stranger's, for ever")
		q := w.join(2)
		for _, who := range q {
			assert.Negative(t, w.acquire(lua.Request{Token: who}).RetryAfter)
			assert.Negative(t, w.heartbeat(who).RetryAfter)
		}
	})
}
