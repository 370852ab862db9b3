package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// late has a dead token do all that a holder can do.
func (w *permitWorld) late(t token.Token) {
	w.t.Helper()
	for i := range 2 {
		_, ok := w.renew(t, time.Hour, 0)
		assert.False(w.t, ok, "renewed, %d", i)
		h := w.release(t)
		assert.False(w.t, h.Released, "released, %d", i)
		w.grants(h)
		h = w.leave(t, 0)
		assert.False(w.t, h.Released, "left, %d", i)
		w.grants(h)
	}
}

func TestPermits_ExpiredLeaseIsFreedOnce(t *testing.T) {
	t.Parallel()
	w := memory(t).asSemaphore(3)
	began := w.freeze()
	a, b := w.token(), w.token()
	w.acquire(lua.Request{Token: a, Weight: 2, TTL: 10 * time.Second})
	w.acquire(lua.Request{Token: b, TTL: 20 * time.Second})
	for _, c := range []struct {
		after time.Duration
		holds holdings
	}{
		{10*time.Second - time.Microsecond, holdings{a: 2, b: 1}},
		{10 * time.Second, holdings{b: 1}},
		{20*time.Second - time.Microsecond, holdings{b: 1}},
		{20 * time.Second, holdings{}},
	} {
		w.mini.SetTime(began.Add(c.after))
		used := c.holds[a] + c.holds[b]
		if used > 0 {
			w.try(lua.Busy, 3-used+1)
		}
		for _, who := range []token.Token{a, b} {
			if c.holds[who] == 0 && used > 0 {
				w.unchanged(func() { w.late(who) }, "late")
			}
		}
		w.held(c.holds, c.after)
		if used < 3 {
			who := w.token()
			require.Equal(t, lua.Granted, w.acquire(lua.Request{Token: who, Weight: 3 - used, Try: true}).Outcome, c.after)
			w.try(lua.Busy, 1)
			w.release(who)
		}
	}
	assert.Equal(t, []string{"fence"}, w.left())
}

func TestPermits_ExpiredLeaseGoesToTheQueue(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		for name, call := range map[string]func(who token.Token){
			"release by the dead": func(who token.Token) { assert.False(t, w.release(who).Released) },
			"leave by the dead":   func(who token.Token) { assert.False(t, w.leave(who, 0).Released) },
			"heartbeat":           func(token.Token) { w.heartbeat(w.token()) },
			"try":                 func(token.Token) { w.try(lua.Busy, 1) },
			"join":                func(token.Token) { w.leave(w.join(1)[0], 0) },
			"release of another":  func(token.Token) { w.release(w.token()) },
		} {
			w.do("FLUSHALL")
			a := w.hold(2, 1)
			q := w.join(1, 1, 1)
			w.expire(a[0])
			call(a[0])
			want := holdings{a[1]: 1, q[0]: 1, q[1]: 1}
			w.held(want, name)
			w.unchanged(func() { w.late(a[0]) }, name)
			w.held(want, name)
			w.grants(w.release(a[1]), q[2])
		}
	})
}

// hoard has n others hold one permit each, without asking; somebody must hold already.
func (w *permitWorld) hoard(n int, until time.Time) []token.Token {
	w.t.Helper()
	const chunk = 1000
	all := make([]token.Token, n)
	for i := 0; i < n; i += chunk {
		permits, holders := []any{"ZADD", w.keys.Permits}, []any{"HSET", w.keys.Holders}
		for j := i; j < min(n, i+chunk); j++ {
			all[j] = w.token()
			permits = append(permits, until.UnixMicro()+int64(j), all[j].Text())
			holders = append(holders, all[j].Text(), "1 "+digits(j+1))
		}
		w.do(permits...)
		w.do(holders...)
	}
	w.do("HINCRBY", w.keys.Holders, "used", n)
	w.do("PEXPIRE", w.keys.Permits, time.Hour.Milliseconds())
	w.do("PEXPIRE", w.keys.Holders, time.Hour.Milliseconds())
	return all
}

func TestPermits_MoreThanAThousandExpiredInSeveralCalls(t *testing.T) {
	semaphores(t, 2501, func(t *testing.T, w *permitWorld) {
		holder := w.hold(1)[0]
		w.hoard(2500, w.now().Add(-time.Hour))
		all := w.token()
		a := w.acquire(lua.Request{Token: all, Weight: 2500})
		assert.Equal(t, lua.Queued, a.Outcome)
		assert.Equal(t, int64(1501), w.do("ZCARD", w.keys.Permits))
		assert.InDelta(t, 0, a.RetryAfter.Seconds(), 0.1, "ask at once")
		w.held(holdings{holder: 1})
		p := w.heartbeat(all)
		assert.Equal(t, int64(501), w.do("ZCARD", w.keys.Permits))
		assert.Equal(t, lua.StillQueued, p.States[0])
		assert.InDelta(t, 0, p.RetryAfter.Seconds(), 0.1)
		assert.Equal(t, lua.NowGranted, w.heartbeat(all).States[0])
		w.held(holdings{holder: 1, all: 2500})
		w.release(all)
		w.release(holder)
		assert.Equal(t, []string{"fence"}, w.left())
	})
}

