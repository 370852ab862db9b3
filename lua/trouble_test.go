package lua_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// operations are all that can be asked of a lock, by the holder, the first waiter or somebody new.
func (w *world) operations() map[string]func() error {
	ctx := context.Background()
	holder, first := numbered("c", 1), numbered("c", 2)
	acquire := func(a lua.Request) func() error {
		return func() error {
			_, err := w.ask(a)
			return err
		}
	}
	return map[string]func() error{
		"acquire":  acquire(lua.Request{Token: numbered("new", 1)}),
		"ask":      acquire(lua.Request{Token: first}),
		"return":   acquire(lua.Request{Token: numbered("new", 1), Ticket: 1e15}),
		"try":      acquire(lua.Request{Token: numbered("new", 1), Try: true}),
		"bounded":  acquire(lua.Request{Token: numbered("new", 1), MaxWaiters: 1}),
		"by owner": acquire(lua.Request{Token: holder}),
		"release": func() error {
			_, err := w.lock.Release(ctx, holder, ttl)
			return err
		},
		"leave": func() error {
			_, err := w.lock.Leave(ctx, holder, ttl, ttl)
			return err
		},
		"waiter leaves": func() error {
			_, err := w.lock.Leave(ctx, first, ttl, ttl)
			return err
		},
		"renew": func() error {
			_, _, err := w.lock.Renew(ctx, holder, ttl, 0)
			return err
		},
		"heartbeat": func() error {
			_, err := w.lock.Heartbeat(ctx, ttl, waiterTTL, []token.Token{first, holder})
			return err
		},
		"inspect": func() error {
			_, err := w.lock.Inspect(ctx, 10)
			return err
		},
		"force release": func() error {
			_, err := w.lock.ForceRelease(ctx, ttl, 1<<53)
			return err
		},
	}
}

// contended makes a lock with a holder and two waiters: numbers 1 to 3 of client "c".
func (w *world) contended() {
	w.t.Helper()
	w.do("FLUSHALL")
	w.made = 0
	w.hold()
	w.join(2)
}

func TestErrors_ForeignTypeIsNamed(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		setups := map[string]func(){"idle": func() { w.do("FLUSHALL") }, "contended": w.contended}
		for name, operation := range w.operations() {
			for lock, setup := range setups {
				for _, key := range keysOf(w.lock) {
					for _, foreign := range []string{"RPUSH", "SADD"} {
						about := name + ", " + lock + ", " + key
						setup()
						owner := ""
						if key != w.keys.Lock {
							owner = w.owner()
						}
						w.do("DEL", key)
						w.do(foreign, key, "somebody's")
						w.do("PEXPIRE", key, ttl.Milliseconds()*100)
						err := operation()
						if err != nil {
							require.ErrorContains(t, err, "WRONGTYPE", about)
							if w.real != nil { // miniredis wraps the errors of scripts into others
								require.ErrorContains(t, err, "key \""+key+"\" is not ours", about)
								assert.True(t, redis.HasErrorPrefix(err, "WRONGTYPE"), "%s: %v", about, err)
							}
						} else {
							assert.NotEqual(t, "acquire", name, "%s: no error", about)
						}
						w.untouched(key, foreign, about)
						if key != w.keys.Lock && err != nil && name != "return" { // pending: that one rests first
							assert.Contains(t, []string{"", owner}, w.owner(), "%s: nobody was told that he holds it", about)
						}
					}
				}
			}
		}
	})
}

func (w *world) untouched(key, foreign, about string) {
	w.t.Helper()
	if foreign == "RPUSH" {
		assert.Equal(w.t, []any{"somebody's"}, w.do("LRANGE", key, 0, -1), about)
	} else {
		assert.True(w.t, w.rdb.SIsMember(w.t.Context(), key, "somebody's").Val(), about)
	}
	assert.Greater(w.t, w.pttl(key), 50*ttl, about)
}

// Nobody can be served then, but what is given back is free, and what is held can be kept.
func TestRelease_WhateverIsWrongWithTheQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, key := range []string{w.keys.Queue, w.keys.Alive, w.keys.Fence} {
			w.contended()
			w.do("DEL", key)
			w.do("RPUSH", key, "somebody's")
			if key != w.keys.Fence {
				require.NoError(t, w.operations()["renew"](), key)
			}
			h := w.release(numbered("c", 1))
			assert.True(t, h.Released, key)
			w.grants(h)
			assert.Empty(t, w.owner(), key)

			w.contended()
			w.do("DEL", key)
			w.do("RPUSH", key, "somebody's")
			_ = w.operations()["leave"]()
			assert.Empty(t, w.owner(), "left: %s", key)
		}
	})
}

