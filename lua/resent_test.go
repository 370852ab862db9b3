package lua_test

import (
	"context"
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

func TestALostReplyOfAReleaseShows(t *testing.T) {
	w := real(t)
	w.release(w.hold()) // the server knows the scripts
	said := w.listen("c")
	link, lock := newLink(t, w)
	holder := w.hold()
	head := w.join(1)[0]
	first := &lua.Leaving{Token: holder}
	link.LoseReplies(1)
	h, err := lock.Release(t.Context(), first, ttl)
	require.NoError(t, err)
	assert.Equal(t, 1, link.Lost())
	assert.True(t, h.Resent)
	assert.False(t, h.Released, "the release that worked was the one whose reply was lost")
	w.grants(h)
	assert.Equal(t, head.Text(), w.owner(), "and it has handed over")
	assert.Len(t, said(), 1)

	h, err = lock.Release(t.Context(), &lua.Leaving{Token: head}, ttl)
	require.NoError(t, err)
	assert.True(t, h.Released)
	assert.False(t, h.Resent)
	h, err = lock.Release(t.Context(), first, ttl)
	require.NoError(t, err)
	assert.True(t, h.Resent, "the count goes over all releases of one holding")
}

// A script that Redis has forgotten, as after a restart, was not run.
func TestAForgottenScriptIsNoLostReply(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, away := range map[string]func() lua.Handover{
			"release": func() lua.Handover { return w.release(w.token()) },
			"leave":   func() lua.Handover { return w.leave(w.token(), 0) },
		} {
			w.do("SCRIPT", "FLUSH")
			h := away()
			assert.False(t, h.Released, name)
			assert.False(t, h.Resent, "%s: it was sent once; the lock was lost", name)
		}
	})
}

func TestALostReplyChangesNothingElse(t *testing.T) {
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
	ask := func(who lua.Ask) lua.Answer {
		who.TTL, who.Patience = ttl, patience
		lose()
		answer, err := lock.Acquire(ctx, who)
		require.NoError(t, err)
		return answer
	}
	granted := ask(lua.Ask{Token: a})
	assert.Equal(t, lua.Answer{Outcome: lua.Granted, Fence: w.fence(), Resent: true}, granted)
	assert.Equal(t, 1, ask(lua.Ask{Token: b, Bound: 1}).Position)
	lose()
	fence, ok, err := lock.Renew(ctx, a, ttl, 0)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, granted.Fence, fence)
	lose()
	h, err := lock.Leave(ctx, &lua.Leaving{Token: a}, ttl, 0)
	require.NoError(t, err)
	assert.True(t, h.Resent)
	assert.Equal(t, b.Text(), w.owner())
	assert.Equal(t, lost, link.Lost())
}