func TestPermits_ReleaseTellsMoreAfterAThousandExpired(t *testing.T) {
	semaphores(t, 1501, func(t *testing.T, w *permitWorld) {
		w.hold(1)
		w.hoard(1500, w.now().Add(-time.Hour))
		heavy := w.token()
		w.acquire(lua.Request{Token: heavy, Weight: 1500}) // takes back the first thousand
		w.hoard(600, w.now().Add(-time.Hour))
		h := w.release(w.token())
		assert.True(t, h.More, "or nobody carries on before the next beat")
		w.grants(w.release(w.token()), heavy)
	})
}

// The asker's own expired holding is one that was not yet taken back.
func TestPermits_ExpiredLeaseEndsBeforeItsTokenGetsAnother(t *testing.T) {
	semaphores(t, 2000, func(t *testing.T, w *permitWorld) {
		w.hold(1)
		old := w.hoard(1500, w.now().Add(-time.Hour))
		again := old[1499]
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: again, Weight: 3}).Outcome)
		w.try(lua.Granted, 1)
		assert.Equal(t, 5, w.inspect(1).Used, "all expired are back: one, three and one are in use")
		w.try(lua.Granted, 1995)
	})
}

// expires checks that every key there is ends by itself, and soon enough.
func (w *permitWorld) expires(after string) {
	w.t.Helper()
	for i, key := range w.rdb.Keys(w.t.Context(), "*").Val() {
		limit := max(ttl, waiterTTL) + time.Second
		switch w.left()[i] {
		case "fence":
			limit = day
		case "queue", "alive":
			limit = waiterTTL + time.Second
		}
		left := w.pttl(key)
		assert.Positive(w.t, left, "after %s: %s lasts for ever", after, key)
		assert.LessOrEqual(w.t, left, limit, "after %s: %s", after, key)
	}
}

func TestPermits_EveryKeyExpires(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		var a, q []token.Token
		for _, c := range []struct {
			after string
			do    func()
		}{
			{"acquire", func() { a = w.hold(2) }},
			{"a second holder", func() { a = append(a, w.hold(1)...) }},
			{"join", func() { q = w.join(4, 1, 2, 3, 1, 1, 1) }},
			{"full", func() { w.acquire(lua.Request{MaxWaiters: 1}) }},
			{"capacity", func() { w.with(9, lua.Request{}) }},
			{"renew", func() { w.renew(a[0], ttl, 0) }},
			{"heartbeat", func() { w.heartbeat(q[0]) }},
			{"a holder expired", func() { w.expire(a[0]); w.try(lua.Busy, 1) }},
			{"a beat that admits where none holds", func() { w.expire(a[1]); w.heartbeat(q[0]) }},
			{"release", func() { w.release(q[0]) }},
			{"leave", func() { w.leave(q[1], 0) }},
			{"force release", func() { w.forceRelease() }},
			{"a waiter that asks", func() { w.expire(q[3]); w.acquire(lua.Request{Token: q[4]}) }},
			{"burial", func() { w.leave(q[5], waiterTTL) }},
			{"holders lost", func() { w.join(4); w.do("DEL", w.keys.Holders); w.join(4) }},
			{"permits lost", func() { w.do("DEL", w.keys.Permits); w.join(4) }},
			{"data lost", func() { w.do("FLUSHALL"); w.acquire(lua.Request{Ticket: 1e15 + 1}) }},
			{"inspect", func() { w.inspect(10) }},
		} {
			c.do()
			w.expires(c.after)
		}
	})
}

// A return to permits of which some are free, where the fence is somebody else's.
func TestPermits_FailedReturnLeavesNothingForEver(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		w.hold(1)
		w.do("DEL", w.keys.Fence)
		w.do("RPUSH", w.keys.Fence, "somebody's")
		w.do("PEXPIRE", w.keys.Fence, ttl.Milliseconds())
		_, err := w.ask(lua.Request{Ticket: 1e15 + 1})
		require.ErrorContains(t, err, "WRONGTYPE")
		w.expires("a return that failed")
	})
}

