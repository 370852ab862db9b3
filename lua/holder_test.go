package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

// A request that has to wait, or fails because it does not queue, is told a holder.
func TestReply_NamesTheOwnerOfAMutex(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		queued := w.acquire(lua.Request{})
		assert.Equal(t, lua.Queued, queued.Outcome)
		assert.Equal(t, holder.Text(), queued.Holder)
		busy := w.acquire(lua.Request{Try: true})
		assert.Equal(t, lua.Busy, busy.Outcome)
		assert.Equal(t, holder.Text(), busy.Holder)
		assert.Empty(t, w.acquire(lua.Request{Token: holder}).Holder, "granted")

		w.expire()
		next := w.acquire(lua.Request{Try: true})
		assert.Equal(t, lua.Busy, next.Outcome)
		assert.Equal(t, w.owner(), next.Holder, "the one that this request has admitted")
	})
}

func TestReply_NamesTheHolderWhoseLeaseEndsFirst(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, w *permitWorld) {
		expired := w.hold(1)
		w.expire(expired...)
		long, short := w.token(), w.token()
		w.acquire(lua.Request{Token: long, TTL: 3 * ttl})
		w.acquire(lua.Request{Token: short, Weight: 2})
		for range 2 { // a second request does the same
			queued := w.acquire(lua.Request{Token: numbered("c", 100), Weight: 2})
			assert.Equal(t, lua.Queued, queued.Outcome)
			assert.Equal(t, short.Text(), queued.Holder)
		}
		busy := w.acquire(lua.Request{Try: true})
		assert.Equal(t, lua.Busy, busy.Outcome)
		assert.Equal(t, short.Text(), busy.Holder)
		w.release(short) // to the waiter
		w.release(numbered("c", 100))
		busy = w.acquire(lua.Request{Weight: 3, Try: true})
		assert.Equal(t, lua.Busy, busy.Outcome)
		assert.Equal(t, long.Text(), busy.Holder)
	})
}

func TestReply_NamesAHolderOfAReadWriteLock(t *testing.T) {
	rwMutexes(t, func(t *testing.T, w *permitWorld) {
		holder := w.hold(reader)[0]
		queued := w.acquire(lua.Request{Weight: writer})
		assert.Equal(t, lua.Queued, queued.Outcome)
		assert.Equal(t, holder.Text(), queued.Holder, "a reader")
		busy := w.acquire(lua.Request{Weight: reader, Try: true})
		assert.Equal(t, lua.Busy, busy.Outcome)
		assert.Equal(t, holder.Text(), busy.Holder)
		require.Len(t, w.release(holder).Grants, 1)
		queued = w.acquire(lua.Request{Weight: reader})
		assert.NotEmpty(t, queued.Holder)
		assert.Equal(t, w.inspect(1).Holders[0].Token, queued.Holder, "the writer")
	})
}

// Nobody may hold a lock that is busy: its head waits for more permits than are free, or the token has a tombstone.
func TestReply_NamesNoHolderIfThereIsNone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		gone := w.token()
		w.leave(gone, time.Hour)
		busy := w.acquire(lua.Request{Token: gone})
		assert.Equal(t, lua.Reply{Outcome: lua.Busy}, busy)
		p := w.asSemaphore(2)
		p.leave(gone, time.Hour)
		assert.Equal(t, lua.Reply{Outcome: lua.Busy}, p.acquire(lua.Request{Token: gone}))
	})
}

func TestReply_NamesTheQuarantine(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		assert.Equal(t, lua.Quarantined, w.acquire(lua.Request{Ticket: 1e15 + 1}).Holder)
		assert.Equal(t, lua.Quarantined, w.asSemaphore(2).acquire(lua.Request{Ticket: 1e15 + 1}).Holder)
		assert.Equal(t, lua.Quarantined, w.asRWMutex().acquire(lua.Request{Ticket: 1e15 + 1}).Holder)
	})
}
