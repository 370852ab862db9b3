package lua_test

import (
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// cheap runs every operation of holders a and waiters q several times, each after setup, and checks what the cheapest
// costs (cost_test.go says why that one).
func (w *permitWorld) cheap(a, q []token.Token, setup func()) {
	w.t.Helper()
	w.do("CONFIG", "SET", "slowlog-log-slower-than", most.Microseconds())
	for _, o := range []struct {
		name string
		call func(i int)
	}{
		{"join", func(int) { w.acquire(lua.Request{Weight: 2}) }},
		{"ask again", func(i int) { w.acquire(lua.Request{Token: q[len(q)-1-i]}) }},
		{"try", func(int) { w.acquire(lua.Request{Try: true}) }},
		{"another capacity", func(int) { w.with(9, lua.Request{}) }},
		{"renew", func(i int) { w.renew(a[i], ttl, 0) }},
		{"heartbeat", func(i int) { w.heartbeat(q[max(0, len(q)-lua.MaxHeartbeat):]...) }},
		{"release", func(i int) { w.release(a[len(a)/2+i]) }},
		{"leave", func(i int) { w.leave(q[(len(q)/2+i)%len(q)], ttl) }},
		{"inspect", func(int) { w.inspect(1000) }},
		{"force release", func(int) { w.forceRelease() }},
	} {
		w.cheapest(o.name, 3, setup, o.call)
	}
	w.t.Logf("SLOWLOG: %v entries over %v, by the wall clock", w.do("SLOWLOG", "LEN"), most)
}

const holding = 10_000

// With the queue of many waiters, which is made once, and the holders made anew before each call.
func TestCost_Permits(t *testing.T) {
	for name, c := range map[string]struct {
		waiters    int
		expired    int           // of the holders
		queueUntil time.Duration // when the waiters expire, from now
	}{
		"living holders, few waiters":    {10, 0, time.Hour},
		"living holders, many waiters":   {many, 0, time.Hour},
		"half of them expired":           {many, holding / 2, time.Hour},
		"expired holders, many waiters":  {many, holding, time.Hour},
		"expired holders, dead waiters":  {many, holding, -time.Hour},
		"expired holders, the head dead": {many, holding, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := real(t).asSemaphore(holding)
			w.hold(1)
			q := w.crowd(c.waiters, w.now().Add(c.queueUntil))
			if c.queueUntil == 0 { // as much as one call can do: sweep, drop and admit
				for _, who := range q[999:2500] {
					w.do("ZADD", w.keys.Alive, w.now().Add(time.Hour).UnixMicro(), short(who))
				}
			}
			w.do("DEL", w.keys.Permits, w.keys.Holders)
			w.do("HSET", w.keys.Holders, "capacity", holding, "used", 0)
			a := w.hoard(c.expired, w.now().Add(-time.Hour))
			a = append(a, w.hoard(holding-c.expired, w.now().Add(time.Hour))...)
			w.do("COPY", w.keys.Permits, "permits")
			w.do("COPY", w.keys.Holders, "holders")
			w.cheap(a, q, func() {
				w.do("COPY", "permits", w.keys.Permits, "REPLACE")
				w.do("COPY", "holders", w.keys.Holders, "REPLACE")
			})
		})
	}
}
