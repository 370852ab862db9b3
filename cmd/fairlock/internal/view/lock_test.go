package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

func TestAFenceTellsSinceWhenUnlessItCannot(t *testing.T) {
	l := mutexOf(held(1))
	require.Equal(t, noon.Add(-12400*time.Millisecond), l.Holders[0].Since.UTC())
	require.Equal(t, noon.Add(-11200*time.Millisecond), l.Waiters[0].Since.UTC())
	for _, fence := range []uint64{0, us(noon) + 1} { // there is none; the clock has stepped back
		snap := held(1)
		snap.Holders[0].Fence, snap.Waiters[0].Ticket = fence, lua.Ticket(fence)
		l = mutexOf(snap)
		require.Zero(t, l.Holders[0].Since)
		require.Zero(t, l.Waiters[0].Since)
		require.Equal(t, "?", l.ago(l.Holders[0].Since))
	}
}

func TestAWaiterIsSilentOnceItsPatienceHasRunOut(t *testing.T) {
	snap := held(3)
	snap.Waiters[1].Expires = noon // to the microsecond
	l := mutexOf(snap)
	require.True(t, l.Waiters[0].Alive())
	require.False(t, l.Waiters[1].Alive())
	require.False(t, l.Waiters[2].Alive())
	snap.Waiters[0].Expires = time.UnixMicro(0) // what Redis has of somebody it does not know
	l = mutexOf(snap)
	require.False(t, l.Waiters[0].Alive())
	require.False(t, l.Waiters[0].Heard)
	require.True(t, l.Waiters[1].Heard)
}

func TestWhoRestsHoldsNothing(t *testing.T) {
	snap := held(2)
	snap.Holders[0].Token = lua.Quarantined
	l := mutexOf(snap)
	require.True(t, l.Resting)
	require.Equal(t, 8100*time.Millisecond, l.Rest)
	require.False(t, l.Held())
	require.Empty(t, l.Holders)
	require.Zero(t, l.Used)
	require.True(t, l.InUse())
	require.False(t, l.Free())
}

func TestALockIsInUseIfSomebodyHoldsItOrWaits(t *testing.T) {
	require.True(t, mutexOf(held(0)).InUse())
	snap := held(1)
	snap.Holders, snap.Used = nil, 0
	require.True(t, mutexOf(snap).InUse())
	require.True(t, mutexOf(snap).Free())
	snap.Waiters, snap.Waiting = nil, 0
	require.False(t, mutexOf(snap).InUse(), "only its fence is left")
}

func TestSharesAreTold(t *testing.T) {
	s := shared(Semaphore, 3, 1)
	require.Equal(t, []int{6, 8, 2, 3}, []int{s.Used, s.Permits, s.Holders[0].Weight, s.Waiters[0].Weight})
	rw := shared(RW, 3, 1)
	require.Equal(t, []int{3, 0, 1, 1}, []int{rw.Used, rw.Permits, rw.Holders[0].Weight, rw.Waiters[0].Weight})
	require.False(t, rw.Holders[0].Writer)
	require.True(t, rw.Waiters[0].Writer)

	snap := held(0)
	snap.Used, snap.Capacity, snap.Holders[0].Weight = lua.WriterWeight, lua.WriterWeight, lua.WriterWeight
	rw = lockOf(ID{RW, "x"}, snap)
	require.Equal(t, 1, rw.Used)
	require.True(t, rw.Holders[0].Writer)
	require.Zero(t, rw.hidden())
}

func TestOfEachNameWhatIsWorthShowingIsChosen(t *testing.T) {
	used, free, never := mutexOf(held(0)), Lock{ID: ID{Semaphore, "billing:42"}, Fence: 5}, Lock{ID: ID{RW, "billing:42"}}
	require.Equal(t, []Lock{used}, Worth([]Lock{used, free, never}))
	require.Equal(t, []Lock{free}, Worth([]Lock{never, free}))
	require.Equal(t, []Lock{never}, Worth([]Lock{never}), "this kind was asked for")
	unused := never
	unused.Kind = ""
	require.Equal(t, []Lock{unused}, Worth([]Lock{never, never}))
	require.Equal(t, "billing:42", unused.String())

	other := Lock{ID: ID{Mutex, "b"}, Fence: 1}
	require.Equal(t, []Lock{other, used, used}, Worth([]Lock{other, used, free, used}))
	require.Empty(t, Worth(nil))
}
