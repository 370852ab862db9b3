package script_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// nasty names try to leave their hash tag, or to be another name.
var nasty = []string{
	"a", "a b", "a\x00b", "a\r\nb", "{", "}", "{}", "}{", "{a}", "a}", "}a", "a}:lock", "{}:queue", "%", "%7D", "%7d",
	"%257D", "%%", "%25",
	"\xff\xfe", "ü", "*", "a:queue", ":{b}:", "notify:c", "sem:queue", strings.Repeat("}", 1024), strings.Repeat("\x00",
		1024),
}

// allKeys are the keys of all locks of one name, by the kind of lock.
func allKeys(namespace, name string) map[string][]string {
	all := map[string][]string{}
	for kind, lock := range map[string]script.Lock{
		"mutex": script.Mutex(nil, namespace, name), "semaphore": script.Semaphore(nil, namespace, name),
		"rwmutex": script.RWMutex(nil, namespace, name), "keyed": script.KeyedSemaphore(nil, namespace, name),
	} {
		all[kind] = lock.Keys()
	}
	return all
}

// The names of the keys are part of the layout, as docs/protocol.md has it.
func TestKeys_Names(t *testing.T) {
	permits := []string{"number", "permits", "holders", "queue", "heartbeats", "resized", "tombstones"}
	for kind, want := range map[string]struct {
		infix string
		parts []string
	}{
		"mutex":     {"", []string{"number", "lock", "queue", "heartbeats", "tombstones"}},
		"semaphore": {"sem:", permits},
		"rwmutex":   {"rw:", permits},
		"keyed": {"key:", []string{"number", "permits", "holders", "queue", "heartbeats", "lines", "turns", "resized",
			"tombstones"}},
	} {
		keys := script.KeysOf(kind, "ns", "a{")
		var names []string
		for _, part := range want.parts {
			names = append(names, "ns:{a%7B}:"+want.infix+part)
			assert.Equal(t, names[len(names)-1], keys.Part(part))
		}
		assert.Equal(t, names, allKeys("ns", "a{")[kind])
	}
}

// All keys of a name are in the slot that Redis says, and no two names share one.
//
//fairlock:promise One slot: all keys of a lock are in one slot of a cluster
//fairlock:promise Names
//fairlock:promise Kinds
func TestKeys_InOneSlotOfACluster(t *testing.T) {
	rdb := redistest.StartTCP(t, "--cluster-enabled", "yes").Client() // on a socket, its bus would have a fixed port
	owners := map[string]string{}
	for _, name := range nasty {
		slot := rdb.ClusterKeySlot(ctx, script.KeysOf("mutex", "ns", name).Part("queue")).Val()
		for kind, keys := range allKeys("ns", name) {
			for _, key := range keys {
				n, err := rdb.ClusterKeySlot(ctx, key).Result()
				require.NoError(t, err)
				assert.Equal(t, slot, n, "%q", key)
				assert.Empty(t, owners[key], "%q is of a %s of %q, too", key, kind, name)
				owners[key] = kind
			}
		}
	}
}

// unescape undoes what keys do to a name, looksLike makes one that is, unescaped, the escaped form of another.
var (
	unescape  = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
	looksLike = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")
)

// isNamespace reports whether a client takes it for its namespace.
func isNamespace(s string) bool { return s != "" && !strings.ContainsAny(s, "{}") }

func FuzzKeys(f *testing.F) {
	for i, name := range nasty {
		f.Add("ns", name, "ns", nasty[(i+1)%len(nasty)])
		f.Add("ns", name, "ns", looksLike.Replace(name))
		f.Add("ns", name, "ns:", name)
		f.Add("%7B", name, "%", name)
	}
	f.Add("a", "b}:c:{d", "a:{b}:c", "d")
	f.Add("a", "sem:queue", "a", "rw")
	f.Fuzz(func(t *testing.T, here, one, there, two string) {
		if !isNamespace(here) || !isNamespace(there) || one == "" || two == "" {
			t.Skip("refused by fairlock.New or by the lock")
		}
		same := here == there && one == two
		owners := map[string]string{}
		for kind, keys := range allKeys(here, one) {
			for _, key := range keys {
				require.Empty(t, owners[key], "%q is of a %s, too", key, kind)
				owners[key] = kind
				namespace, after, _ := strings.Cut(key, ":{") // as queue.lua finds the channel
				tag, _, ok := strings.Cut(after, "}")
				require.True(t, ok, "%q has no hash tag", key)
				require.Equal(t, one, unescape.Replace(tag), "the hash tag is not the name")
				require.Equal(t, here, namespace) // it has no braces: these are the first
			}
		}
		for kind, keys := range allKeys(there, two) {
			for _, key := range keys {
				require.Equal(t, map[bool]string{true: kind}[same], owners[key], "%q and %q share %q", one, two, key)
			}
		}
		require.Equal(t, same, script.Mutex(nil, here, one).Key() == script.Mutex(nil, there, two).Key())
	})
}

// unsent notes a request, and does not send it.
type unsent struct{ dispatch.Request }

func (u *unsent) Send(_ context.Context, r dispatch.Request) (any, error) {
	u.Request = r
	return nil, errors.ErrUnsupported
}

// A cluster that moves a slot refuses a request one of whose keys does not exist. While a lock is held and waited for,
// all keys of these requests exist.
func TestKeys_ThatExistWhileALockIsContended(t *testing.T) {
	for _, k := range oneHolder {
		m := newMachine(t, newServer(t, redistest.Shared(t)), k)
		m.contend()
		for _, name := range []string{"release", "renew", "heartbeat", "force release"} {
			var d unsent
			require.Error(t, samplesOf(m.lock())[name].send(k.lock(&d, m.namespace), m.requesters(crowd{}, 2, 0)))
			require.NotEmpty(t, d.Keys)
			assert.EqualValues(t, len(d.Keys), m.rdb.Exists(ctx, d.Keys...).Val(), "%s, %s: %q", k.name, name, d.Keys)
		}
		m.lose()
	}
}
