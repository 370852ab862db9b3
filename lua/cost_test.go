package lua_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// most is how long a script may keep Redis from others. SLOWLOG measures that by the wall clock, which on a busy
// machine counts other processes, too; so what is held to it is the processor time of the server's main thread
// between before and after the call. Neighbours on the same core stretch even that, and a machine may be slow; so a
// yardstick is measured beside each call, and a machine on which that takes longer than usual may take longer for the
// call. The server's own chores fall into it, too, but only ever add: all calls of an operation have the same to do, so
// the cheapest shows what the script costs. The dearest, and how many entries SLOWLOG has, are reported.
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

// yardstick does what our scripts do most. It takes as long as usual where the promise was made.
var yardstick = redis.NewScript(`
	for i = 1, 2000 do
		local record = redis.call('ZSCORE', KEYS[1], i) or redis.call('HGET', KEYS[1], i)
		tonumber(string.match(record or '1 2', '^(%d+) ') or 0)
	end`)

const (
	usual   = 2500 * time.Microsecond
	slowest = 4. // times as long: then it is not the machine
)

// cost returns what a call costs the server's main thread, where the yardstick takes as long as usual.
func (w *world) cost(call func()) time.Duration {
	w.t.Helper()
	before := w.processor()
	call()
	between := w.processor()
	require.ErrorIs(w.t, yardstick.Run(w.t.Context(), w.rdb, []string{"yardstick"}).Err(), redis.Nil)
	slow := min(max(1, float64(w.processor()-between)/float64(usual)), slowest)
	return time.Duration(float64(between-before) / slow)
}

// cheapest makes so many calls, each after setup, and up to ten until one costs less than most. It fails if none does.
func (w *world) cheapest(name string, calls int, setup func(), call func(i int)) {
	w.t.Helper()
	var cost []time.Duration
	for i := 0; i < calls || i < 10 && slices.Min(cost) >= most; i++ {
		setup()
		cost = append(cost, w.cost(func() { call(i) }))
	}
	w.t.Logf("%-16s %6.2f to %.2f ms", name, slices.Min(cost).Seconds()*1000, slices.Max(cost).Seconds()*1000)
	assert.Less(w.t, slices.Min(cost), most, name)
}

const many = 100_000

// cheap runs every operation several times and checks what each costs.
func (w *world) cheap(q []token.Token, free func()) {
	w.t.Helper()
	operations := []struct {
		name string
		call func(i int)
	}{
		{"join", func(int) { w.acquire(lua.Request{}) }},
		{"ask again", func(i int) { w.acquire(lua.Request{Token: q[len(q)-1-i]}) }},
		{"try", func(int) { w.acquire(lua.Request{Try: true}) }},
		{"full", func(int) { w.acquire(lua.Request{MaxWaiters: 1}) }},
		{"heartbeat", func(i int) { w.heartbeat(q[len(q)-(i+1)*lua.MaxHeartbeat : len(q)-i*lua.MaxHeartbeat]...) }},
		{"leave", func(i int) { w.leave(q[len(q)/2+i], ttl) }},
		{"inspect", func(int) { w.inspect(1000) }},
		{"release", func(int) { w.release(w.holder()) }},
		{"force release", func(int) { w.forceRelease() }},
	}
	w.do("CONFIG", "SET", "slowlog-log-slower-than", most.Microseconds())
	for _, operation := range operations {
		w.cheapest(operation.name, 5, free, operation.call)
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

func TestCost_HundredThousandWaiters(t *testing.T) {
	w := real(t)
	w.hold()
	q := w.crowd(many, w.now().Add(time.Hour))
	w.cheap(q, func() {})
	assert.InDelta(t, many, w.do("ZCARD", w.keys.Queue), 100)
}

func TestCost_HundredThousandExpiredWaiters(t *testing.T) {
	w := real(t)
	q := w.crowd(many, w.now().Add(-time.Second))
	w.cheap(q, w.expire) // so that every call has to sweep
	assert.Less(t, w.do("ZCARD", w.keys.Queue), int64(many-30_000), "they were swept")
}
