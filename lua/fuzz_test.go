package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// unescape undoes what keys do to a name.
var unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// hashTag is the part of a key that counts in a cluster, as the specification says: what stands between the first {
// and the first } after it, if there is such a thing and it is not empty.
func hashTag(key string) (tag string, ok bool) {
	_, after, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(after, "}")
	return tag, open && closed && tag != ""
}

// everyKey are the keys of all locks of one name, by what they are.
func everyKey(namespace, name string) map[string][]string {
	return map[string][]string{
		"mutex":           mutexKeys(namespace, name),
		"semaphore":       keysOf(lua.Semaphore(nil, namespace, name, 1)),
		"read-write lock": keysOf(lua.RWMutex(nil, namespace, name)),
	}
}

// aNamespace reports whether a client takes it for its namespace, and aName whether it takes it for a lock's name.
func aNamespace(s string) bool { return s != "" && !strings.ContainsAny(s, "{}") }
func aName(s string) bool      { return s != "" }

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
		if !aNamespace(here) || !aNamespace(there) || !aName(one) || !aName(two) {
			t.Skip("refused by fairlock.New or by the lock")
		}
		same := here == there && one == two
		owners := map[string]string{}
		for kind, keys := range everyKey(here, one) {
			for _, key := range keys {
				require.Empty(t, owners[key], "%q is of a %s, too", key, kind)
				owners[key] = kind
				tag, ok := hashTag(key)
				require.True(t, ok, "%q has no hash tag", key)
				require.Equal(t, one, unescape.Replace(tag), "the hash tag is not the name")
				require.Equal(t, keySlot(lua.MutexKeys(here, one).Queue), keySlot(key), "%q is in another slot", key)
				require.Equal(t, keySlot(tag), keySlot(key), "%q", key)
				namespace, _, _ := strings.Cut(key, ":{") // as queue.lua finds the channel
				require.Equal(t, here, namespace)
			}
		}
		for kind, keys := range everyKey(there, two) {
			for _, key := range keys {
				if same {
					require.Equal(t, kind, owners[key], "%q", key)
				} else {
					require.Empty(t, owners[key], "%q and %q share %q", one, two, key)
				}
			}
		}
		require.Equal(t, same, lua.Mutex(nil, here, one).Key() == lua.Mutex(nil, there, two).Key())
	})
}

func FuzzNotificationChannel(f *testing.F) {
	for _, client := range []string{"a", "host-1-x", "a:wake:b", "wake:a", ":", "a:", ":a", "{a}", "}:{", "%"} {
		f.Add("ns", client, "ns", "a")
		f.Add("ns", client, "ns:wake", "a")
		f.Add("ns:wake:a", client, "ns", "a:wake:"+client)
		f.Add(":", client, "::", client)
	}
	f.Fuzz(func(t *testing.T, here, one, there, two string) {
		if !aNamespace(here) || !aNamespace(there) || token.CheckClient(one) != nil || token.CheckClient(two) != nil {
			t.Skip("refused by fairlock.New")
		}
		mine, yours := lua.NotificationChannel(here, one), lua.NotificationChannel(there, two)
		if len(here) > len(there) {
			here, there = there, here
		}
		// A name may have colons, so namespaces of which one goes on from the other with :wake are not told apart.
		if !strings.HasPrefix(there, here+":wake") || here == there {
			require.Equal(t, here == there && one == two, mine == yours, "%q", mine)
		}
	})
}

func FuzzParseNotification(f *testing.F) {
	who := numbered("c", 1).Text()
	for _, seed := range []string{
		who + " 1 2", who + " 1753700000000001 6000", "", " ", "\x00", who, who + " " + who + " " + who, "1 2 3", who + " 01 002",
		who + " 1 2 ", who + "  1 2", who + " 1 +2", who + " 0x1 2", "nobody:resting 1 2",
		who + " 0 1", who + " 1 0", who + " 1 -1", who + " 9007199254740992 1", who + " 1 9223372036855",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		g, err := lua.ParseNotification(message)
		if err != nil {
			require.ErrorIs(t, err, lua.ErrReply)
			require.Equal(t, lua.Grant{}, g)
			return
		}
		goodGrant(t, g)
		require.Len(t, strings.Split(message, " "), 3)
		require.True(t, strings.HasPrefix(message, g.Token.Text()+" "))
		again, err := lua.ParseNotification(fmt.Sprintf("%s %d %d", g.Token.Text(), g.Fence, g.Given.Milliseconds()))
		require.NoError(t, err)
		require.Equal(t, g, again)
	})
}

func goodGrant(t *testing.T, g lua.Grant) {
	t.Helper()
	_, err := token.Parse(g.Token.Text())
	require.NoError(t, err)
	goodFence(t, g.Fence)
	assert.Positive(t, g.Given)
	assert.Zero(t, g.Given%time.Millisecond, "%d overflowed", g.Given)
}

// goodNumber is one that a script counts with: exact as a double.
func goodNumber(t *testing.T, n uint64) {
	t.Helper()
	assert.Less(t, n, uint64(1)<<53)
}

func goodFence(t *testing.T, fence uint64) {
	t.Helper()
	assert.Positive(t, fence)
	goodNumber(t, fence)
}
