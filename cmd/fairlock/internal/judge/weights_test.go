package judge_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
)

// everybody is what a writer of these histories weighs.
const everybody = 1 << 20

// Of a semaphore of five permits: a and b hold all, c waits for what both give back, d and e get in with it by one
// release.
func semaphore() []turn {
	return []turn{
		{client: "a", asked: 10, granted: 12, fence: 11, unlocking: 100, weight: 2},
		{client: "b", asked: 13, granted: 15, fence: 14, unlocking: 120, weight: 3},
		{client: "c", asked: 20, queued: 22, ticket: 21, granted: 126, fence: 121, unlocking: 200, weight: 3},
		{client: "d", asked: 30, queued: 32, ticket: 31, granted: 125, fence: 122, unlocking: 150, weight: 1},
		{client: "e", asked: 40, queued: 42, ticket: 41, granted: 124, fence: 123, unlocking: 160, weight: 1},
	}
}

// Of a read-write lock: a and b read, c writes, d and e read together.
func readers() []turn {
	return []turn{
		{client: "a", asked: 10, granted: 12, fence: 11, unlocking: 100, weight: 1},
		{client: "b", asked: 13, granted: 15, fence: 14, unlocking: 110, weight: 1},
		{client: "c", asked: 20, queued: 22, ticket: 21, granted: 115, fence: 111, unlocking: 200, weight: everybody},
		{client: "d", asked: 30, queued: 32, ticket: 31, granted: 207, fence: 201, unlocking: 300, weight: 1},
		{client: "e", asked: 40, queued: 42, ticket: 41, granted: 205, fence: 202, unlocking: 320, weight: 1},
	}
}

// changed is what a history becomes by a change to one turn, given by its index.
func changed(turns []turn, i int, change func(*turn)) []turn {
	change(&turns[i])
	return turns
}

func TestOneReleaseMayLetSeveralInWhichReturnInAnyOrder(t *testing.T) {
	v := judgedOf(5, semaphore()...)
	require.NoError(t, v.Err())
	require.Equal(t, 5, v.Peak)
	require.Equal(t, 3, v.Together)
	require.Equal(t, map[int]int{1: 2, 2: 1, 3: 2}, v.ByWeight)
	require.Equal(t, Spread{N: 3, P50: 5, P99: 6}, v.HandOff, "all from b's Unlock, which made room for c, the first in line")

	v = judgedOf(everybody, readers()...)
	require.NoError(t, v.Err())
	require.Equal(t, 2, v.Together)
	require.Equal(t, Spread{N: 3, P50: 5, P99: 7}, v.HandOff)
}

func TestTooMuchHeldAtOnceIsCaught(t *testing.T) {
	for name, c := range map[string]struct {
		capacity       int
		turns          []turn
		overlaps, peak int
	}{
		"fewer permits":               {4, semaphore(), 2, 5},
		"one permit too many":         {5, changed(semaphore(), 2, func(u *turn) { u.granted = 119 }), 1, 6},
		"a holder that never lets go": {5, changed(semaphore(), 1, func(u *turn) { u.unlocking = 0 }), 1, 8},
		"a writer beside a reader":    {everybody, changed(readers(), 2, func(u *turn) { u.granted = 109 }), 1, everybody + 1},
		"a reader beside a writer":    {everybody, changed(readers(), 4, func(u *turn) { u.granted = 199 }), 1, everybody + 1},
		"a writer beside a writer": {
			everybody, changed(readers()[:4], 3, func(u *turn) { u.granted, u.weight = 199, everybody }), 1, 2 * everybody,
		},
	} {
		v := judgedOf(c.capacity, c.turns...)
		require.Equal(t, c.overlaps, v.Overlaps, name)
		require.Equal(t, c.peak, v.Peak, name)
		require.Error(t, v.Err(), name)
	}
}

func TestWhoPassesAWaiterThatNeedsMoreIsCaught(t *testing.T) {
	turns := semaphore() // a's two permits would do for d and e
	turns[3].granted, turns[3].fence = 105, 101
	turns[4].granted, turns[4].fence = 106, 102
	v := judgedOf(5, turns...)
	require.Equal(t, 1, v.Violations)
	require.Zero(t, v.Overlaps)
	require.Error(t, v.Err())

	turns = changed(readers(), 4, func(u *turn) { u.granted, u.fence, u.unlocking = 50, 45, 60 })
	require.Equal(t, 2, judgedOf(everybody, turns...).Violations, "a reader passed a writer, and the reader before it")
}

