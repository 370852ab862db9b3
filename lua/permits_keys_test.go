package lua_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/lua"
)

// What three locks of one name have, by their kind.
func keysByKind(name string) map[string][]string {
	return map[string][]string{
		"mutex": mutexKeys(ns, name), "semaphore": keysOf(lua.Semaphore(nil, ns, name, 1)),
		"read-write lock": keysOf(lua.RWMutex(nil, ns, name)),
	}
}

func TestKeys_OfPermitsAreInTheSlotOfTheirName(t *testing.T) {
	owners := map[string]string{}
	for _, name := range nasty {
		slot := keySlot(lua.MutexKeys(ns, name).Queue)
		for kind, keys := range keysByKind(name) {
			for _, key := range keys {
				assert.Equal(t, slot, keySlot(key), "%q", key)
				assert.Empty(t, owners[key], "%q is of a %s of that name, too", key, kind)
				owners[key] = kind
			}
		}
	}
	assert.Len(t, owners, len(nasty)*(4+6+6))
}

func TestKeys_KindsOfOneNameShareNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, name := range nasty {
			w.do("FLUSHALL")
			mutex := lua.Mutex(w.rdb, ns, name)
			for _, lock := range []lua.Lock{mutex, lua.Semaphore(w.rdb, ns, name, 1), lua.RWMutex(w.rdb, ns, name)} {
				w.lock = lock
				holder := w.token()
				assert.Equal(t, lua.Granted, w.acquire(lua.Request{Token: holder, Weight: max(lock.Capacity(), 1)}).Outcome, "%q", name)
				next := w.token()
				assert.Equal(t, lua.Queued, w.acquire(lua.Request{Token: next, Weight: 1}).Outcome, "%q", name)
				w.grants(w.release(holder), next)
			}
			want := []string{}
			for _, keys := range keysByKind(name) {
				for _, key := range keys {
					if w.rdb.Exists(t.Context(), key).Val() == 1 {
						want = append(want, key)
					}
				}
			}
			assert.Len(t, want, 2+4+4, "%q: fence and lock, or fence, permits, holders and what was wanted", name)
			assert.ElementsMatch(t, want, w.rdb.Keys(t.Context(), "*").Val(), "%q: no key but these", name)
		}
	})
}
