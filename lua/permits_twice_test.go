package lua_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// again checks that an operation which is sent a second time leaves everything as the first has left it.
func (w *permitWorld) again(first, second func()) {
	w.t.Helper()
	first()
	once := w.state()
	second()
	assert.Equal(w.t, once, w.state(), "the second time has changed something")
}

func TestPermits_Idempotent(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		if w.mini != nil {
			w.freeze()
		}
		said := w.listen("c")
		var a, q []token.Token
		type handoff struct {
			released bool
			to       []token.Token
		}
		asking := func(want lua.Outcome, capacity int, ask lua.Request) func(*testing.T) {
			return func(t *testing.T) {
				ask.Token = numbered("twice", 1)
				var first, second lua.Reply
				w.again(func() { first = w.with(capacity, ask) }, func() { second = w.with(capacity, ask) })
				first.RetryAfter, second.RetryAfter = 0, 0 // time passes
				assert.Equal(t, want, first.Outcome)
				assert.Equal(t, first, second)
			}
		}
		handing := func(do func() lua.Handoff, want func() handoff) func(*testing.T) {
			return func(t *testing.T) {
				var first, second lua.Handoff
				w.again(func() { first = do() }, func() { second = do() })
				assert.Equal(t, want().released, first.Released)
				w.grants(first, want().to...)
				assert.False(t, second.Released)
				w.grants(second)
				assert.Len(t, said(), len(want().to))
			}
		}
		for name, c := range map[string]struct {
			setup func()
			do    func(*testing.T)
		}{
			"granted, idle":        {func() {}, asking(lua.Granted, 4, lua.Request{Weight: 3})},
			"granted, others hold": {func() { w.hold(1) }, asking(lua.Granted, 4, lua.Request{Weight: 3})},
			"granted, expired":     {func() { w.expire(w.hold(1, 3)...) }, asking(lua.Granted, 4, lua.Request{Weight: 4})},
			"granted, another capacity": {
				func() { w.expire(w.hold(1)...) }, asking(lua.Granted, 9, lua.Request{Weight: 9}),
			},
			"granted, from the queue": {func() {
				a = w.hold(4)
				w.acquire(lua.Request{Token: numbered("twice", 1), Weight: 2})
				w.expire(a...)
			}, asking(lua.Granted, 4, lua.Request{Weight: 2})},
			"queued":        {func() { w.hold(2) }, asking(lua.Queued, 4, lua.Request{Weight: 3})},
			"queued, light": {func() { w.hold(2); w.join(3) }, asking(lua.Queued, 4, lua.Request{Weight: 1})},
			"queued, resting": {
				func() {}, asking(lua.Queued, 4, lua.Request{Weight: 3, Ticket: 1e15 + 1}),
			},
			"busy": {func() { w.hold(2) }, asking(lua.Busy, 4, lua.Request{Weight: 3, Try: true})},
			"busy, one let in": {func() { a = w.hold(4); w.join(2); w.expire(a...) }, asking(
				lua.Busy, 4, lua.Request{Weight: 3, Try: true},
			)},
			"full":     {func() { w.hold(2); w.join(3) }, asking(lua.Full, 4, lua.Request{MaxWaiters: 1})},
			"capacity": {func() { w.hold(2); w.join(3) }, asking(lua.CapacityDiffers, 5, lua.Request{})},
			"release": {func() { a = w.hold(3, 1); q = w.join(1, 2, 4) }, handing(
				func() lua.Handoff { return w.release(a[0]) }, func() handoff { return handoff{true, q[:2]} },
			)},
			"release, one of many": {func() { a = w.hold(3, 1) }, handing(
				func() lua.Handoff { return w.release(a[0]) }, func() handoff { return handoff{true, nil} },
			)},
			"release, the last": {func() { a = w.hold(3) }, handing(
				func() lua.Handoff { return w.release(a[0]) }, func() handoff { return handoff{true, nil} },
			)},
			"leave, a holder": {func() { a = w.hold(3, 1); q = w.join(1, 2, 4) }, handing(
				func() lua.Handoff { return w.leave(a[0], 0) }, func() handoff { return handoff{true, q[:2]} },
			)},
			"leave, the heavy head": {func() { a = w.hold(2); q = w.join(3, 1, 1, 1) }, handing(
				func() lua.Handoff { return w.leave(q[0], ttl) }, func() handoff { return handoff{false, q[1:3]} },
			)},
			"leave, somebody behind": {func() { a = w.hold(2); q = w.join(3, 2, 1) }, handing(
				func() lua.Handoff { return w.leave(q[1], 0) }, func() handoff { return handoff{} },
			)},
			"force release": {func() { w.hold(1, 3); q = w.join(2, 2, 4) }, func(t *testing.T) {
				seen := w.fence()
				handing(func() lua.Handoff {
					h, err := w.lock.ForceRelease(t.Context(), ttl, seen)
					assert.NoError(t, err)
					return h
				}, func() handoff { return handoff{true, q[:2]} })(t)
			}},
			"renew": {func() { a = w.hold(1, 2); w.join(4) }, func(t *testing.T) {
				want := w.remembered(a[0])
				renew := func() {
					f, ok := w.renew(a[0], 2*ttl, 0)
					assert.True(t, ok)
					assert.Equal(t, want, f)
				}
				w.again(renew, renew)
			}},
			"heartbeat": {func() { a = w.hold(1, 3); q = w.join(1, 4); w.expire(a[1]) }, func(t *testing.T) {
				var first, second lua.HeartbeatReply
				who := []token.Token{q[0], q[1], a[0], a[1]}
				w.again(func() { first = w.heartbeat(who...) }, func() { second = w.heartbeat(who...) })
				assert.Equal(t, []lua.WaiterState{lua.NowGranted, lua.StillQueued, lua.Holding, lua.NotQueued}, first.States)
				assert.Equal(t, []lua.WaiterState{lua.Holding, lua.StillQueued, lua.Holding, lua.NotQueued}, second.States)
				assert.Len(t, said(), 1)
			}},
			"inspect": {func() { w.hold(1, 2); w.join(4, 1) }, func(*testing.T) {
				before := w.state()
				w.again(func() { w.inspect(2) }, func() { w.inspect(2) })
				assert.Equal(t, before, w.state(), "inspecting changes nothing")
			}},
		} {
			w.do("FLUSHALL")
			c.setup()
			said()
			t.Run(name, c.do)
		}
	})
}
