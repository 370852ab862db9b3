package lua_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// cheap runs every operation several times, each after setup, and checks what the cheapest costs (cost_test.go says
// why that one).
func (w *permitWorld) cheap(setup func() (holders, waiters []token.Token)) {
	w.t.Helper()
	w.do("CONFIG", "SET", "slowlog-log-slower-than", most.Microseconds())
	for _, o := range []struct {
		name string
		call func(i int, a, q []token.Token)
	}{
		{"join", func(int, []token.Token, []token.Token) { w.acquire(lua.Ask{Weight: 2}) }},
		{"ask again", func(i int, _, q []token.Token) { w.acquire(lua.Ask{Token: q[len(q)-1-i]}) }},
		{"try", func(int, []token.Token, []token.Token) { w.acquire(lua.Ask{Try: true}) }},
		{"another capacity", func(int, []token.Token, []token.Token) { w.with(9, lua.Ask{}) }},
		{"renew", func(i int, a, _ []token.Token) { w.renew(a[i], ttl, 0) }},
		{"beat", func(i int, _, q []token.Token) { w.beat(q[max(0, len(q)-lua.MostBeats):]...) }},
		{"release", func(i int, a, _ []token.Token) { w.release(a[len(a)/2+i]) }},
		{"leave", func(i int, _, q []token.Token) { w.leave(q[len(q)/2+i], ttl) }},
		{"inspect", func(int, []token.Token, []token.Token) { w.inspect(1000) }},
		{"force release", func(int, []token.Token, []token.Token) { w.forceRelease() }},
	} {
		cost := make([]time.Duration, 3)
		for i := range cost {
			a, q := setup()
			cost[i] = w.cost(func() { o.call(i, a, q) })
		}
		w.t.Logf("%-16s %6.2f to %.2f ms", o.name, slices.Min(cost).Seconds()*1000, slices.Max(cost).Seconds()*1000)
		assert.Less(w.t, slices.Min(cost), most, o.name)
	}
	w.t.Logf("SLOWLOG: %v entries over %v, by the wall clock", w.do("SLOWLOG", "LEN"), most)
}

const holding = 10_000

// With the queue of many waiters, which is made once, and the holders made anew before each call.
func TestNoScriptOfPermitsTakesTenMilliseconds(t *testing.T) {
	for name, c := range map[string]struct {
		waiters    int
		expired    int           // of the holders
		queueUntil time.Duration // when patience ends, from now
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
			w.cheap(func() (a, _ []token.Token) {
				w.do("DEL", w.keys.Permits, w.keys.Holders)
				w.do("HSET", w.keys.Holders, "capacity", holding, "used", 0)
				a = w.hoard(c.expired, w.now().Add(-time.Hour))
				return append(a, w.hoard(holding-c.expired, w.now().Add(time.Hour))...), q
			})
		})
	}
}
