package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

func TestPermits_EachHolderKeepsItsFence(t *testing.T) {
	semaphores(t, 5, func(t *testing.T, w *permitWorld) {
		fences := map[token.Token]uint64{}
		var last uint64
		note := func(who token.Token, f uint64) {
			require.Greater(t, f, last)
			fences[who], last = f, f
		}
		kept := func(about string) {
			for who, want := range fences {
				for _, claimed := range []uint64{0, want} {
					f, ok := w.renew(who, ttl, claimed)
					require.True(t, ok, about)
					require.Equal(t, want, f, about)
				}
				require.Equal(t, lua.Reply{Outcome: lua.Granted, Fence: want}, w.acquire(lua.Request{Token: who}), about)
			}
			require.Equal(t, last, w.fence(), "%s: the last one stands", about)
		}
		a := []token.Token{w.token(), w.token(), w.token()}
		for i, weight := range []int{1, 2, 2} {
			note(a[i], w.acquire(lua.Request{Token: a[i], Weight: weight}).Fence)
			kept("acquired")
		}
		q := w.join(1, 1, 3)
		kept("with a queue")
		delete(fences, a[1])
		for _, g := range w.grants(w.release(a[1]), q[0], q[1]) {
			note(g.Token, g.Fence)
		}
		kept("handed over")
		w.expire(a[0])
		delete(fences, a[0])
		w.try(lua.Busy, 1)
		kept("one expired")
		w.do("DEL", w.keys.Fence) // as if it had not been kept alive
		f, ok := w.renew(q[1], ttl, fences[q[1]])
		assert.True(t, ok)
		assert.Equal(t, fences[q[1]], f)
		assert.Equal(t, f, w.fence(), "a renewal sets it anew")
	})
}

// The clock does not move: fences come from the last one then.
func TestPermits_FencesOfOneMicrosecondDiffer(t *testing.T) {
	t.Parallel()
	w := memory(t).asSemaphore(10)
	began := w.freeze()
	last := uint64(0)
	for i := range 10 {
		w.mini.SetTime(began.Add(-time.Duration(i/3) * time.Millisecond)) // and then it steps back
		f := w.acquire(lua.Request{}).Fence
		assert.Greater(t, f, last)
		last = f
	}
}

func TestPermits_RenewalKeepsFenceAndOtherLeases(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		a := w.hold(1, 2)
		w.join(3)
		other := w.score(w.keys.Permits, a[1])
		w.do("PEXPIRE", w.keys.Fence, 1000)
		_, ok := w.renew(a[0], time.Hour, 0)
		assert.True(t, ok)
		assert.Equal(t, other, w.score(w.keys.Permits, a[1]))
		ends := w.score(w.keys.Permits, a[0])
		assert.InDelta(t, w.now().Add(time.Hour).UnixMicro(), ends, 1e7)
		w.lasts(w.keys.Permits, time.Hour)
		w.lasts(w.keys.Holders, time.Hour)
		w.lasts(w.keys.Fence, day)
		_, ok = w.renew(a[0], time.Second, 0)
		assert.True(t, ok)
		w.acquire(lua.Request{Token: a[0], TTL: time.Second})
		assert.Equal(t, ends, w.score(w.keys.Permits, a[0]), "never shorter")
		w.lasts(w.keys.Permits, time.Hour)
	})
}
