package lua_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

// operations are those of a mutex, with one permit asked for.
func (w *permitWorld) operations() map[string]func() error {
	all := w.world.operations()
	for name, a := range map[string]lua.Request{
		"acquire":  {Token: numbered("new", 1)},
		"ask":      {Token: numbered("c", 2)},
		"return":   {Token: numbered("new", 1), Ticket: 1e15 + 1},
		"try":      {Token: numbered("new", 1), Try: true},
		"bounded":  {Token: numbered("new", 1), MaxWaiters: 1},
		"by owner": {Token: numbered("c", 1)},
	} {
		all[name] = func() error {
			_, err := w.ask(a)
			return err
		}
	}
	return all
}

// contended makes numbers 1 and 4 of client "c" hold, and 2 and 3 wait.
func (w *permitWorld) contended() {
	w.t.Helper()
	w.do("FLUSHALL")
	w.made = 0
	w.hold(3)
	w.join(2, 1)
	w.made = 0
}

func TestErrors_ForeignTypeOfPermitsIsNamed(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		setups := map[string]func(){
			"idle":      func() { w.do("FLUSHALL") },
			"held":      func() { w.do("FLUSHALL"); w.made = 0; w.hold(1) },
			"contended": w.contended,
		}
		for name, operation := range w.operations() {
			for lock, setup := range setups {
				for _, key := range []string{w.keys.Permits, w.keys.Holders} {
					about := fmt.Sprintf("%s, %s, %s", name, lock, key)
					setup()
					w.do("DEL", key)
					w.do("RPUSH", key, "somebody's")
					w.do("PEXPIRE", key, ttl.Milliseconds()*100)
					before := w.others(key)
					err := operation()
					w.untouched(key, "RPUSH", about)
					if err == nil {
						assert.NotEqual(t, "acquire", name, "%s: no error", about)
						continue
					}
					require.ErrorContains(t, err, "WRONGTYPE", about)
					if w.real != nil { // miniredis wraps the errors of scripts into others
						require.ErrorContains(t, err, "key \""+key+"\" is not ours", about)
					}
					if name != "waiter leaves" { // it has left the queue then
						assert.Equal(t, before, w.others(key), about)
					}
				}
			}
		}
	})
}

// others dumps all keys but one.
func (w *permitWorld) others(but string) map[string]any {
	w.t.Helper()
	found := map[string]any{}
	for _, key := range keysOf(w.lock) {
		if key == but {
			continue
		}
		switch key {
		case w.keys.Fence:
			found[key] = w.do("GET", key)
		case w.keys.Holders:
			found[key] = w.rdb.HGetAll(w.t.Context(), key).Val()
		default:
			members := w.rdb.ZRange(w.t.Context(), key, 0, -1).Val()
			slices.Sort(members) // when they expire does not count
			found[key] = members
		}
	}
	return found
}

func TestFullServer_RefusesPermitsAndReleasesThem(t *testing.T) {
	w := real(t).asSemaphore(3)
	full := func(yes bool) { w.do("CONFIG", "SET", "maxmemory", map[bool]int{true: 1, false: 0}[yes]) }
	refused := func(operations ...string) {
		t.Helper()
		for _, operation := range operations {
			w.unchanged(func() {
				err := w.operations()[operation]()
				require.Error(t, err, operation)
				assert.True(t, redis.HasErrorPrefix(err, "OOM"), "%s: %v", operation, err)
				assert.ErrorContains(t, err, `"ns:{name}:sem:*"`, operation)
			}, operation)
		}
	}
	full(true)
	refused("acquire", "try", "return", "bounded")
	assert.Empty(t, w.left())
	full(false)
	w.hold(1)
	full(true)
	refused("acquire", "try", "bounded")
	full(false)
	w.contended()
	full(true)
	refused("acquire", "ask", "return", "heartbeat")
	for _, operation := range []string{"renew", "by owner", "inspect"} {
		require.NoError(t, w.operations()[operation](), operation)
	}
	a, q := numbered("c", 1), numbered("c", 2)
	w.grants(w.release(a), q, numbered("c", 3))
	w.held(holdings{q: 2, numbered("c", 3): 1})
	w.leave(q, ttl)
	w.forceRelease()
	assert.Empty(t, w.holders())
}

// client beats and asks as a client does: it asks when it is told to, or is gone. It reports whether somebody got in.
func (w *permitWorld) client(q []lua.Request) (in bool) {
	w.t.Helper()
	for i := range q {
		p := w.heartbeat(q[i].Token)
		switch {
		case p.States[0] == lua.NowGranted || p.States[0] == lua.Holding:
			in = true
		case p.States[0] == lua.NotQueued || p.RetryAfter >= 0 && p.RetryAfter < time.Second:
			in = w.acquire(q[i]).Outcome == lua.Granted || in
		}
	}
	return in
}

// The holders' weights are lost: nobody knows what is left, so nothing is given away until all are back.
func TestEviction_OfHoldersGrantsNothingTwice(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		for _, ask := range []lua.Request{{Weight: 1}, {Weight: 3}, {Weight: 1, Try: true}} {
			w.do("FLUSHALL")
			a := w.hold(1, 2)
			w.do("DEL", w.keys.Holders)
			assert.NotEqual(t, lua.Granted, w.acquire(ask).Outcome, "%+v: both hold still", ask)
			assert.True(t, w.release(a[0]).Released)
			assert.NotEqual(t, lua.Granted, w.acquire(ask).Outcome, "%+v: one holds still", ask)
			assert.True(t, w.release(a[1]).Released)
			w.do("DEL", w.keys.Queue, w.keys.Alive, w.keys.Permits)
			w.try(lua.Granted, 3)
		}
	})
}

func TestEviction_OfHoldersAdmitsWaitersInTheEnd(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		a := w.hold(3)[0]
		q := w.ticketed(1, 2)
		w.do("DEL", w.keys.Holders)
		assert.True(t, w.release(a).Released)
		in := false
		for range 3 {
			in = w.client(q) || in
		}
		assert.True(t, in, "nobody holds, and those who wait only beat")
	})
}

func TestEviction_OfWantsGrantsNoLess(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		for _, key := range []string{w.keys.Holders, w.keys.Wants} {
			w.do("FLUSHALL")
			a := w.hold(3)[0]
			q := w.ticketed(3, 3)
			w.do("DEL", key)
			w.release(a)
			w.acquire(lua.Request{})
			assert.LessOrEqual(t, len(w.holders()), 1, "%s: each of those who waited believes that it holds all", key)
			w.client(q)
			assert.Equal(t, 3, len(w.holders())+len(w.queue()), "%s: they come back", key)
		}
	})
}

func TestEviction_OfPermitsFreesThem(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		old := w.hold(1, 2)
		q := w.ticketed(2, 1, 3)
		w.do("DEL", w.keys.Permits)
		w.heartbeat(q[0].Token)
		want := holdings{q[0].Token: 2, q[1].Token: 1}
		w.held(want)
		for _, who := range old {
			w.unchanged(func() { w.late(who) }, "the old ones find out")
		}
		w.release(q[0].Token)
		w.grants(w.release(q[1].Token), q[2].Token)
		w.release(q[2].Token)
		assert.Equal(t, []string{"fence"}, w.left())
	})
}
