package view

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// names are such that somebody could take them for something else.
var names = []string{
	"billing:42", "a", "50%", "%25", "%7B", "{", "}", "}:lock", "{a}:sem:queue", "a*b", "a?b", "a[b]c", `a\b`, "日本語",
	"\x1b[31mred", "\xff\xfe", "a b", "\n", "a:{b}:rw:permits", "]", "^-", "%257b",
}

// keysOf are all keys of all locks of a name, and those of them that show that a lock is in use.
func keysOf(namespace, name string) (all []string, signs map[string]ID) {
	m := lua.MutexKeys(namespace, name)
	s, rw := lua.SemaphoreKeys(namespace, name), lua.RWMutexKeys(namespace, name)
	all = []string{
		m.Queue, m.Alive, m.Fence, m.Lock,
		s.Queue, s.Alive, s.Fence, s.Permits, s.Holders, s.Wants,
		rw.Queue, rw.Alive, rw.Fence, rw.Permits, rw.Holders, rw.Wants,
	}
	return all, map[string]ID{
		m.Queue: {Mutex, name}, m.Lock: {Mutex, name},
		s.Queue: {Semaphore, name}, s.Permits: {Semaphore, name},
		rw.Queue: {RW, name}, rw.Permits: {RW, name},
	}
}

func TestAKeyTellsItsLock(t *testing.T) {
	for _, namespace := range []string{"fairlock", "a:b", "x*[y]", "%25", `\`} {
		for _, name := range names {
			all, signs := keysOf(namespace, name)
			for _, key := range all {
				id, ok := parse(namespace, key)
				want, sign := signs[key]
				require.Equal(t, sign, ok, key)
				if sign {
					require.Equal(t, want, id, key)
				}
				_, ok = parse(namespace+"x", key)
				require.False(t, ok, "another namespace")
			}
		}
	}
}

func TestWhatIsNoKeyOfOursTellsNothing(t *testing.T) {
	for _, key := range []string{
		"", "fairlock", "fairlock:{", "fairlock:{}:lock", "fairlock:{a}", "fairlock:{a}:", "fairlock:{a}lock",
		"fairlock:{a:lock",
		"fairlock:{%41}:lock", "fairlock:{%7b}:lock", "fairlock:{a{b}:lock", "fairlock:{a}b}:lock", "fairlock:{a}:sem:lock",
		"fairlock:{a}:lock:x", "fairlock:{a}:permits", "fairlock:wake:a", "xfairlock:{a}:lock",
	} {
		id, ok := parse("fairlock", key)
		require.False(t, ok, "%q is taken for %v", key, id)
	}
}

// The server itself says what a pattern matches.
func TestAPatternMatchesTheSignsOfTheLocksThatAreWantedAndNothingElse(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, namespace := range []string{"fairlock", "a:b", "x*[y]", "x", `\`} {
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		signs := map[string]ID{}
		for _, name := range names {
			all, some := keysOf(namespace, name)
			for _, key := range all {
				require.NoError(t, rdb.Set(t.Context(), key, "", 0).Err())
			}
			maps.Copy(signs, some)
			others, _ := keysOf("xyz", name) // which x*[y] must not match
			for _, key := range others {
				require.NoError(t, rdb.Set(t.Context(), key, "", 0).Err())
			}
		}
		for _, prefix := range append([]string{"", "a", "bill", "none", "%2"}, names...) {
			var want []string
			for key, id := range signs {
				if len(id.Name) >= len(prefix) && id.Name[:len(prefix)] == prefix {
					want = append(want, key)
				}
			}
			have, err := rdb.Keys(t.Context(), pattern(namespace, prefix)).Result()
			require.NoError(t, err)
			require.ElementsMatch(t, want, have, "namespace %q, prefix %q", namespace, prefix)
		}
	}
}

func TestKindsAreCalledByTheirNames(t *testing.T) {
	for _, kind := range Kinds {
		have, err := ParseKind(string(kind))
		require.NoError(t, err)
		require.Equal(t, kind, have)
	}
	for _, text := range []string{"", "mutexes", "\x1b"} {
		_, err := ParseKind(text)
		require.ErrorContains(t, err, "want mutex, semaphore or rw")
		require.NotContains(t, err.Error(), "\x1b")
	}
}
