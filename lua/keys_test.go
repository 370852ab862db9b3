package lua_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// nasty names try to leave their hash tag, or to be another name.
var nasty = []string{
	"a", "a b", "a\x00b", "a\r\nb", "{", "}", "{}", "}{", "{a}", "a}", "}a", "a}:lock", "{}:queue", "%", "%7D", "%7d", "%257D", "%%", "%25",
	"\xff\xfe", "ü", "*", "a:queue", ":{b}:", "wake:c", strings.Repeat("}", 1024), strings.Repeat("\x00", 1024),
}

// keysOf are all keys of a lock.
func keysOf(l lua.Lock) []string {
	names, _ := l.Keys()
	return names
}

func mutexKeys(namespace, name string) []string { return keysOf(lua.Mutex(nil, namespace, name)) }

// The structs that callers get have the keys that the scripts get, each in its field.
func TestKeys_OfTheStructsAreThoseOfTheLock(t *testing.T) {
	m, s, rw := lua.MutexKeys(ns, "a{"), lua.SemaphoreKeys(ns, "a{"), lua.RWMutexKeys(ns, "a{")
	const p = "ns:{a%7B}:"
	assert.Equal(t, []string{p + "queue", p + "alive", p + "fence", p + "lock"}, mutexKeys(ns, "a{"))
	assert.Equal(t, lua.Keys{Queue: p + "queue", Alive: p + "alive", Fence: p + "fence", Lock: p + "lock"}, m)
	for prefix, k := range map[string]struct {
		fields lua.PermitKeys
		lock   lua.Lock
	}{p + "sem:": {s, lua.Semaphore(nil, ns, "a{", 1)}, p + "rw:": {rw, lua.RWMutex(nil, ns, "a{")}} {
		assert.Equal(t, lua.PermitKeys{
			Queue: prefix + "queue", Alive: prefix + "alive", Fence: prefix + "fence", Permits: prefix + "permits",
			Holders: prefix + "holders", Wants: prefix + "wants",
		}, k.fields)
		assert.Equal(t, []string{
			k.fields.Queue, k.fields.Alive, k.fields.Fence, k.fields.Permits, k.fields.Holders, k.fields.Wants,
		}, keysOf(k.lock))
	}
}

// keySlot is what the Redis Cluster specification says.
func keySlot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

func TestKeys_OfALockAreInOneClusterSlot(t *testing.T) {
	rdb := redistest.StartCluster(t, 1).Masters[0].Client()
	for _, name := range nasty {
		slots := map[int64]bool{}
		for _, key := range mutexKeys(ns, name) {
			n, err := rdb.ClusterKeySlot(t.Context(), key).Result()
			require.NoError(t, err)
			slots[n] = true
			assert.Equal(t, int64(keySlot(key)), n, "%q", key)
		}
		assert.Len(t, slots, 1, "%q", name)
	}
}

func names() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("{}%:257BDbd\x00\r\na")), 1, 12, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 12), func(b []byte) string { return string(b) }),
		rapid.SampledFrom(nasty),
	)
}

// looksLike makes a name that is, unescaped, the escaped form of another.
var looksLike = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")

func TestKeys_NoTwoNamesShareAKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spaces := rapid.StringMatching(`[a-z:%]{0,3}`)
		one := names().Draw(t, "one")
		two := rapid.OneOf(names(), rapid.Just(looksLike.Replace(one))).Draw(t, "two")
		here, there := spaces.Draw(t, "here"), spaces.Draw(t, "there")
		if one == two && here == there {
			t.Skip("one lock")
		}
		a, b := mutexKeys(here, one), mutexKeys(there, two)
		seen := map[string]bool{}
		for _, key := range append(a, b...) {
			require.False(t, seen[key], "%q and %q in %q and %q share %q", one, two, here, there, key)
			seen[key] = true
		}
		for _, key := range a {
			require.Equal(t, keySlot(a[0]), keySlot(key))
			require.True(t, strings.HasPrefix(key, here+":{"))
		}
		require.NotEqual(t, lua.Mutex(nil, here, one).Key(), lua.Mutex(nil, there, two).Key())
	})
}

func TestKeys_NoTwoNastyNamesShareAKey(t *testing.T) {
	seen := map[string]string{}
	for _, name := range nasty {
		for _, key := range mutexKeys(ns, name) {
			assert.Empty(t, seen[key], "%q and %q share %q", name, seen[key], key)
			seen[key] = name
		}
	}
}

func TestKeys_EveryNameIsALockOfItsOwn(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		for _, name := range nasty {
			w.lock = lua.Mutex(w.rdb, ns, name)
			w.keys = lua.MutexKeys(ns, name)
			holder := w.hold()
			head := w.join(1)[0]
			w.grants(w.release(holder), head)
			assert.Equal(t, head.Text(), w.owner(), "%q", name)
			assert.Len(t, said(), 1, "%q", name)
		}
		assert.Len(t, w.rdb.Keys(t.Context(), "*").Val(), 2*len(nasty), "a lock and a fence each")
	})
}

// Each key has the type of the table, which names a key that has another one in errors.
func TestKeys_HaveTheTypesOfTheTable(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, lock := range []lua.Lock{
			lua.Mutex(w.rdb, ns, "name"), lua.Semaphore(w.rdb, ns, "name", 2), lua.RWMutex(w.rdb, ns, "name"),
		} {
			w.lock = lock
			for range 2 { // a holder and a waiter
				w.acquire(lua.Request{Weight: max(lock.Capacity(), 1)})
			}
			names, types := lock.Keys()
			for i, name := range names {
				assert.Equal(t, types[i], w.do("TYPE", name), name)
			}
		}
	})
}