func TestFencesOfOneReleaseGiveTheOrder(t *testing.T) {
	turns := semaphore()
	turns[3].fence, turns[4].fence = turns[4].fence, turns[3].fence
	require.Equal(t, 1, judgedOf(5, turns...).Violations)
}

func TestStarvingOfAWriterIsCaught(t *testing.T) {
	turns := readers()
	turns[2] = turn{client: "c", asked: 20, queued: 22, ticket: 21, weight: everybody}
	require.Equal(t, 1, judgedOf(everybody, turns...).Violations)
	turns[2].left = 204
	require.Zero(t, judgedOf(everybody, turns...).Violations, "it left before")
}

// Its wake-up may be on its way while the one behind it is in already, by the same release.
func TestWhoLeavesBeforeItHearsOfItsGrantIsNotStarved(t *testing.T) {
	turns := semaphore()
	turns[3] = turn{client: "d", asked: 30, queued: 32, ticket: 31, left: 127, weight: 1}
	require.NoError(t, judgedOf(5, turns...).Err(), "the fifth permit may have been for it")
	turns[4].weight = 2
	require.Equal(t, 1, judgedOf(5, turns...).Violations, "the one behind it has both")
}

func TestFencesNeedNotGrowBetweenThoseWhoHoldTogether(t *testing.T) {
	for name, c := range map[string]struct {
		turns []turn
		want  int
	}{
		"asked for later":    {changed(readers()[:2], 1, func(u *turn) { u.fence = 9 }), 1},
		"the same twice":     {changed(readers(), 4, func(u *turn) { u.fence = 201 }), 1},
		"writer's too low":   {changed(readers()[1:3], 1, func(u *turn) { u.asked, u.fence = 14, 12 }), 1},
		"returned as it may": {readers()[3:], 0},
	} {
		require.Equal(t, c.want, judgedOf(everybody, c.turns...).Regressions, name)
	}
}

func TestCrashOfOneOfSeveralHoldersCostsWhatTheOthersWaited(t *testing.T) {
	turns := changed(readers(), 1, func(u *turn) { u.unlocking = 0 })
	turns[2].granted, turns[2].fence = 195, 191
	v := Judge(history(map[string]int64{"b": 50}, turns...), everybody)
	require.NoError(t, v.Err())
	require.Equal(t, []Crash{{Client: "b", At: 50, Held: 1, Served: 3, Stall: 95}}, v.Crashes, "since a's Unlock")
	require.Equal(t, Spread{N: 2, P50: 5, P99: 7}, v.HandOff, "the dead kept the writer out, not the lock")

	v = Judge(history(map[string]int64{"b": 50}, changed(readers()[:2], 1, func(u *turn) { u.unlocking = 0 })...), everybody)
	require.Equal(t, []Crash{{Client: "b", At: 50, Held: 1}}, v.Crashes, "nobody got in afterwards")
}

func TestCrashTellsHowMuchWasHeld(t *testing.T) {
	turns := changed(semaphore()[:2], 1, func(u *turn) { u.unlocking = 0 })
	require.Equal(t, []Crash{{Client: "b", At: 50, Held: 3}}, Judge(history(map[string]int64{"b": 50}, turns...), 5).Crashes)
}

func TestTurnOfAWaiterDoesNotComeBeforeThatOfTheOneAheadOfIt(t *testing.T) {
	turns := semaphore()
	turns[0].weight, turns[0].unlocking = 1, 119 // makes room for d, which stands behind c
	turns[1].weight = 4
	v := judgedOf(5, turns...)
	require.NoError(t, v.Err())
	require.Equal(t, Spread{N: 3, P50: 5, P99: 6}, v.HandOff)
}

func TestHandOffsAreNotMeasuredWhileTheDeadMayHoldSomething(t *testing.T) {
	turns := semaphore()
	dead := turn{client: "x", asked: 2, granted: 4, fence: 3, weight: 1}
	turns[0].weight = 1 // of what x held, a makes one free
	turns[4].weight = 0
	v := Judge(history(map[string]int64{"x": 90}, append(turns[:4:4], dead)...), 5)
	require.NoError(t, v.Err())
	require.Zero(t, v.HandOff.N)
}

func TestCostsOfTwoCrashesAreToldApart(t *testing.T) {
	a, b := first, second
	a.unlocking, b.unlocking = 0, 0
	c := third
	c.granted, c.fence = 290, 289
	v := Judge(history(map[string]int64{"a": 60, "b": 120}, a, b, c), 1)
	require.NoError(t, v.Err())
	require.Equal(t, []Crash{
		{Client: "a", At: 60, Held: 1, Served: 2, Stall: 45}, {Client: "b", At: 120, Held: 1, Served: 1, Stall: 170},
	}, v.Crashes)
}
