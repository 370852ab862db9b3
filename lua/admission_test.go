package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// admitters are the operations that can find a lock free and have to admit, done by somebody who does not wait.
func admitters(w *world) map[string]func() {
	return map[string]func(){
		"release":       func() { w.release(w.token()) },
		"leave":         func() { w.leave(w.token(), 0) },
		"force release": func() { w.forceRelease() },
		"try":           func() { w.acquire(lua.Request{Try: true}) },
		"heartbeat":     func() { w.heartbeat(w.token()) },
		"acquire": func() {
			who := w.token()
			assert.Equal(w.t, lua.Queued, w.acquire(lua.Request{Token: who}).Outcome)
			w.leave(who, 0)
		},
	}
}

func TestAdmission_OnlyTheHeadIsGranted(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, admit := range admitters(w) {
			w.do("FLUSHALL")
			w.hold()
			q := w.join(4)
			for i, who := range q[:3] {
				w.expire()
				admit()
				require.Equal(t, who.Text(), w.owner(), name)
				require.Equal(t, texts(q[i+1:]...), w.queue(), name)
				require.ElementsMatch(t, shorts(q[i+1:]...), w.state().Alive, "%s: who is granted leaves alive, too", name)
				w.release(w.token())
				w.heartbeat(q...)
				require.Equal(t, who.Text(), w.owner(), "%s: while it is held nobody else gets it", name)
			}
		}
	})
}

// One who waits and asks is no exception: it gets the lock if it is the head.
func TestAdmission_RequestOfAWaiterDoesNotOvertake(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		w.hold()
		q := w.join(3)
		w.expire()
		a := w.acquire(lua.Request{Token: q[2]})
		assert.Equal(t, lua.Queued, a.Outcome)
		assert.Equal(t, 2, a.Position)
		assert.Equal(t, q[0].Text(), w.owner())
		assert.Len(t, said(), 1, "the head is told")
		w.expire()
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: q[1]}).Outcome)
		w.expire()
		assert.Equal(t, []lua.WaiterState{lua.NotQueued, lua.NotQueued, lua.NowGranted}, w.heartbeat(q...).States)
	})
}

func TestAdmission_DropsExpiredHeadsInOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, admit := range admitters(w) {
			w.do("FLUSHALL")
			w.hold()
			q := w.join(5)
			w.kill(q[0], q[1], q[3])
			w.expire()
			admit()
			require.Equal(t, q[2].Text(), w.owner(), name)
			require.Equal(t, texts(q[3], q[4]), w.queue(), "%s: who is not in the way is not judged", name)
			w.expire()
			admit()
			require.Equal(t, q[4].Text(), w.owner(), name)
			require.Empty(t, w.state().Queue, name)
			require.Empty(t, w.state().Alive, name)
		}
	})
}

func TestAdmission_DropsNoWaiterWhileTheLockIsHeld(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		q := w.join(3)
		w.kill(q...)
		before := w.state()
		for name, admit := range admitters(w) {
			if name != "force release" {
				admit()
				require.Equal(t, before.Queue, w.state().Queue, name)
			}
		}
		assert.Equal(t, lua.StillQueued, w.heartbeat(q[0]).States[0], "dead or not: whoever is in the queue can go on waiting")
		w.acquire(lua.Request{Token: q[2]})
		h := w.release(holder)
		assert.False(t, h.More)
		w.grants(h, q[0])
		w.grants(w.release(q[0]), q[2])
		assert.Empty(t, w.queue(), "the one who said nothing is dropped")
	})
}

func TestAdmission_NeverDropsTheRequester(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		q := w.join(3)
		w.kill(q...)
		w.expire()
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: q[1]}).Outcome, "the dead before it are dropped, it is not")
		w.lasts(w.keys.Lock, ttl)
		assert.Equal(t, texts(q[2]), w.queue())
		w.release(holder)
		w.expire()
		assert.Equal(t, []lua.WaiterState{lua.NowGranted}, w.heartbeat(q[2]).States, "a beat is a sign of life, too")
	})
}

func TestAdmission_DropsAHundredInOneCall(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		dead := w.join(100)
		living := w.join(2)
		w.kill(dead...)
		h := w.release(holder)
		assert.False(t, h.More)
		w.grants(h, living[0])
		assert.Equal(t, texts(living[1]), w.queue())
	})
}

