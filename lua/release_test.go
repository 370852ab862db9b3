package lua_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

func TestRelease_HandsOffAndNotifiesOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		heads := []string{"host-1", "with:colons:", "c"}
		for i, client := range heads {
			w.acquire(lua.Request{Token: numbered(client, 1000+i)})
		}
		said := map[string]func() []string{}
		for _, client := range heads {
			said[client] = w.listen(client)
		}
		for i, client := range heads {
			head := numbered(client, 1000+i)
			h := w.release(holder)
			assert.True(t, h.Released)
			assert.False(t, h.More)
			assert.False(t, h.Ambiguous)
			g := w.grants(h, head)[0]
			assert.Equal(t, head.Text(), w.owner())
			assert.Equal(t, w.fence(), g.Fence)
			message := fmt.Sprintf("%s %d %d", head.Text(), g.Fence, g.Given.Milliseconds())
			for other, heard := range said {
				if other == client {
					assert.Equal(t, []string{message}, heard())
				} else {
					assert.Empty(t, heard(), "%s is none of %s's business", head, other)
				}
			}
			read, err := lua.ParseNotification(message)
			require.NoError(t, err)
			assert.Equal(t, g, read)
			holder = head
		}
	})
}

// Whatever operation admits somebody, his client is told.
func TestNotification_OfEveryAdmission(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		for name, admit := range admitters(w) {
			w.do("FLUSHALL")
			w.hold()
			head := w.join(1)[0]
			w.expire()
			admit()
			messages := said()
			require.Len(t, messages, 1, name)
			g, err := lua.ParseNotification(messages[0])
			require.NoError(t, err, name)
			assert.Equal(t, head, g.Token, name)
			assert.Equal(t, w.fence(), g.Fence, name)
		}
	})
}

func TestNotification_NoneWithoutWaiters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		all := w.rdb.PSubscribe(t.Context(), "*")
		defer func() { _ = all.Close() }()
		_, err := all.Receive(t.Context())
		require.NoError(t, err)
		messages := all.Channel(redis.WithChannelSize(100))
		for range 3 {
			w.release(w.hold())
			w.leave(w.hold(), 0)
			w.hold()
			w.forceRelease()
			w.release(w.token())
		}
		dead := w.hold()
		w.kill(w.join(2)...)
		w.release(dead)
		w.do("PUBLISH", "end", "end")
		assert.Equal(t, "end", (<-messages).Channel)
	})
}

// The waiter finds out at its next beat.
func TestRelease_SucceedsWithoutRightsToTheChannel(t *testing.T) {
	w := real(t)
	w.do("ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels")
	mute := w.as("mute")
	require.ErrorContains(t, mute.Publish(t.Context(), lua.NotificationChannel(ns, "c"), "x").Err(), "NOPERM")
	said := w.listen("c")
	holder := w.hold()
	q := w.join(4)
	lock := lua.Mutex(mute, ns, "name")

	h, err := lock.Release(t.Context(), holder, ttl)
	require.NoError(t, err)
	assert.True(t, h.Released)
	w.grants(h, q[0])
	assert.Equal(t, q[0].Text(), w.owner())

	h, err = lock.Leave(t.Context(), q[0], ttl, 0)
	require.NoError(t, err)
	w.grants(h, q[1])
	h, err = lock.ForceRelease(t.Context(), ttl, 1<<53)
	require.NoError(t, err)
	w.grants(h, q[2])
	w.expire()
	a, err := lock.Acquire(t.Context(), lua.Request{Token: w.token(), TTL: ttl, WaiterTTL: waiterTTL})
	require.NoError(t, err)
	assert.Equal(t, lua.Queued, a.Outcome)
	assert.Equal(t, q[3].Text(), w.owner())
	assert.Empty(t, said())
}

// as returns a client of another user, whose password is "secret".
func (w *world) as(user string) *redis.Client {
	w.t.Helper()
	o := w.real.Options()
	o.Username, o.Password = user, "secret"
	rdb := redis.NewClient(o)
	w.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestRelease_OfAnotherTokenChangesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("c")
		w.hold()
		q := w.join(2)
		before, lease := w.state(), w.pttl(w.keys.Lock)
		for _, h := range []lua.Handoff{w.release(w.token()), w.release(q[0]), w.leave(w.token(), 0)} {
			assert.False(t, h.Released)
			w.grants(h)
		}
		assert.Equal(t, before, w.state())
		assert.LessOrEqual(t, w.pttl(w.keys.Lock), lease)
		assert.Empty(t, said())
	})
}

func TestRelease_LateSparesTheNextOwner(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		late := w.hold()
		w.expire()
		next := w.hold()
		before := w.state()
		assert.False(t, w.release(late).Released)
		assert.False(t, w.leave(late, 0).Released)
		_, ok := w.renew(late, 2*ttl, 0)
		assert.False(t, ok)
		assert.Equal(t, before, w.state())
		assert.Equal(t, next.Text(), w.owner())
	})
}

// Who releases and asks again stands behind everybody.
func TestRelease_ThenAcquireQueuesLast(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		q := w.join(3)
		w.release(holder)
		a := w.acquire(lua.Request{Token: holder})
		assert.Equal(t, lua.Queued, a.Outcome)
		assert.Equal(t, 3, a.Position)
		assert.Equal(t, texts(q[1], q[2], holder), w.queue())
	})
}
