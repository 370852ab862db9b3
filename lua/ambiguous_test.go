package lua_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// newLink returns a link to the server, and the lock as it is reached through it.
func newLink(t *testing.T, w *world) (*redistest.Link, lua.Lock) {
	t.Helper()
	link := redistest.NewLink(t, w.real)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return link, lua.Mutex(rdb, ns, "name")
}

// go-redis resends a release whose reply was lost. The reply to the second copy says that the token does not hold the
// lock, and that this is ambiguous.
func TestHandoff_AmbiguousAfterALostReply(t *testing.T) {
	w := real(t)
	w.release(w.hold()) // the server knows the scripts
	said := w.listen("c")
	link, lock := newLink(t, w)
	holder := w.hold()
	head := w.join(1)[0]
	link.LoseReplies(1)
	h, err := lock.Release(t.Context(), holder, ttl)
	require.NoError(t, err)
	assert.Equal(t, 1, link.Lost())
	assert.True(t, h.Ambiguous)
	assert.False(t, h.Released, "the release that worked was the one whose reply was lost")
	w.grants(h)
	assert.Equal(t, head.Text(), w.owner(), "and it has handed over")
	assert.Len(t, said(), 1)

	h, err = lock.Release(t.Context(), head, ttl)
	require.NoError(t, err)
	assert.True(t, h.Released)
	assert.False(t, h.Ambiguous)
	h, err = lock.Release(t.Context(), holder, ttl)
	require.NoError(t, err)
	assert.False(t, h.Released)
	assert.False(t, h.Ambiguous, "each request counts its own copies")
}

// Without a reply the request is ambiguous, though go-redis has written it once or, as far as is known, not yet. With an
// error as its reply, it is not.
func TestReply_AmbiguousWithoutAReply(t *testing.T) {
	for name, c := range map[string]struct {
		reply any
		want  bool
	}{
		"no reply":            {io.EOF, true},
		"no reply, ctx ended": {context.DeadlineExceeded, true},
		"client closed":       {redis.ErrClosed, true},
		"refused":             {refusal("OOM command not allowed"), false},
		"refused, wrapped":    {fmt.Errorf("call: %w", refusal("READONLY x")), false},
		"not a reply of ours": {"OK", true},
		"nil":                 {nil, true},
	} {
		lock := lua.Mutex(echo{c.reply}, ns, "name")
		a, acquireErr := lock.Acquire(t.Context(), lua.Request{Token: numbered("c", 1), TTL: ttl})
		h, releaseErr := lock.Release(t.Context(), numbered("c", 1), ttl)
		f, forceErr := lock.ForceRelease(t.Context(), ttl, 1)
		l, leaveErr := lock.Leave(t.Context(), numbered("c", 1), ttl, ttl)
		require.Error(t, acquireErr)
		require.Error(t, releaseErr)
		assert.Equal(t, c.want, a.Ambiguous, "acquire: %s", name)
		assert.Equal(t, c.want, h.Ambiguous, "release: %s", name)
		require.Error(t, leaveErr)
		require.Error(t, forceErr)
		assert.Equal(t, c.want, f.Ambiguous, "force release: %s", name)
		assert.Equal(t, c.want, l.Ambiguous, "leave: %s", name)
	}
	reply, err := lua.Mutex(echo{[]any{"granted", int64(1), "empty"}}, ns, "name").Acquire(t.Context(), lua.Request{Token: numbered("c", 1), TTL: ttl})
	require.NoError(t, err)
	assert.False(t, reply.Ambiguous)
}

// A script that Redis does not have, as after a restart, was not run.
func TestHandoff_NotAmbiguousAfterNOSCRIPT(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, away := range map[string]func() lua.Handoff{
			"release": func() lua.Handoff { return w.release(w.token()) },
			"leave":   func() lua.Handoff { return w.leave(w.token(), 0) },
		} {
			w.do("SCRIPT", "FLUSH")
			h := away()
			assert.False(t, h.Released, name)
			assert.False(t, h.Ambiguous, "%s: it was sent once; the lock was lost", name)
		}
	})
}

func TestReply_LostChangesNothingElse(t *testing.T) {
	w := real(t)
	ctx := context.Background()
	w.leave(w.hold(), 0)
	link, lock := newLink(t, w)
	lost := 0
	lose := func() {
		lost++
		link.LoseReplies(1)
	}
	a, b := w.token(), w.token()
	ask := func(who lua.Request) lua.Reply {
		who.TTL, who.WaiterTTL = ttl, waiterTTL
		lose()
		answer, err := lock.Acquire(ctx, who)
		require.NoError(t, err)
		return answer
	}
	granted := ask(lua.Request{Token: a})
	assert.Equal(t, lua.Reply{Outcome: lua.Granted, Fence: w.fence(), Ambiguous: true}, granted)
	assert.Equal(t, 1, ask(lua.Request{Token: b, MaxWaiters: 1}).Position)
	lose()
	fence, ok, err := lock.Renew(ctx, a, ttl, 0)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, granted.Fence, fence)
	lose()
	h, err := lock.Leave(ctx, a, ttl, 0)
	require.NoError(t, err)
	assert.True(t, h.Ambiguous)
	assert.Equal(t, b.Text(), w.owner())
	assert.Equal(t, lost, link.Lost())
}
