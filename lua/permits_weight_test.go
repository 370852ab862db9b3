package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

func TestPermits_UpToTheCapacity(t *testing.T) {
	semaphores(t, 5, func(t *testing.T, w *permitWorld) {
		a := w.hold(2, 2, 1)
		want := holdings{a[0]: 2, a[1]: 2, a[2]: 1}
		w.enter(lua.Queued, 1, 5)
		w.try(lua.Busy, 1)
		w.held(want)
		w.grants(w.release(w.token()))
		w.held(want, "a stranger gives nothing back")
	})
}

func TestPermits_HeavyWaiterIsNotOvertaken(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		said := w.listen("c")
		holder := w.hold(2)[0]
		heavy := w.join(3)[0]
		light := w.join(1, 1)
		for _, c := range []struct {
			name string
			call func()
		}{
			{"try", func() { w.unchanged(func() { w.try(lua.Busy, 1) }, "a try leaves no trace") }},
			{"join", func() { light = append(light, w.join(1)...) }},
			{"ask", func() { assert.Equal(t, lua.Queued, w.acquire(lua.Request{Token: light[0]}).Outcome) }},
			{"heartbeat", func() { assert.NotContains(t, w.heartbeat(light...).States, lua.NowGranted) }},
			{"release", func() { w.grants(w.release(w.token())) }},
			{"a light one leaves", func() { w.grants(w.leave(light[2], 0)) }},
			{"renew", func() { w.renew(holder, ttl, 0) }},
		} {
			c.call()
			w.held(holdings{holder: 2}, c.name)
		}
		w.grants(w.release(holder), heavy, light[0])
		w.held(holdings{heavy: 3, light[0]: 1})
		assert.Len(t, said(), 2)
		assert.Equal(t, texts(light[1]), w.queue())
	})
}

// What keeps the others waiting is only that the heavy one is there.
func TestPermits_ExpiredHeavyWaiterBlocksNone(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		for name, c := range map[string]struct {
			dead bool
			call func(heavy token.Token)
		}{
			"leaves":                    {false, func(heavy token.Token) { w.leave(heavy, 0) }},
			"dies, and one beats":       {true, func(token.Token) { w.heartbeat(w.token()) }},
			"dies, and one tries":       {true, func(token.Token) { w.try(lua.Busy, 2) }},
			"dies, and one releases":    {true, func(token.Token) { w.release(w.token()) }},
			"dies, and one leaves":      {true, func(token.Token) { w.leave(w.token(), 0) }},
			"dies, and one joins":       {true, func(token.Token) { w.leave(w.join(3)[0], 0) }},
			"dies, and one is too late": {true, func(token.Token) { w.with(9, lua.Request{}) }},
		} {
			w.do("FLUSHALL")
			holder := w.hold(2)[0]
			heavy := w.join(3)[0]
			light := w.join(1, 1, 1)
			if c.dead {
				w.kill(heavy)
			}
			c.call(heavy)
			w.held(holdings{holder: 2, light[0]: 1, light[1]: 1}, name)
			require.Equal(t, texts(light[2]), w.queue(), name)
			require.NotContains(t, w.state().Wants, heavy.Text(), name)
		}
	})
}

func TestPermits_ReleaseAdmitsThoseThatFitInOrder(t *testing.T) {
	semaphores(t, 5, func(t *testing.T, w *permitWorld) {
		for _, c := range []struct {
			queue    []int
			dead     []int
			admitted []int // by their index
		}{
			{queue: []int{1, 1, 1, 1, 1, 1}, admitted: []int{0, 1, 2, 3, 4}},
			{queue: []int{3, 1, 2, 1}, admitted: []int{0, 1}},
			{queue: []int{5, 1}, admitted: []int{0}},
			{queue: []int{1, 5, 1}, admitted: []int{0}},
			{queue: []int{4, 1, 1}, admitted: []int{0, 1}},
			{queue: []int{5, 2, 3, 1}, dead: []int{0}, admitted: []int{1, 2}},
			{queue: []int{2, 5, 3, 1}, dead: []int{1}, admitted: []int{0, 2}},
			{queue: []int{4, 2, 1}, dead: []int{2}, admitted: []int{0}},
		} {
			w.do("FLUSHALL")
			said := w.listen("c")
			holder := w.hold(5)[0]
			q := w.join(c.queue...)
			for _, i := range c.dead {
				w.kill(q[i])
			}
			want, weights := []token.Token{}, holdings{}
			for _, i := range c.admitted {
				want = append(want, q[i])
				weights[q[i]] = c.queue[i]
			}
			h := w.release(holder)
			assert.False(t, h.More)
			w.grants(h, want...)
			w.held(weights, "%+v", c)
			require.Len(t, said(), len(want), "%+v", c)
		}
	})
}

