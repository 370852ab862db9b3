package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Found by trying to break the scripts.

func TestQuarantine_NotIfTheRequestFails(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, key := range []string{w.keys.Queue, w.keys.Alive} {
			w.do("FLUSHALL")
			w.do("RPUSH", key, "somebody's")
			require.Error(t, w.operations()["return"](), key)
			assert.Empty(t, w.owner(), key)
		}
	})
}

func TestFence_ForeignTextIsLeftAlone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.do("SET", w.keys.Fence, "somebody's")
		_, err := w.ask(lua.Request{})
		require.Error(t, err)
		assert.Equal(t, "somebody's", w.do("GET", w.keys.Fence))
		assert.Empty(t, w.owner())
	})
}

func TestForceRelease_OnAFullServer(t *testing.T) {
	w := real(t)
	w.contended()
	fence := w.fence()
	w.do("CONFIG", "SET", "maxmemory", 1)
	w.grants(w.forceRelease(), numbered("c", 2))
	assert.Greater(t, w.fence(), fence)
}

func TestErrors_WrappedErrorIsExplained(t *testing.T) {
	w := memory(t)
	w.do("RPUSH", w.keys.Queue, "somebody's")
	_, err := w.ask(lua.Request{})
	assert.ErrorContains(t, err, `key "ns:{name}:queue" is not ours`)
}

func TestReply_NotAListIsAnError(t *testing.T) {
	for _, v := range lua.Verbs {
		for _, bad := range []any{nil, "OK", int64(1), true, 1.5, map[any]any{"a": "b"}} {
			fake := &recorder{answer: bad}
			assert.ErrorIs(t, send(t.Context(), lua.Mutex(fake, ns, "name"), v), lua.ErrReply, "%s: %#v", v.Name, bad)
		}
	}
}

func TestHeartbeatReply_FitsTheHeartbeat(t *testing.T) {
	two := []token.Token{numbered("c", 1), numbered("c", 2)}
	for _, bad := range [][]any{
		{int64(9), int64(1), int64(5), []any{}},
		{int64(9), int64(1), int64(5), []any{"queued"}},
		{int64(9), int64(1), int64(5), []any{"queued", "queued", "queued"}},
		{int64(9), int64(3), int64(5), []any{"queued", "queued"}},
		{int64(9), int64(-1), int64(5), []any{"queued", "queued"}},
		{int64(9), int64(1), int64(5), []any{"queued", "x"}},
		{int64(9), int64(1), int64(5), []any{"queued", nil}},
		{int64(9), int64(1), int64(5), []any{"queued", int64(1)}},
	} {
		_, err := lua.Mutex(&recorder{answer: bad}, ns, "name").Heartbeat(t.Context(), ttl, waiterTTL, two)
		assert.ErrorIs(t, err, lua.ErrReply, "%v", bad)
	}
}

func TestForceRelease_IdempotentWithWaiters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		next := w.join(1)[0]
		seen := w.fence()
		for i, released := range []bool{true, false} {
			h, err := w.lock.ForceRelease(t.Context(), ttl, seen)
			require.NoError(t, err)
			assert.Equal(t, released, h.Released, "call %d", i+1)
			assert.Equal(t, next.Text(), w.owner(), "the resend robs the one who was let in")
		}
	})
}

func TestHeartbeat_RetryAfterOfTheNextWaiter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		w.expire()
		p := w.heartbeat(q[2], q[0], q[1])
		assert.Equal(t, []lua.WaiterState{lua.StillQueued, lua.NowGranted, lua.StillQueued}, p.States)
		assert.Equal(t, 2, p.First)
		assert.Positive(t, p.RetryAfter)
	})
}

func TestRenew_RestoresTheHoldersFence(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		fence := w.fence()
		w.do("DEL", w.keys.Fence)
		f, ok := w.renew(holder, ttl, fence)
		assert.True(t, ok)
		assert.Equal(t, fence, f)
		assert.Equal(t, fence, w.fence())
	})
}

func TestTicket_ReturningWaiterOfAFreeLockIsNotOvertaken(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.ticketed(3)
		w.forget(q[0].Token)
		w.expire()
		assert.Equal(t, lua.Granted, w.acquire(q[0]).Outcome)
		assert.Equal(t, texts(q[1].Token, q[2].Token), w.queue())
	})
}

func TestMaxWaiters_AcceptsAReturningWaiter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.ticketed(2)
		w.forget(q[0].Token)
		assert.Equal(t, lua.Queued, w.acquire(lua.Request{MaxWaiters: 2}).Outcome)
		q[0].MaxWaiters = 2
		assert.Equal(t, lua.Queued, w.acquire(q[0]).Outcome)
	})
}

func TestExpiry_EachKeyOfTheQueueIsKeptByItself(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		w.join(1)
		w.do("DEL", w.keys.Alive) // evicted
		w.join(1)
		w.expires("joining after alive was lost")
	})
}

func TestTombstone_NotShortenedByAJoin(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.leave(w.token(), time.Hour)
		w.hold()
		w.join(1)
		w.lasts(w.keys.Alive, time.Hour)
	})
}
