package lua_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// again checks that an operation which is sent a second time leaves everything as the first has left it.
func (w *world) again(first, second func()) {
	w.t.Helper()
	first()
	once := w.state()
	second()
	assert.Equal(w.t, once, w.state(), "the second time has changed something")
}

func TestAcquire_Idempotent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var first, second lua.Reply
		for _, c := range []struct {
			name  string
			ask   lua.Request
			want  lua.Outcome
			setup func()
		}{
			{"granted", lua.Request{Token: w.token()}, lua.Granted, func() {}},
			{"by the owner", lua.Request{Token: numbered("c", 1)}, lua.Granted, func() {}},
			{"queued", lua.Request{Token: w.token()}, lua.Queued, func() {}},
			{"queued, bound reached by itself", lua.Request{Token: w.token(), MaxWaiters: 2}, lua.Queued, func() {}},
			{"full", lua.Request{Token: w.token(), MaxWaiters: 2}, lua.Full, func() {}},
			{"busy", lua.Request{Token: w.token(), Try: true}, lua.Busy, func() {}},
			{"busy, and the lock goes to the head", lua.Request{Token: w.token(), Try: true}, lua.Busy, w.expire},
			{"granted from the queue", lua.Request{Token: numbered("c", 3)}, lua.Granted, w.expire},
			{"queued with a ticket, data lost", lua.Request{Token: numbered("c", 3), Ticket: 1e15}, lua.Queued, func() { w.do("FLUSHALL") }},
		} {
			c.setup()
			w.again(func() { first = w.acquire(c.ask) }, func() { second = w.acquire(c.ask) })
			assert.Equal(t, c.want, first.Outcome, c.name)
			first.RetryAfter, second.RetryAfter = 0, 0 // time passes
			assert.Equal(t, first, second, c.name)
		}
	})
}

func TestAcquire_AgainIsOneFenceStep(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a := w.token()
		first := w.acquire(lua.Request{Token: a})
		for range 5 {
			assert.Equal(t, first, w.acquire(lua.Request{Token: a}))
		}
		assert.Equal(t, first.Fence, w.fence())
	})
}

func TestRelease_Idempotent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		a := w.hold()
		q := w.join(2)
		var first, second lua.Handoff
		w.again(func() { first = w.release(a) }, func() { second = w.release(a) })
		assert.True(t, first.Released)
		w.grants(first, q[0])
		assert.False(t, second.Released)
		w.grants(second)
		assert.Equal(t, q[0].Text(), w.owner())
		assert.Len(t, said(), 1, "handed over once")
	})
}

func TestRelease_IdempotentWithoutWaiters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a := w.hold()
		var first, second lua.Handoff
		w.again(func() { first = w.release(a) }, func() { second = w.release(a) })
		assert.True(t, first.Released)
		assert.False(t, second.Released)
	})
}

func TestLeave_Idempotent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		a := w.hold()
		q := w.join(3)
		for _, c := range []struct {
			name     string
			who      token.Token
			released bool
			next     []token.Token
		}{
			{"a waiter", q[1], false, nil},
			{"the holder", a, true, q[:1]},
			{"a waiter granted meanwhile", q[0], true, q[2:]},
			{"the last one", q[2], true, nil},
			{"a stranger", a, false, nil},
		} {
			var first, second lua.Handoff
			w.again(func() { first = w.leave(c.who, ttl) }, func() { second = w.leave(c.who, ttl) })
			assert.Equal(t, c.released, first.Released, c.name)
			w.grants(first, c.next...)
			assert.False(t, second.Released, c.name)
			w.grants(second)
		}
		assert.Len(t, said(), 2)
	})
}

func TestRenew_Idempotent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a := w.hold()
		q := w.join(1)
		fence := w.fence()
		renew := func(who token.Token, want bool) func() {
			return func() {
				f, ok := w.renew(who, 2*ttl, 0)
				assert.Equal(t, want, ok)
				if want {
					assert.Equal(t, fence, f)
				}
			}
		}
		w.again(renew(a, true), renew(a, true))
		w.again(renew(q[0], false), renew(q[0], false))
	})
}

func TestHeartbeat_Idempotent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		a := w.hold()
		q := w.join(2)
		stranger := w.token()
		var first, second lua.HeartbeatReply
		twice := func() {
			w.again(func() { first = w.heartbeat(q[0], q[1], stranger) }, func() { second = w.heartbeat(q[0], q[1], stranger) })
		}

		twice()
		assert.Equal(t, []lua.WaiterState{lua.StillQueued, lua.StillQueued, lua.NotQueued}, first.States)
		assert.Equal(t, first.States, second.States)
		assert.Equal(t, first.Fence, second.Fence)
		assert.Empty(t, said())

		w.release(a)
		w.expire()
		twice()
		assert.Equal(t, []lua.WaiterState{lua.NotQueued, lua.NowGranted, lua.NotQueued}, first.States)
		assert.Equal(t, []lua.WaiterState{lua.NotQueued, lua.Holding, lua.NotQueued}, second.States, "granted before the second beat")
		assert.Equal(t, w.fence(), second.Fence, "one fence step")
		assert.Greater(t, second.Fence, first.Fence)
		require.Len(t, said(), 2, "one by the release, one by the beat")
	})
}

func TestForceRelease_Idempotent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		fence := w.fence()
		var first, second lua.Handoff
		w.again(func() { first = w.forceRelease() }, func() { second = w.forceRelease() })
		assert.True(t, first.Released)
		assert.False(t, second.Released)
		assert.Greater(t, w.fence(), fence)
	})
}

func TestInspect_Idempotent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		w.join(3)
		before := w.state()
		w.again(func() { w.inspect(2) }, func() { w.inspect(2) })
		assert.Equal(t, before, w.state(), "inspecting changes nothing")
	})
}
