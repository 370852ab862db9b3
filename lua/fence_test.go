package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// waysToBeGranted are all of them: each takes the lock from its holder, and tells who has it then, with which fence.
func waysToBeGranted(w *world) map[string]func(holder token.Token) (token.Token, uint64) {
	idle := func(free func()) (token.Token, uint64) {
		free()
		who := w.token()
		return who, w.acquire(lua.Request{Token: who}).Fence
	}
	return map[string]func(token.Token) (token.Token, uint64){
		"idle":       func(holder token.Token) (token.Token, uint64) { return idle(func() { w.release(holder) }) },
		"lease over": func(token.Token) (token.Token, uint64) { return idle(w.expire) },
		"forced":     func(token.Token) (token.Token, uint64) { return idle(func() { w.forceRelease() }) },
		"try": func(token.Token) (token.Token, uint64) {
			w.expire()
			who := w.token()
			return who, w.acquire(lua.Request{Token: who, Try: true}).Fence
		},
		"handed over": func(holder token.Token) (token.Token, uint64) {
			who := w.join(1)[0]
			return who, w.grants(w.release(holder), who)[0].Fence
		},
		"left": func(holder token.Token) (token.Token, uint64) {
			who := w.join(1)[0]
			return who, w.grants(w.leave(holder, 0), who)[0].Fence
		},
		"forced over": func(token.Token) (token.Token, uint64) {
			who := w.join(1)[0]
			return who, w.grants(w.forceRelease(), who)[0].Fence
		},
		"heartbeat": func(token.Token) (token.Token, uint64) {
			who := w.join(1)[0]
			w.expire()
			assert.Equal(w.t, []lua.WaiterState{lua.NowGranted}, w.heartbeat(who).States)
			return who, w.fence()
		},
		"asked again": func(token.Token) (token.Token, uint64) {
			who := w.join(1)[0]
			w.expire()
			return who, w.acquire(lua.Request{Token: who}).Fence
		},
		"back with a ticket": func(holder token.Token) (token.Token, uint64) {
			w.release(holder)
			who := w.token()
			return who, w.acquire(lua.Request{Token: who, Ticket: 1}).Fence
		},
	}
}

func TestFence_Rises(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		rounds := func() {
			last := w.fence()
			holder := w.hold()
			for range 3 {
				for name, grant := range waysToBeGranted(w) {
					who, fence := grant(holder)
					assert.Greater(t, fence, last, name)
					assert.Equal(t, fence, w.fence(), "%s: the fence told is the one in Redis", name)
					assert.Equal(t, who.Text(), w.owner(), name)
					holder, last = who, fence
				}
			}
			w.release(holder)
		}
		rounds()
		if w.mini != nil { // within one microsecond, and with a clock that steps back
			now := w.freeze()
			rounds()
			w.mini.SetTime(now.Add(-time.Hour))
			rounds()
		}
		w.do("SET", w.keys.Fence, w.now().Add(time.Hour).UnixMicro()) // to a real server the same
		rounds()
	})
}

func TestFence_IsTheTimeOrTheLastOnePlusOne(t *testing.T) {
	t.Parallel()
	w := memory(t)
	now := w.freeze()
	micros := uint64(now.UnixMicro())
	a := w.token()
	assert.Equal(t, micros, w.acquire(lua.Request{Token: a}).Fence)
	w.release(a)
	b := w.token()
	assert.Equal(t, micros+1, w.acquire(lua.Request{Token: b}).Fence, "the clock stands")
	w.release(b)
	w.mini.SetTime(now.Add(-time.Hour))
	c := w.token()
	assert.Equal(t, micros+2, w.acquire(lua.Request{Token: c}).Fence, "the clock has stepped back")
	w.release(c)
	w.mini.SetTime(now.Add(time.Second))
	assert.Equal(t, micros+1e6, w.acquire(lua.Request{}).Fence, "the clock goes on")
}

func TestFence_LastsADay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		for name, grant := range waysToBeGranted(w) {
			w.do("PEXPIRE", w.keys.Fence, 1000*60)
			holder, _ = grant(holder)
			w.lasts(w.keys.Fence, day)
			assert.LessOrEqual(t, w.pttl(w.keys.Fence), day, name)
		}
	})
}

func TestFence_OutlivesALeaseOfMoreThanADay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const week = 7 * day
		holder := w.token()
		w.acquire(lua.Request{Token: holder, TTL: week})
		w.lasts(w.keys.Fence, 2*week)
		w.do("PEXPIRE", w.keys.Fence, 1000)
		w.renew(holder, week, 0)
		w.lasts(w.keys.Fence, 2*week)
		w.do("DEL", w.keys.Fence)
		w.renew(holder, week, 1)
		w.lasts(w.keys.Fence, 2*week)
	})
}

func TestFence_RisesAfterLossOfData(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		last := w.acquire(lua.Request{}).Fence
		for range 3 {
			w.do("FLUSHALL")
			fence := w.acquire(lua.Request{}).Fence
			assert.Greater(t, fence, last)
			last = fence
		}
		if w.real != nil {
			w.real.Kill()
			w.real.Run()
			assert.Greater(t, w.acquire(lua.Request{}).Fence, last, "after a restart with empty data")
		}
	})
}
