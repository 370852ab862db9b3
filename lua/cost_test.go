package lua_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// most is how long a script may keep Redis from others. SLOWLOG measures that by the wall clock, which on a busy
// machine counts other processes, too; so what is held to it is the processor time of the server's main thread
// between before and after the call. Neighbours on the same core stretch even that, and the server's own chores fall
// into it, but both only ever add: all calls of an operation have the same to do, so the cheapest shows what the script
// costs. The dearest, and how many entries SLOWLOG has, are reported.
const most = 10 * time.Millisecond

// processor returns the processor time that the server's main thread has used.
func (w *world) processor() (sum time.Duration) {
	w.t.Helper()
	info, err := w.rdb.Info(w.t.Context(), "cpu").Result()
	require.NoError(w.t, err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.HasSuffix(name, "_main_thread") {
			seconds, err := strconv.ParseFloat(value, 64)
			require.NoError(w.t, err)
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	require.Positive(w.t, sum)
	return sum
}

const many = 100_000

// cheap runs every operation several times and checks what each costs.
func (w *world) cheap(q []token.Token, free func()) {
	w.t.Helper()
	operations := []struct {
		name string
		call func(i int)
	}{
		{"join", func(int) { w.acquire(lua.Ask{}) }},
		{"ask again", func(i int) { w.acquire(lua.Ask{Token: q[len(q)-1-i]}) }},
		{"try", func(int) { w.acquire(lua.Ask{Try: true}) }},
		{"full", func(int) { w.acquire(lua.Ask{Bound: 1}) }},
		{"beat", func(i int) { w.beat(q[len(q)-(i+1)*lua.MostBeats : len(q)-i*lua.MostBeats]...) }},
		{"leave", func(i int) { w.leave(q[len(q)/2+i], ttl) }},
		{"inspect", func(int) { w.inspect(1000) }},
		{"release", func(int) { w.release(w.holder()) }},
		{"force release", func(int) { w.forceRelease() }},
	}
	w.do("CONFIG", "SET", "slowlog-log-slower-than", most.Microseconds())
	for _, operation := range operations {
		cost := make([]time.Duration, 5)
		for i := range cost {
			free()
			before := w.processor()
			operation.call(i)
			cost[i] = w.processor() - before
		}
		w.t.Logf("%-13s %6.2f to %.2f ms", operation.name, slices.Min(cost).Seconds()*1000, slices.Max(cost).Seconds()*1000)
		assert.Less(w.t, slices.Min(cost), most, operation.name)
	}
	w.t.Logf("SLOWLOG: %v entries over %v, by the wall clock", w.do("SLOWLOG", "LEN"), most)
}

// holder returns the token that holds the lock, or a new one.
func (w *world) holder() token.Token {
	w.t.Helper()
	if t, err := token.Parse(w.owner()); err == nil {
		return t
	}
	return w.token()
}

func TestNoScriptTakesTenMillisecondsWithAHundredThousandWaiters(t *testing.T) {
	w := real(t)
	w.hold()
	q := w.crowd(many, w.now().Add(time.Hour))
	w.cheap(q, func() {})
	assert.InDelta(t, many, w.do("ZCARD", w.keys.Queue), 100)
}

func TestNoScriptTakesTenMillisecondsWithAHundredThousandDeadWaiters(t *testing.T) {
	w := real(t)
	q := w.crowd(many, w.now().Add(-time.Second))
	w.cheap(q, w.expire) // so that every call has to sweep
	assert.Less(t, w.do("ZCARD", w.keys.Queue), int64(many-30_000), "they were swept")
}