func TestFullServer_RefusesAcquire(t *testing.T) {
	w := real(t)
	full := func(yes bool) { w.do("CONFIG", "SET", "maxmemory", map[bool]int{true: 1, false: 0}[yes]) }
	refused := func(operation string) {
		t.Helper()
		err := w.operations()[operation]()
		require.Error(t, err, operation)
		assert.True(t, redis.HasErrorPrefix(err, "OOM"), "%s: %v", operation, err)
		assert.ErrorContains(t, err, `"ns:{name}:*"`, operation)
	}
	full(true)
	for _, operation := range []string{"acquire", "try", "return", "bounded"} {
		refused(operation)
		assert.Empty(t, w.rdb.Keys(t.Context(), "*").Val(), operation)
	}
	full(false)
	w.contended()
	before := w.state()
	full(true)
	for _, operation := range []string{"acquire", "ask", "return", "heartbeat"} {
		refused(operation)
		assert.Equal(t, before, w.state(), operation)
	}
	for _, operation := range []string{"renew", "by owner", "inspect"} {
		require.NoError(t, w.operations()[operation](), operation)
		assert.Equal(t, before, w.state(), operation)
	}
}

func TestFullServer_HandsOff(t *testing.T) {
	w := real(t)
	said := w.listen("c")
	holder := w.hold()
	q := w.join(4)
	w.kill(q[1])
	w.do("CONFIG", "SET", "maxmemory", 1)
	w.grants(w.release(holder), q[0])
	w.grants(w.leave(q[0], ttl), q[2])
	assert.Equal(t, q[2].Text(), w.owner())
	w.do("DEL", w.keys.Fence)
	f, ok := w.renew(q[2], ttl, 0)
	assert.True(t, ok, "even if that must write the fence anew")
	assert.Equal(t, f, w.fence())
	w.grants(w.release(q[2]), q[3])
	w.grants(w.release(q[3]))
	assert.Empty(t, w.owner())
	assert.Len(t, said(), 3)
}

func TestErrors_MissingRightsAreNamed(t *testing.T) {
	w := real(t)
	for user, c := range map[string]struct {
		rules []any
		want  string
	}{
		"nokeys":    {[]any{"~other:*", "+@all"}, "NOPERM"},
		"noscripts": {[]any{"~*", "+@all", "-evalsha", "-eval"}, "NOPERM"},
		"noset":     {[]any{"~*", "+@all", "-set"}, "can't run this command"},
	} {
		w.do(append([]any{"ACL", "SETUSER", user, "on", ">secret", "&*"}, c.rules...)...)
		w.do("FLUSHALL")
		w.lock = lua.Mutex(w.as(user), ns, "name")
		_, err := w.ask(lua.Request{})
		require.ErrorContains(t, err, c.want, user)
		require.ErrorContains(t, err, `"ns:{name}:*"`, user)
		assert.Empty(t, w.rdb.Keys(t.Context(), "*").Val(), "%s: leaves nothing", user)
	}
}

func TestErrors_UserWithoutZADDLeavesNothing(t *testing.T) {
	w := real(t)
	w.do("ACL", "SETUSER", "nozadd", "on", ">secret", "~*", "+@all", "-zadd")
	w.contended()
	before := w.state()
	w.lock = lua.Mutex(w.as("nozadd"), ns, "name")
	require.Error(t, w.operations()["acquire"]())
	assert.Equal(t, before, w.state())
	w.grants(w.release(numbered("c", 1)), numbered("c", 2))
}

func TestScripts_SentAgainAfterNOSCRIPT(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, operation := range w.operations() {
			w.contended()
			w.do("SCRIPT", "FLUSH")
			seen := &recorder{Scripter: w.rdb}
			w.lock = lua.Mutex(seen, ns, "name")
			require.NoError(t, operation(), name)
			require.NoError(t, operation(), name)
			assert.Len(t, seen.calls, 3, "%s: by hash, by text, by hash", name)
			w.lock = lua.Mutex(w.rdb, ns, "name")
		}
	})
}

// The namespace is a prefix and nothing more: patterns and colons in it have no meaning.
func TestNotification_NamespaceHasNoMeaning(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, space := range []string{"a:b", ":", "%d", ".*", "^$", "a[b", strings.Repeat("n", 300)} {
			sub := w.rdb.Subscribe(t.Context(), lua.NotificationChannel(space, "c"))
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
			messages := sub.Channel()
			w.lock = lua.Mutex(w.rdb, space, "name")
			holder := w.hold()
			head := w.join(1)[0]
			w.grants(w.release(holder), head)
			assert.Contains(t, (<-messages).Payload, head.Text(), space)
			require.NoError(t, sub.Close())
		}
	})
}
