package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

func TestCapacity_StandsWhileTheLockIsInUse(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		for name, setup := range map[string]func(){
			"held":                     func() { w.hold(1) },
			"all held":                 func() { w.hold(2, 2) },
			"held, and one waits":      func() { w.hold(2); w.join(3) },
			"all held, and many wait":  func() { w.hold(4); w.join(1, 4, 2) },
			"held, and the dead wait":  func() { w.hold(4); w.kill(w.join(1, 2)...) },
			"one expired, another not": func() { w.expire(w.hold(1, 3)[0]); w.try(lua.Busy, 2) },
		} {
			for _, capacity := range []int{1, 3, 5, 1 << 31} {
				w.do("FLUSHALL")
				setup()
				w.unchanged(func() {
					for _, a := range []lua.Request{{}, {Try: true}, {MaxWaiters: 1}, {Ticket: 1e15 + 1}} {
						answer := w.with(capacity, a)
						require.Equal(t, lua.Reply{Outcome: lua.CapacityDiffers, Capacity: 4}, answer, "%s: %+v", name, a)
					}
				}, name)
			}
		}
	})
}

// Only waiters are left: they get what they came for.
func TestCapacity_StandsWhileAWaiterIsQueued(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		said := w.listen("c")
		holder := w.hold(4)[0]
		q := w.join(3, 2)
		w.expire(holder)
		assert.Equal(t, lua.Reply{Outcome: lua.CapacityDiffers, Capacity: 4}, w.with(9, lua.Request{}))
		w.held(holdings{q[0]: 3}, "asking lets in who was to be let in")
		assert.Len(t, said(), 1)
		w.expire(q[0])
		assert.Equal(t, lua.CapacityDiffers, w.with(9, lua.Request{Try: true}).Outcome)
		w.held(holdings{q[1]: 2})
		w.release(q[1])
		assert.Equal(t, lua.Granted, w.with(9, lua.Request{Weight: 9}).Outcome)
	})
}

func TestCapacity_ChangesWhenTheLockIsIdle(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		for name, setup := range map[string]func(){
			"never used":         func() {},
			"released":           func() { w.release(w.hold(3)[0]) },
			"expired":            func() { w.expire(w.hold(2, 1)...) },
			"expired as a whole": func() { w.hold(2, 1); w.do("DEL", w.keys.Permits) },
			"left":               func() { h, q := w.hold(4), w.join(2); w.expire(h...); w.leave(q[0], 0) },
			"buried":             func() { h := w.hold(3); w.leave(w.token(), ttl); w.leave(h[0], ttl) },
			"dead waiters":       func() { h, q := w.hold(4), w.join(2, 1); w.kill(q...); w.expire(h...) },
			"a queue expired as a whole": func() {
				h := w.hold(4)
				w.join(2, 1)
				w.expire(h...)
				w.do("DEL", w.keys.Queue, w.keys.Alive)
			},
			"taken by force": func() { w.hold(2, 1); w.forceRelease() },
		} {
			for _, capacity := range []int{2, 9} {
				for _, try := range []bool{false, true} {
					w.do("FLUSHALL")
					setup()
					who := w.token()
					require.Equal(t, lua.Granted, w.with(capacity, lua.Request{Token: who, Weight: capacity, Try: try}).Outcome, name)
					w.held(holdings{who: capacity}, name)
					require.Equal(t, capacity, w.inspect(1).Capacity, name)
					require.Equal(t, lua.CapacityDiffers, w.acquire(lua.Request{}).Outcome, "%s: the old one is refused now", name)
					w.grants(w.release(who))
				}
			}
		}
	})
}

func TestCapacity_EndsWithTheLastLease(t *testing.T) {
	t.Parallel()
	w := memory(t).asSemaphore(4)
	began := w.freeze()
	w.acquire(lua.Request{Weight: 3, TTL: time.Second})
	w.acquire(lua.Request{Weight: 1, TTL: 2 * time.Second})
	w.mini.SetTime(began.Add(2*time.Second - time.Microsecond))
	assert.Equal(t, lua.CapacityDiffers, w.with(9, lua.Request{Weight: 9}).Outcome)
	w.mini.SetTime(began.Add(2 * time.Second))
	assert.Equal(t, lua.Granted, w.with(9, lua.Request{Weight: 9}).Outcome)
}
