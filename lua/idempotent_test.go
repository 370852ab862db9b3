package lua_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// The second of two same requests changes nothing: of every verb in the table, of both kinds, from several states. The
// token of the verb is that of a holder, of the head of the queue, of another waiter, or of none.
func TestVerbs_Idempotent(t *testing.T) {
	t.Parallel()
	tokens := []token.Token{numbered("c", 1), numbered("c", 2), numbered("c", 3)}
	for _, k := range kinds {
		w := memory(t)
		now := w.freeze()
		w.lock = k.lock(w.rdb)
		ask := func(order ...int) { // for all permits: the first is the holder
			for _, i := range order {
				w.acquire(lua.Request{Token: tokens[i], Weight: 16})
			}
		}
		for name, setup := range map[string]func(){
			"idle":            func() {},
			"held":            func() { ask(0) },
			"held, others":    func() { ask(0, 1, 2) },
			"head":            func() { ask(1, 0, 2) },
			"behind":          func() { ask(1, 2, 0) },
			"expired":         func() { ask(0, 1); w.mini.SetTime(now.Add(ttl)) },
			"free, others":    func() { ask(1, 2); w.mini.SetTime(now.Add(waiterTTL - 1)); ask(2); w.mini.SetTime(now.Add(ttl)) },
			"left, tombstone": func() { ask(0); w.leave(tokens[0], ttl) },
			"fence lost":      func() { ask(0, 1); w.do("DEL", w.keys.Fence, lua.SemaphoreKeys(ns, "name").Fence) },
		} {
			for _, v := range lua.Verbs {
				w.do("FLUSHALL")
				w.mini.SetTime(now)
				setup()
				require.NoError(t, send(t.Context(), w.lock, v))
				once := w.mini.Dump()
				require.NoError(t, send(t.Context(), w.lock, v))
				assert.Equal(t, once, w.mini.Dump(), "%s of %s: %s", v.Name, k.name, name)
			}
		}
	}
}
