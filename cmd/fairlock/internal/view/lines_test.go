package view

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

func TestALineTellsWhoHoldsAndWhoWaits(t *testing.T) {
	many := held(6)
	writer := held(1)
	writer.Used, writer.Capacity, writer.Holders[0].Weight = lua.WriterWeight, lua.WriterWeight, lua.WriterWeight
	free := held(0)
	free.Holders, free.Used = nil, 0
	rests := held(0)
	rests.Holders[0].Token = lua.Quarantined
	counted := mutexOf(held(2))
	counted.Waiters = nil
	for want, l := range map[string]Lock{
		"mutex billing:42: held by web-1:t001…, fence 1795175987600000":            mutexOf(held(0)),
		"mutex billing:42: held by web-1:t001…, fence 1795175987600000, 2 waiting": counted,
		"mutex billing:42: held by web-1:t001…, fence 1795175987600000, 6 waiting: web-2:t002…, web-3:t003…, " +
			"web-4:t004… (silent), web-5:t005…, …": mutexOf(many),
		"rw x: held by web-1:t001… to write, fence 1795175987600000, 1 waiting: web-2:t002… to read": lockOf(ID{RW, "x"}, writer),
		"rw api: held by 2 readers, last fence 1795175987600000, 1 waiting: web-2:t002… to write":    shared(RW, 2, 1),
		"semaphore api: held by job-0:t000… ×2, fence 1795175987600000, 1 waiting: web-2:t002… ×3":   shared(Semaphore, 1, 1),
		"semaphore api: 6 of 8 permits held, last fence 1795175987600000":                            shared(Semaphore, 3, 0),
		"mutex billing:42: free, last fence 1795175987600000":                                        mutexOf(free),
		"mutex billing:42: rests, for Redis had lost its data":                                       mutexOf(rests),
		`mutex "a\nb": free`: {ID: ID{Mutex, "a\nb"}},
	} {
		require.Equal(t, want, l.Line())
	}
}

func TestALineDoesNotChangeWithTime(t *testing.T) {
	later := held(3)
	later.Now = later.Now.Add(1e9)
	later.Holders[0].Left -= 1e9
	require.Equal(t, mutexOf(held(3)).Line(), mutexOf(later).Line())
}

func TestChangesAreToldOnce(t *testing.T) {
	var c Changes
	one, two := mutexOf(held(1)), mutexOf(held(2))
	free := lockOf(one.ID, lua.Snapshot{Now: noon, Fence: one.Fence})
	other, never := shared(RW, 1, 0), Lock{ID: ID{Semaphore, "billing:42"}}
	at := func(locks ...Lock) Glance { return Glance{Locks: locks} }

	require.Equal(t, []Lock{one, other}, c.Of(at(one, never, other)), "at first, all that are worth it")
	require.Empty(t, c.Of(at(one, never, other)))
	require.Equal(t, []Lock{two}, c.Of(at(two, never, other)))
	require.Equal(t, []Lock{free}, c.Of(at(free, never, other)))
	require.Empty(t, c.Of(at(free, never, other)))
	require.Empty(t, c.Of(Glance{Err: errors.New("away")}))
	require.Equal(t, []Lock{two}, c.Of(at(two, never, other)), "the others are as they were before")

	require.Empty(t, c.Of(at(other)), "this one is not looked at any more")
	require.Empty(t, c.Of(at(free, other)), "a free one is of no interest")
	require.Equal(t, []Lock{one}, c.Of(at(one, other)))

	c = Changes{}
	unused := never
	unused.Kind = ""
	require.Equal(t, []Lock{unused}, c.Of(at(Lock{ID: ID{Mutex, "billing:42"}}, never)))
	require.Equal(t, []Lock{one}, c.Of(at(one, never)))
}

func TestForScriptsAllThatChangesIsTold(t *testing.T) {
	c, lines := Changes{Full: true}, Changes{}
	l := Lock{ID: ID{Mutex, "x"}, Waiting: 6}
	for range l.Waiting {
		l.Waiters = append(l.Waiters, Waiter{Patience: time.Second, Weight: 1})
	}
	at := Glance{Locks: []Lock{l}}
	require.Len(t, c.Of(at), 1)
	require.Len(t, lines.Of(at), 1)
	l.Waiters = slices.Clone(l.Waiters)
	l.Waiters[5].Patience = 0 // the last one is silent: a line does not name it
	at = Glance{Locks: []Lock{l}}
	require.Len(t, c.Of(at), 1)
	require.Empty(t, lines.Of(at))
	l.Waiters[5].Patience = -time.Second
	require.Empty(t, c.Of(Glance{Locks: []Lock{l}}), "it still is")
}

func TestThatOneKindIsFreeIsNotToldWhenAnotherCannotBeRead(t *testing.T) {
	var c Changes
	require.Empty(t, c.Of(Glance{Locks: []Lock{{ID: ID{RW, "x"}}}, Err: errors.New("not ours")}))
}

func TestAFaultIsToldOnceUntilItIsOver(t *testing.T) {
	var c Changes
	away := Glance{Err: errors.New("away\n\x1b!?x")}
	require.Empty(t, c.Fault(Glance{}))
	require.Equal(t, "away  !?x", c.Fault(away))
	require.Empty(t, c.Fault(away))
	require.Empty(t, c.Fault(Glance{}))
	require.Equal(t, "away  !?x", c.Fault(away))
}