// crowd puts n waiters into the queue, without asking.
func (w *world) crowd(n int, until time.Time) []token.Token {
	w.t.Helper()
	const chunk = 1000
	all := make([]token.Token, n)
	for i := 0; i < n; i += chunk {
		places, alive := []any{"ZADD", w.keys.Queue}, []any{"ZADD", w.keys.Alive}
		for j := i; j < min(n, i+chunk); j++ {
			all[j] = w.token()
			places = append(places, 1e15+j, all[j].Text())
			alive = append(alive, until.UnixMicro(), short(all[j]))
		}
		w.do(places...)
		w.do(alive...)
	}
	w.do("PEXPIRE", w.keys.Queue, time.Hour.Milliseconds())
	w.do("PEXPIRE", w.keys.Alive, time.Hour.Milliseconds())
	return all
}

func TestAdmission_DropsMoreThanAThousandInSeveralCalls(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		calls := map[string]func() lua.Handoff{
			"release":       func() lua.Handoff { return w.release(w.token()) },
			"leave":         func() lua.Handoff { return w.leave(w.token(), 0) },
			"force release": w.forceRelease,
		}
		dead := 2500
		if w.mini != nil { // which sorts the whole queue for each
			dead = 1001
			calls = map[string]func() lua.Handoff{"release": calls["release"]}
		}
		for name, call := range calls {
			w.do("FLUSHALL")
			w.crowd(dead, w.now().Add(-time.Second))
			last := w.crowd(1, w.now().Add(waiterTTL))[0]
			w.do("ZADD", w.keys.Queue, 2e15, last.Text())
			for left := dead + 1 - 1000; left > 1; left -= 1000 {
				h := call()
				require.True(t, h.More, name)
				w.grants(h)
				require.Len(t, w.queue(), left, name)
				require.Empty(t, w.owner(), name)
			}
			h := call()
			require.False(t, h.More, name)
			w.grants(h, last)
			require.Equal(t, last.Text(), w.owner(), name)
			require.Len(t, said(), 1, name)
		}
	})
}

// Who asks, or beats, where there is more to sweep is told to come back at once.
func TestAdmission_RetryAtOnceBehindAThousandExpired(t *testing.T) {
	t.Parallel()
	w := real(t)
	dead := w.crowd(3500, w.now().Add(-time.Second))
	who := w.token()
	a := w.acquire(lua.Request{Token: who})
	assert.Equal(t, lua.Queued, a.Outcome)
	assert.Equal(t, 2501, a.Position)
	assert.Zero(t, a.RetryAfter)
	p := w.heartbeat(who)
	assert.Equal(t, lua.StillQueued, p.States[0])
	assert.Zero(t, p.RetryAfter)
	a = w.acquire(lua.Request{Token: who})
	assert.Equal(t, 501, a.Position)
	assert.Zero(t, a.RetryAfter)
	assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: who}).Outcome)
	assert.Equal(t, []lua.WaiterState{lua.NotQueued, lua.NotQueued}, w.heartbeat(dead[0], dead[3499]).States)
}

func TestAdmission_LeaseIsTheRestOfWaiterTTLAtMostTTL(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		given := func(waiterTTL, ttl time.Duration) time.Duration {
			holder := w.hold()
			who := w.token()
			w.acquire(lua.Request{Token: who, WaiterTTL: waiterTTL})
			before := time.Now()
			h, err := w.lock.Release(t.Context(), holder, ttl)
			require.NoError(t, err)
			g := w.grants(h, who)[0].Given
			lasts := w.pttl(w.keys.Lock)
			assert.LessOrEqual(t, lasts, g)
			assert.GreaterOrEqual(t, lasts, g-time.Since(before)-2*time.Millisecond, "the lock lasts as long as was said")
			w.release(who)
			return g
		}
		assert.Equal(t, 20*time.Second, given(30*time.Second, 20*time.Second))
		g := given(15*time.Second, 20*time.Second)
		assert.LessOrEqual(t, g, 15*time.Second)
		assert.Greater(t, g, 5*time.Second)
		if w.mini != nil {
			now := w.freeze()
			assert.Equal(t, 15*time.Second, given(15*time.Second, 20*time.Second))
			holder := w.hold()
			who := w.join(1)[0]
			w.mini.SetTime(now.Add(waiterTTL - 1500*time.Microsecond))
			assert.Equal(t, time.Millisecond, w.grants(w.release(holder), who)[0].Given, "rounded down")
			w.release(who)
			holder = w.hold()
			w.join(1)
			w.mini.SetTime(now.Add(2*waiterTTL - 2000*time.Microsecond))
			w.grants(w.release(holder)) // less than a millisecond: none
		}
	})
}
