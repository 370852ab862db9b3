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

func TestABeatKeepsThePlacesOfItsWaiters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(4)
		w.kill(q...)
		places := w.state().Queue
		from := w.now()
		w.beat(q[0], q[2])
		to := w.now()
		for i, who := range q {
			alive := time.UnixMicro(int64(w.score(w.keys.Alive, who)))
			if i%2 == 0 {
				assert.WithinRange(t, alive, from.Add(patience), to.Add(patience), "waiter %d", i)
			} else {
				assert.Less(t, alive, from, "waiter %d is another client's", i)
			}
		}
		assert.Equal(t, places, w.state().Queue, "in the old order")
		w.lasts(w.keys.Queue, patience)
		w.lasts(w.keys.Alive, patience)
	})
}

func TestABeatKeepsTheQueueAsLongAsItsWaiters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(1)
		_, err := w.lock.Beat(t.Context(), ttl, time.Hour, q)
		require.NoError(t, err)
		w.lasts(w.keys.Queue, time.Hour)
		w.lasts(w.keys.Alive, time.Hour)
		w.beat(q...)
		w.lasts(w.keys.Queue, time.Hour) // others may have more patience: never shorter
		w.lasts(w.keys.Alive, time.Hour)
	})
}

func TestABeatTellsHowEachWaiterStands(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first := w.hold()
		q := w.join(4)
		p := w.beat(q[3], w.token(), first, q[1], q[2])
		assert.Equal(t, []lua.State{lua.Waiting, lua.Gone, lua.Holding, lua.Waiting, lua.Waiting}, p.States)
		assert.Equal(t, 3, p.Best, "the foremost of those asked for, not of all")
		assert.Equal(t, w.fence(), p.Fence)

		w.expire()
		fence := w.fence()
		p = w.beat(q[3], q[0])
		assert.Equal(t, []lua.State{lua.Waiting, lua.Admitted}, p.States)
		assert.Equal(t, fence, p.Fence, "the last one before the beat")
		assert.Equal(t, []lua.State{lua.Holding}, w.beat(q[0]).States)

		p = w.beat(first)
		assert.Equal(t, []lua.State{lua.Gone}, p.States)
		assert.Equal(t, -1, p.Best)
		assert.Negative(t, p.Helps)
	})
}

func TestABeatOfNobodyFindsNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		assert.Equal(t, lua.Pulse{Best: -1, Helps: -time.Millisecond}, w.beat())
		p := w.beat(w.token())
		assert.Equal(t, lua.Pulse{Best: -1, Helps: -time.Millisecond, States: []lua.State{lua.Gone}}, p)
		assert.Empty(t, w.rdb.Keys(t.Context(), "*").Val())
	})
}

// The one admitted may be another client's.
func TestABeatAdmitsWhenTheLockIsFree(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		said := w.listen("other")
		w.hold()
		other := numbered("other", 1)
		w.acquire(lua.Ask{Token: other})
		q := w.join(2)
		w.expire()
		p := w.beat(q...)
		assert.Equal(t, []lua.State{lua.Waiting, lua.Waiting}, p.States)
		assert.Equal(t, 0, p.Best)
		assert.Equal(t, other.Text(), w.owner())
		assert.Len(t, said(), 1)
	})
}

// Who beats lives: it is admitted though its patience was over the moment before.
func TestABeatComesBeforeTheJudgement(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.hold()
		q := w.join(3)
		w.kill(q...)
		w.expire()
		assert.Equal(t, []lua.State{lua.Waiting, lua.Admitted}, w.beat(q[2], q[1]).States)
		assert.Equal(t, texts(q[2]), w.queue())
	})
}

func TestABeatTakesAThousandWaiters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		holder := w.hold()
		n := lua.MostBeats
		if w.mini != nil {
			n = 200 // it sorts the queue for each
		}
		q := w.crowd(n, w.now().Add(time.Second))
		slices.Reverse(q)
		p := w.beat(q...)
		assert.Len(t, p.States, n)
		assert.NotContains(t, p.States, lua.Gone)
		assert.Equal(t, n-1, p.Best)
		for _, who := range []token.Token{q[0], q[n/2], q[n-1]} {
			assert.Greater(t, w.score(w.keys.Alive, who), uint64(w.now().Add(patience/2).UnixMicro()))
		}
		assert.Len(t, w.beat(append(q[:n-1:n-1], holder)...).States, n)
	})
}
