package script_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"\xff\xfe", "ü", "*", "a:queue", ":{b}:", "notify:c", "sem", "sem:queue", "}:sem",
	"x}:rw:number", "'\"\\", strings.Repeat("}", 1024), strings.Repeat("\x00",
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

// looksLike makes of a name one that is the escaped form of another, if it were not escaped.
var looksLike = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")

// All keys of a name are in one slot of a cluster, and no two locks share one.
//
//fairlock:promise One slot: all keys of a lock are in one slot of a cluster
//fairlock:promise Names: any bytes work, no two share a lock
//fairlock:promise Kinds: of one name share nothing
func TestKeys_InOneSlotOfACluster(t *testing.T) {
	rdb := redistest.StartTCP(t, "--cluster-enabled", "yes").Client() // on a socket, its bus would have a fixed port
	all, owners := slices.Clone(nasty), map[string]string{}
	for _, name := range nasty {
		if other := looksLike.Replace(name); !slices.Contains(all, other) {
			all = append(all, other)
		}
	}
	for _, namespace := range []string{"ns", "ns:", "%7B", "%"} {
		for _, name := range all {
			slots := map[int64]bool{}
			for kind, keys := range allKeys(namespace, name) {
				for _, key := range keys {
					slots[rdb.ClusterKeySlot(ctx, key).Val()] = true
					assert.Empty(t, owners[key], "%q is of a %s of %q, too", key, kind, name)
					owners[key] = fmt.Sprintf("%s of %q", kind, name)
					found, _, _ := strings.Cut(key, ":{") // as queue.lua finds the channel
					assert.Equal(t, namespace, found)
				}
			}
			assert.Len(t, slots, 1, "%q", name)
		}
	}
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
			require.Error(t, samplesOf(m.lock())[name].try(k.lock(&d, m.namespace), m.requesters(crowd{}, 2, 0)))
			require.NotEmpty(t, d.Keys)
			assert.EqualValues(t, len(d.Keys), m.rdb.Exists(ctx, d.Keys...).Val(), "%s, %s: %q", k.name, name, d.Keys)
		}
		m.lose()
	}
}
