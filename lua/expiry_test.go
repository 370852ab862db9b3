package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

// expires checks that every key there is ends by itself, and soon enough.
func (w *world) expires(after string) {
	w.t.Helper()
	for _, key := range w.rdb.Keys(w.t.Context(), "*").Val() {
		most := map[string]time.Duration{"queue": waiterTTL + time.Second, "alive": waiterTTL + time.Second, "fence": day, "lock": ttl}
		limit, ok := most[key[strings.LastIndexByte(key, ':')+1:]]
		require.True(w.t, ok, "after %s: what is %q?", after, key)
		left := w.pttl(key)
		assert.Positive(w.t, left, "after %s: %s lasts for ever", after, key)
		assert.LessOrEqual(w.t, left, limit, "after %s: %s", after, key)
	}
}

func TestExpiry_EveryKeyExpires(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		w.expires("acquire")
		q := w.ticketed(8)
		w.expires("joining")
		w.acquire(q[1])
		w.expires("asking again")
		w.acquire(lua.Request{Try: true})
		w.expires("try")
		w.acquire(lua.Request{MaxWaiters: 1})
		w.expires("full")
		w.renew(holder, ttl, 0)
		w.expires("renew")
		w.do("DEL", w.keys.Fence)
		w.renew(holder, ttl, 0)
		w.expires("renew without a fence")
		w.heartbeat(q[0].Token, q[1].Token)
		w.expires("heartbeat")
		w.release(holder)
		w.expires("release")
		w.leave(q[0].Token, 0)
		w.expires("leave")
		w.leave(q[1].Token, waiterTTL)
		w.expires("leave, buried")
		w.expire()
		w.heartbeat(q[2].Token)
		w.expires("beat that admits")
		w.forceRelease()
		w.expires("force release")
		w.expire()
		w.acquire(lua.Request{})
		w.expires("acquire that admits another")
		w.expire()
		w.acquire(q[4])
		w.expires("acquire from the queue")
		w.kill(q[5].Token, q[6].Token)
		w.release(q[4].Token)
		w.expires("release over the dead")
		w.forget(q[5].Token)
		w.acquire(q[5])
		w.expires("return with a ticket")
		w.do("FLUSHALL")
		w.acquire(q[6])
		w.expires("lost data")
		w.expire()
		w.acquire(q[6])
		w.expires("rest")
		w.release(q[6].Token)
		w.leave(w.token(), waiterTTL)
		w.expires("burial on an idle lock")
		w.hold()
		w.join(1)
		w.expires("joining beside the buried")
		w.inspect(10)
		w.expires("inspect")
	})
}

func TestExpiry_AbandonedLockLeavesNothing(t *testing.T) {
	t.Parallel()
	w := memory(t)
	began := w.freeze()
	w.hold()
	w.join(3)
	left := func(after time.Duration) []string {
		w.mini.SetTime(began.Add(after))
		return w.rdb.Keys(t.Context(), "*").Val()
	}
	assert.ElementsMatch(t, keysOf(w.lock), left(min(ttl, waiterTTL)-time.Millisecond))
	assert.Equal(t, []string{w.keys.Fence}, left(max(ttl, waiterTTL)+time.Second))
	assert.Equal(t, []string{w.keys.Fence}, left(day-time.Millisecond))
	assert.Empty(t, left(day+time.Millisecond))
}

func TestExpiry_AbandonedQueueOnARealServer(t *testing.T) {
	t.Parallel()
	w := real(t)
	const short = 100 * time.Millisecond
	for range 3 {
		w.acquire(lua.Request{TTL: short, WaiterTTL: short})
	}
	assert.Eventually(t, func() bool {
		keys := w.rdb.Keys(t.Context(), "*").Val()
		return len(keys) == 1 && keys[0] == w.keys.Fence
	}, short+10*time.Second, 5*time.Millisecond)
}
