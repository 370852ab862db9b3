package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/lua"
)

func TestRenew_Extends(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		fence := w.fence()
		f, ok := w.renew(holder, time.Hour, fence)
		assert.True(t, ok)
		assert.Equal(t, fence, f)
		w.lasts(w.keys.Lock, time.Hour)
		assert.Equal(t, holder.Text(), w.owner())
	})
}

func TestRenew_NeverShortens(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.token()
		w.acquire(lua.Request{Token: holder, TTL: time.Hour})
		_, ok := w.renew(holder, time.Second, 0)
		assert.True(t, ok)
		w.lasts(w.keys.Lock, time.Hour)
		w.acquire(lua.Request{Token: holder, TTL: time.Second})
		w.lasts(w.keys.Lock, time.Hour)
	})
}

func TestAcquire_ByTheOwnerExtends(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		before := w.state()
		assert.Equal(t, lua.Reply{Outcome: lua.Granted, Fence: w.fence()}, w.acquire(lua.Request{Token: holder, TTL: time.Hour}))
		w.lasts(w.keys.Lock, time.Hour)
		assert.Equal(t, before, w.state())
	})
}

func TestRenew_ByAnotherTokenChangesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		_, ok := w.renew(w.token(), ttl, 5)
		assert.False(t, ok, "nobody holds it")
		assert.Empty(t, w.rdb.Keys(t.Context(), "*").Val())

		w.hold()
		q := w.join(1)
		before := w.state()
		for _, fence := range []uint64{0, w.fence(), w.fence() + 1} {
			_, ok = w.renew(q[0], time.Hour, fence)
			assert.False(t, ok)
		}
		assert.Equal(t, before, w.state())
		assert.LessOrEqual(t, w.pttl(w.keys.Lock), ttl)
	})
}

func TestRenew_KeepsTheFenceForADay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		w.do("PEXPIRE", w.keys.Fence, 60_000)
		w.renew(holder, ttl, w.fence())
		w.lasts(w.keys.Fence, day)
	})
}

func TestRenew_RestoresAMissingFence(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		fence := uint64(w.now().Add(time.Hour).UnixMicro()) // as if the clock had stepped back since
		w.do("DEL", w.keys.Fence)
		for range 2 {
			f, ok := w.renew(holder, ttl, fence)
			assert.True(t, ok)
			assert.Equal(t, fence, f)
			assert.Equal(t, fence, w.fence())
			w.lasts(w.keys.Fence, day)
		}
		w.release(holder)
		assert.Greater(t, w.acquire(lua.Request{}).Fence, fence)
	})
}

func TestRenew_TellsTheFence(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		fence := w.fence()
		q := w.join(2)
		f, ok := w.renew(holder, ttl, 0)
		assert.True(t, ok)
		assert.Equal(t, fence, f)
		next := w.grants(w.release(holder), q[0])[0]
		f, ok = w.renew(next.Token, ttl, 0)
		assert.True(t, ok)
		assert.Equal(t, next.Fence, f)
	})
}