// Leases and patiences of all lengths: no lease ends early because a key does, and a second after the last of them
// only the fence is left.
func TestPermits_AbandonedKeysExpireInTime(t *testing.T) {
	t.Parallel()
	short, middle, long := time.Second, 10*time.Second, 100*time.Second
	w := memory(t).asSemaphore(3)
	for _, c := range []struct{ first, second, waiterTTL time.Duration }{
		{short, middle, long}, {short, long, middle}, {middle, short, long},
		{middle, long, short}, {long, short, middle}, {long, middle, short},
	} {
		w.do("FLUSHALL")
		began := w.freeze()
		at := func(after time.Duration) { w.mini.SetTime(began.Add(after)) }
		a, b, heavy := w.token(), w.token(), w.token()
		w.acquire(lua.Request{Token: a, Weight: 1, TTL: c.first})
		w.acquire(lua.Request{Token: b, Weight: 1, TTL: c.second})
		w.acquire(lua.Request{Token: heavy, Weight: 2, TTL: c.first, WaiterTTL: c.waiterTTL})
		for _, after := range []time.Duration{short, middle, long} {
			at(after - time.Millisecond)
			has := w.state()
			for who, end := range map[token.Token]time.Duration{a: c.first, b: c.second} {
				if end == after {
					assert.Contains(t, has.Permits, who.Text(), "%+v", c)
					assert.Contains(t, has.Holders, who.Text(), "%+v", c)
				}
			}
			if after == c.waiterTTL {
				assert.Equal(t, "2", has.Wants[heavy.Text()], "%+v", c)
				assert.Equal(t, "3", has.Holders["capacity"], "%+v", c)
			}
		}
		at(long + time.Second)
		assert.Equal(t, []string{"fence"}, w.left(), "%+v", c)
		at(day + time.Millisecond)
		assert.Empty(t, w.left(), "%+v", c)
	}
}

func TestPermits_LastReleaseLeavesOnlyTheFence(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		for name, end := range map[string]func(){
			"the only holder releases":        func() { w.release(w.hold(3)[0]) },
			"the only holder leaves":          func() { w.leave(w.hold(3)[0], 0) },
			"two release":                     func() { a := w.hold(3, 1); w.release(a[1]); w.release(a[0]) },
			"two leave":                       func() { a := w.hold(3, 1); w.leave(a[0], 0); w.leave(a[1], 0) },
			"one expired, another releases":   func() { a := w.hold(3, 1); w.expire(a[0]); w.release(a[1]) },
			"a waiter leaves, then the other": func() { a, q := w.hold(4), w.join(3); w.leave(q[0], 0); w.release(a[0]) },
			"the one let in releases":         func() { a, q := w.hold(4), w.join(3); w.release(a[0]); w.release(q[0]) },
			"the last waiter leaves":          func() { a, q := w.hold(4), w.join(3); w.expire(a[0]); w.leave(q[0], 0) },
			"a stranger releases the expired": func() {
				a, q := w.hold(4), w.join(3)
				w.expire(a[0])
				w.kill(q...)
				w.release(w.token())
			},
			"force release": func() { w.hold(1, 2); w.forceRelease() },
			"leases of different lengths": func() {
				long := w.token()
				w.acquire(lua.Request{Token: long, TTL: 10 * ttl})
				short := w.hold(1)[0]
				w.release(long)
				w.release(short)
			},
		} {
			w.do("FLUSHALL")
			end()
			assert.Equal(t, []string{"fence"}, w.left(), name)
		}
	})
}

// Nobody waits, so nobody carries on: who tries is told that there is more, and tries again.
func TestPermits_TryTellsMoreAfterAThousandExpired(t *testing.T) {
	t.Parallel()
	w := memory(t).asSemaphore(2500)
	began := w.freeze()
	ones := make([]int, 2500)
	for i := range ones {
		ones[i] = 1
	}
	w.hold(ones...)
	w.mini.SetTime(began.Add(ttl + time.Millisecond))
	assert.Equal(t, []int{0, 2500}, []int{w.inspect(1).Used, w.inspect(1).Capacity}, "used, of")
	ask := lua.Request{Weight: 2500, Try: true}
	for range 2 {
		answer := w.acquire(ask)
		assert.Equal(t, lua.Busy, answer.Outcome)
		assert.True(t, answer.More)
	}
	assert.Equal(t, lua.Granted, w.acquire(ask).Outcome)
}

// The queue of the dead expires as a whole while somebody holds: nobody drops them one by one.
func TestPermits_WantsOfExpiredWaitersAreForgotten(t *testing.T) {
	t.Parallel()
	w := memory(t).asSemaphore(4)
	began := w.freeze()
	holder := w.hold(2, 2)
	for i := range 3 {
		w.join(4, 4)
		for range 2 { // the waiter TTL and a second
			began = began.Add(waiterTTL/2 + time.Second)
			w.mini.SetTime(began)
			w.renew(holder[0], ttl, 0)
			w.renew(holder[1], ttl, 0)
		}
		require.Equal(t, []string{}, w.queue(), i)
	}
	w.leave(w.join(1)[0], 0)
	assert.Equal(t, map[string]string{"capacity": "4"}, w.state().Wants)
	w.release(holder[0])
	assert.Len(t, w.state().Holders, 3, "capacity, used and the one who holds: %v", w.state().Holders)
}
