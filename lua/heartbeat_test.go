package lua_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

func TestHeartbeat_KeepsTickets(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(4)
		w.kill(q...)
		places := w.state().Queue
		from := w.now()
		w.heartbeat(q[0], q[2])
		to := w.now()
		for i, who := range q {
			alive := time.UnixMicro(int64(w.score(w.keys.Alive, who)))
			if i%2 == 0 {
				assert.WithinRange(t, alive, from.Add(waiterTTL), to.Add(waiterTTL), "waiter %d", i)
			} else {
				assert.Less(t, alive, from, "waiter %d is another client's", i)
			}
		}
		assert.Equal(t, places, w.state().Queue, "in the old order")
		w.lasts(w.keys.Queue, waiterTTL)
		w.lasts(w.keys.Alive, waiterTTL)
	})
}

func TestHeartbeat_KeepsTheKeysOfTheQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(1)
		_, err := w.lock.Heartbeat(t.Context(), ttl, time.Hour, q)
		require.NoError(t, err)
		w.lasts(w.keys.Queue, time.Hour)
		w.lasts(w.keys.Alive, time.Hour)
		w.heartbeat(q...)
		w.lasts(w.keys.Queue, time.Hour) // others may have a longer waiter TTL: never shorter
		w.lasts(w.keys.Alive, time.Hour)
	})
}

func TestHeartbeat_TellsTheStateOfEachWaiter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first := w.hold()
		q := w.join(4)
		p := w.heartbeat(q[3], w.token(), first, q[1], q[2])
		assert.Equal(t, []lua.WaiterState{lua.StillQueued, lua.NotQueued, lua.Holding, lua.StillQueued, lua.StillQueued}, p.States)
		assert.Equal(t, 3, p.First, "the foremost of those asked for, not of all")
		assert.Equal(t, w.fence(), p.Fence)

		w.expire()
		fence := w.fence()
		p = w.heartbeat(q[3], q[0])
		assert.Equal(t, []lua.WaiterState{lua.StillQueued, lua.NowGranted}, p.States)
		assert.Equal(t, fence, p.Fence, "the last one before the beat")
		assert.Equal(t, []lua.WaiterState{lua.Holding}, w.heartbeat(q[0]).States)

		p = w.heartbeat(first)
		assert.Equal(t, []lua.WaiterState{lua.NotQueued}, p.States)
		assert.Equal(t, -1, p.First)
		assert.Negative(t, p.RetryAfter)
	})
}

func TestHeartbeat_OfNoWaiters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		assert.Equal(t, lua.HeartbeatReply{First: -1, RetryAfter: -time.Millisecond}, w.heartbeat())
		p := w.heartbeat(w.token())
		assert.Equal(t, lua.HeartbeatReply{First: -1, RetryAfter: -time.Millisecond, States: []lua.WaiterState{lua.NotQueued}}, p)
		assert.Empty(t, w.rdb.Keys(t.Context(), "*").Val())
	})
}

// The one admitted may be another client's.
func TestHeartbeat_AdmitsWhenTheLockIsFree(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("other")
		w.hold()
		other := numbered("other", 1)
		w.acquire(lua.Request{Token: other})
		q := w.join(2)
		w.expire()
		p := w.heartbeat(q...)
		assert.Equal(t, []lua.WaiterState{lua.StillQueued, lua.StillQueued}, p.States)
		assert.Equal(t, 0, p.First)
		assert.Equal(t, other.Text(), w.owner())
		assert.Len(t, said(), 1)
	})
}

// A waiter whose heartbeat comes is not expired: it is admitted though it had expired the moment before.
func TestHeartbeat_CountsBeforeAdmission(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		w.kill(q...)
		w.expire()
		assert.Equal(t, []lua.WaiterState{lua.StillQueued, lua.NowGranted}, w.heartbeat(q[2], q[1]).States)
		assert.Equal(t, texts(q[2]), w.queue())
	})
}

func TestHeartbeat_TakesAThousandWaiters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		n := lua.MaxHeartbeat
		if w.mini != nil {
			n = 200 // it sorts the queue for each
		}
		q := w.crowd(n, w.now().Add(time.Second))
		slices.Reverse(q)
		p := w.heartbeat(q...)
		assert.Len(t, p.States, n)
		assert.NotContains(t, p.States, lua.NotQueued)
		assert.Equal(t, n-1, p.First)
		for _, who := range []token.Token{q[0], q[n/2], q[n-1]} {
			assert.Greater(t, w.score(w.keys.Alive, who), uint64(w.now().Add(waiterTTL/2).UnixMicro()))
		}
		assert.Len(t, w.heartbeat(append(q[:n-1:n-1], holder)...).States, n)
	})
}