func TestPermits_WaiterForAll(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		a := w.hold(1, 1, 1)
		q := w.join(3, 1)
		w.grants(w.release(a[1]))
		w.grants(w.release(a[0]))
		w.grants(w.release(a[2]), q[0])
		w.held(holdings{q[0]: 3})
		w.grants(w.release(q[0]), q[1])
		w.held(holdings{q[1]: 1})
	})
}

func TestPermits_AtMost128AdmittedInOneCall(t *testing.T) {
	rwMutexes(t, func(t *testing.T, w *permitWorld) {
		said := w.listen("c")
		first := w.hold(writer)[0]
		rest := w.join(ones(300)...)
		for i, n := range []int{128, 128, 44} {
			h := w.release(first)
			assert.Equal(t, i == 0, h.Released, "only the first had anything to give")
			assert.Equal(t, n == 128, h.More, "call %d", i+1)
			w.grants(h, rest[:n]...)
			rest = rest[n:]
			assert.Len(t, said(), n)
		}
		assert.Len(t, w.holders(), 300)
	})
}

// Whoever calls carries on with it, and is not let in before those who stand there.
func TestPermits_RequestComesAfterThoseToBeAdmitted(t *testing.T) {
	rwMutexes(t, func(t *testing.T, w *permitWorld) {
		first := w.hold(writer)[0]
		q := w.join(ones(300)...)
		w.grants(w.release(first), q[:128]...)
		p := w.heartbeat(q[299])
		assert.Equal(t, lua.StillQueued, p.States[0])
		assert.Zero(t, p.RetryAfter, "ask at once")
		w.held(each(reader, q[:256]...))
		w.join(writer)
		late := w.token()
		w.held(each(reader, q...))
		assert.Equal(t, lua.Queued, w.acquire(lua.Request{Token: late}).Outcome, "a writer waits")
	})
}

func TestPermits_RetryAtOnceBehindThoseToBeAdmitted(t *testing.T) {
	rwMutexes(t, func(t *testing.T, w *permitWorld) {
		first := w.hold(writer)[0]
		q := w.join(ones(260)...)
		w.grants(w.release(first), q[:128]...)
		who := w.token()
		a := w.acquire(lua.Request{Token: who})
		assert.Equal(t, lua.Queued, a.Outcome)
		assert.Equal(t, 5, a.Position)
		assert.Zero(t, a.RetryAfter)
		assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: who}).Outcome)
		assert.Len(t, w.holders(), 261)
	})
}

func TestRWMutex_ReadersTogetherWriterAlone(t *testing.T) {
	rwMutexes(t, func(t *testing.T, w *permitWorld) {
		r := w.hold(reader, reader, reader)
		w.try(lua.Busy, writer)
		write := w.join(writer)[0]
		w.unchanged(func() { w.try(lua.Busy, reader) }, "no reader passes a writer that waits")
		late := w.join(reader, reader, writer, reader)
		w.grants(w.release(r[0]))
		w.grants(w.release(r[2]))
		w.held(each(reader, r[1]))
		w.grants(w.release(r[1]), write)
		w.held(each(writer, write))
		w.try(lua.Busy, reader)
		w.grants(w.release(write), late[0], late[1])
		w.held(each(reader, late[:2]...))
		w.grants(w.leave(late[2], 0), late[3])
		w.held(each(reader, late[0], late[1], late[3]))
		w.try(lua.Granted, reader) // no writer waits any more
	})
}

// The head waits for more; the second waits for the head to go in, or to die.
func TestRetryAfter_OfPermits(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, w *permitWorld) {
		w.enter(lua.Granted, 1)
		w.acquire(lua.Request{Weight: 2, TTL: ttl / 2})
		head, second := w.token(), w.token()
		a := w.acquire(lua.Request{Token: head, Weight: 3})
		assert.InDelta(t, (ttl / 2).Seconds(), a.RetryAfter.Seconds(), 10, "the next lease's end")
		a = w.acquire(lua.Request{Token: second, WaiterTTL: time.Hour})
		assert.InDelta(t, waiterTTL.Seconds(), a.RetryAfter.Seconds(), 10, "when the head expires: one permit is free")
		assert.InDelta(t, waiterTTL.Seconds(), w.heartbeat(second).RetryAfter.Seconds(), 10)
	})
}
