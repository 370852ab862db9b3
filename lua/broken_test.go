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

func TestALockDoesNotRestWhereTheCallerIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, key := range []string{w.keys.Queue, w.keys.Alive} {
			w.do("FLUSHALL")
			w.do("RPUSH", key, "somebody's")
			require.Error(t, w.operations()["return"](), key)
			assert.Empty(t, w.owner(), key)
		}
	})
}

func TestAForeignTextInTheFenceIsLeftAlone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.do("SET", w.keys.Fence, "somebody's")
		_, err := w.ask(lua.Ask{})
		require.Error(t, err)
		assert.Equal(t, "somebody's", w.do("GET", w.keys.Fence))
		assert.Empty(t, w.owner())
	})
}

func TestForceReleaseWorksOnAFullServer(t *testing.T) {
	w := real(t)
	w.contended()
	fence := w.fence()
	w.do("CONFIG", "SET", "maxmemory", 1)
	w.grants(w.forceRelease(), numbered("c", 2))
	assert.Greater(t, w.fence(), fence)
}

func TestAWrappedErrorIsExplained(t *testing.T) {
	w := memory(t)
	w.do("RPUSH", w.keys.Queue, "somebody's")
	_, err := w.ask(lua.Ask{})
	assert.ErrorContains(t, err, `key "ns:{name}:queue" is not ours`)
}

func TestAReplyThatIsNoListIsAnError(t *testing.T) {
	for name, v := range verbs() {
		for _, bad := range []any{nil, "OK", int64(1), true, 1.5, map[any]any{"a": "b"}} {
			fake := &recorder{answer: bad}
			assert.ErrorIs(t, v.call(t.Context(), lua.Mutex(fake, ns, "name")), lua.ErrReply, "%s: %#v", name, bad)
		}
	}
}

func TestAPulseFitsItsBeat(t *testing.T) {
	two := []token.Token{numbered("c", 1), numbered("c", 2)}
	for _, bad := range [][]any{
		{"9", int64(1), int64(5), []any{}},
		{"9", int64(1), int64(5), []any{"queued"}},
		{"9", int64(1), int64(5), []any{"queued", "queued", "queued"}},
		{"9", int64(3), int64(5), []any{"queued", "queued"}},
		{"9", int64(-1), int64(5), []any{"queued", "queued"}},
		{"9", int64(1), int64(5), []any{"queued", "x"}},
		{"9", int64(1), int64(5), []any{"queued", nil}},
		{"9", int64(1), int64(5), []any{"queued", int64(1)}},
	} {
		_, err := lua.Mutex(&recorder{answer: bad}, ns, "name").Beat(t.Context(), ttl, patience, two)
		assert.ErrorIs(t, err, lua.ErrReply, "%v", bad)
	}
}

func TestTwiceIsOnceForceReleaseWithWaiters(t *testing.T) {
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

func TestABeatThatAdmitsTellsWhenAskingHelpsTheNext(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		w.expire()
		p := w.beat(q[2], q[0], q[1])
		assert.Equal(t, []lua.State{lua.Waiting, lua.Admitted, lua.Waiting}, p.States)
		assert.Equal(t, 2, p.Best)
		assert.Positive(t, p.Helps)
	})
}

func TestRenewRestoresTheHoldersFence(t *testing.T) {
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

func TestWhoReturnsToAFreeLockIsNotOvertaken(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.ticketed(3)
		w.forget(q[0].Token)
		w.expire()
		assert.Equal(t, lua.Granted, w.acquire(q[0]).Outcome)
		assert.Equal(t, texts(q[1].Token, q[2].Token), w.queue())
	})
}

func TestTheBoundDoesNotRefuseWhoReturns(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.ticketed(2)
		w.forget(q[0].Token)
		assert.Equal(t, lua.Queued, w.acquire(lua.Ask{Bound: 2}).Outcome)
		q[0].Bound = 2
		assert.Equal(t, lua.Queued, w.acquire(q[0]).Outcome)
	})
}

func TestEachKeyOfTheQueueIsKeptByItself(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		w.join(1)
		w.do("DEL", w.keys.Alive) // evicted
		w.join(1)
		w.expires("joining after alive was lost")
	})
}

func TestAJoinDoesNotShortenABurial(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.leave(w.token(), time.Hour)
		w.hold()
		w.join(1)
		w.lasts(w.keys.Alive, time.Hour)
	})
}
