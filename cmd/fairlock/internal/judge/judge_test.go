package judge_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
)

// turn is an acquisition in a history; 0 is for what did not happen.
type turn struct {
	client                 string
	asked, queued, granted int64
	unlocking, lost, left  int64
	ticket, fence          uint64
	weight                 int
}

// history writes the turns down as events, in an order that tells nothing, with the deaths of clients.
func history(deaths map[string]int64, turns ...turn) []Event {
	var all []Event
	for i, u := range turns {
		id := u.client + string(rune('a'+i))
		for _, e := range []Event{
			{Kind: Queued, At: u.queued, Ticket: u.ticket, Weight: u.weight},
			{Kind: Granted, At: u.granted, Asked: u.asked, Fence: u.fence, Weight: u.weight},
			{Kind: Unlocking, At: u.unlocking},
			{Kind: Lost, At: u.lost},
			{Kind: Left, At: u.left},
		} {
			if e.Client, e.ID = u.client, id; e.At != 0 {
				all = append(all, e)
			}
		}
	}
	for client, at := range deaths {
		all = append(all, Event{Kind: Killed, Client: client, At: at})
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// judged is the verdict on a mutex, judgedOf that on a lock of some capacity.
func judged(turns ...turn) Verdict { return judgedOf(1, turns...) }

func judgedOf(capacity int, turns ...turn) Verdict { return Judge(history(nil, turns...), capacity) }

var (
	first  = turn{client: "a", asked: 10, granted: 12, fence: 11, unlocking: 100}
	second = turn{client: "b", asked: 20, queued: 22, ticket: 21, granted: 105, fence: 101, unlocking: 200}
	third  = turn{client: "c", asked: 30, queued: 32, ticket: 31, granted: 205, fence: 201, unlocking: 300}
)

func TestFIFOIsFlawless(t *testing.T) {
	v := judged(first, second, third)
	require.NoError(t, v.Err())
	require.Equal(t, 3, v.Grants)
	require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, v.ByClient)
	require.Equal(t, Spread{N: 2, P50: 5, P99: 5}, v.HandOff)
	require.Equal(t, Spread{N: 3, P50: 85, P99: 175}, v.Wait)
}

func TestLIFOIsCaught(t *testing.T) {
	turns := []turn{first}
	for i := range int64(10) {
		turns = append(turns, turn{
			client: "b", asked: 20 + i, queued: 40 + i, ticket: uint64(20 + i),
			granted: 1000 - 50*i, fence: uint64(1000 - 50*i), unlocking: 1000 - 50*i + 10,
		})
	}
	v := judged(turns...)
	require.Equal(t, 9, v.Violations, "everybody but the one who came last and was first")
	require.Zero(t, v.Overlaps)
	require.Error(t, v.Err())
}

func TestOneOvertakenWaiterIsCaught(t *testing.T) {
	b, c := second, third
	b.granted, b.fence, b.unlocking = 205, 201, 300
	c.granted, c.fence, c.unlocking = 105, 101, 200
	require.Equal(t, 1, judged(first, b, c).Violations)
}

func TestTicketsThatLieAreCaught(t *testing.T) {
	b, c := second, third
	b.granted, b.fence, b.unlocking = 205, 201, 300
	c.granted, c.fence, c.unlocking = 105, 101, 200
	b.ticket, c.ticket = c.ticket, b.ticket
	require.Equal(t, 1, judged(first, b, c).Violations, "b was in the queue before c asked")
}

func TestBargingIsCaught(t *testing.T) {
	barger := turn{client: "c", asked: 101, granted: 104, fence: 102, unlocking: 110}
	b := second
	b.granted, b.fence = 115, 112
	require.Equal(t, 1, judged(first, barger, b).Violations)
}

func TestArrivalsTooCloseToTellAreNotJudged(t *testing.T) {
	b, c := second, third
	b.granted, b.fence, b.unlocking = 205, 201, 300
	b.queued = 106 // when it heard so, c had the lock
	c.granted, c.fence, c.unlocking = 105, 101, 200
	require.Zero(t, judged(first, b, c).Violations)
}

func TestWhoeverTakesAnIdleLockIsInOrder(t *testing.T) {
	later := turn{client: "c", asked: 300, granted: 303, fence: 301, unlocking: 310}
	require.NoError(t, judged(first, second, later).Err())
}

func TestStarvingIsCaught(t *testing.T) {
	starved := turn{client: "d", asked: 15, queued: 17, ticket: 16}
	require.Equal(t, 1, judged(first, starved, second, third).Violations, "it still waits")
	starved.left = 150
	require.Equal(t, 1, judged(first, starved, second, third).Violations, "it left after another one was served")
	starved.left = 104
	require.Zero(t, judged(first, starved, second, third).Violations, "it left before")
}

func TestTheDeadAreNotOvertaken(t *testing.T) {
	dead := turn{client: "d", asked: 15, queued: 17, ticket: 16}
	v := Judge(history(map[string]int64{"d": 50}, first, dead, second), 1)
	require.NoError(t, v.Err())
}

func TestOverlapIsCaught(t *testing.T) {
	b := second
	b.granted = 99
	v := judged(first, b, third)
	require.Equal(t, 1, v.Overlaps)
	require.Error(t, v.Err())
}

func TestOverlapWithAnEarlierHolderThanTheLastIsCaught(t *testing.T) {
	a := first
	a.unlocking = 250
	require.Equal(t, 2, judged(a, second, third).Overlaps)
}

func TestHoldingsThatTouchDoNotOverlap(t *testing.T) {
	b := second
	b.granted = first.unlocking
	require.Zero(t, judged(first, b).Overlaps)
}

func TestWhoeverNeverLetsGoHolds(t *testing.T) {
	a := first
	a.unlocking = 0
	require.Equal(t, 1, judged(a, second).Overlaps)
}

func TestLostLeaseEndsTheHolding(t *testing.T) {
	a := first
	a.unlocking, a.lost = 0, 90
	v := judged(a, second)
	require.NoError(t, v.Err())
	require.Equal(t, 1, v.Lost)
	require.Zero(t, v.HandOff.N, "nobody handed it over")
	a.lost = 110
	require.Equal(t, 1, judged(a, second).Overlaps, "lost after the next one had it")
}

func TestKilledHolderHoldsUntilTheKill(t *testing.T) {
	a := first
	a.unlocking = 0
	v := Judge(history(map[string]int64{"a": 60}, a, second, third), 1)
	require.NoError(t, v.Err())
	require.Equal(t, []Crash{{Client: "a", At: 60, Held: 1, Served: 2, Stall: 45}}, v.Crashes)
	require.Equal(t, 1, v.HandOff.N, "the dead hand nothing over")

	b := second
	b.asked, b.queued, b.ticket = 79, 80, 79
	v = Judge(history(map[string]int64{"a": 60}, a, b), 1)
	require.EqualValues(t, 25, v.Crashes[0].Stall, "it came later")

	v = Judge(history(map[string]int64{"a": 110}, a, second, third), 1)
	require.Equal(t, 1, v.Overlaps, "it was alive when the next one got in")
}

func TestDeadWaitersCostIsTheGapThatTheyStoodIn(t *testing.T) {
	dead := []turn{
		{client: "d", asked: 23, queued: 25, ticket: 24},
		{client: "d", asked: 24, queued: 26, ticket: 25},
	}
	c := third
	c.granted, c.fence = 290, 289
	v := Judge(history(map[string]int64{"d": 50}, append(dead, first, second, c)...), 1)
	require.NoError(t, v.Err())
	require.Equal(t, []Crash{{Client: "d", At: 50, Waiters: 2, Served: 2, Stall: 90}}, v.Crashes)
	require.Equal(t, Spread{N: 1, P50: 5, P99: 5}, v.HandOff, "that gap is no hand-off")
}

func TestHandOffToWhoeverWasNotQueuedIsNotMeasured(t *testing.T) {
	b := second
	b.queued = 101
	require.Zero(t, judged(first, b).HandOff.N)
}

func TestFenceThatDoesNotGrowIsCaught(t *testing.T) {
	b := second
	b.fence = first.fence
	v := judged(first, b)
	require.Equal(t, 1, v.Regressions)
	require.Error(t, v.Err())
}

func TestNoGrantIsAFailure(t *testing.T) {
	require.Error(t, Judge(nil, 1).Err())
}

func TestSpreadIsByNearestRank(t *testing.T) {
	var turns []turn
	for i := range int64(200) {
		turns = append(turns, turn{client: "a", asked: 1000 * i, granted: 1000*i + i + 1, fence: uint64(i + 1), unlocking: 1000*i + 500})
	}
	require.Equal(t, Spread{N: 200, P50: 100, P99: 198 * time.Nanosecond}, judged(turns...).Wait)
}

func TestOnlyTheFirstQueuedCounts(t *testing.T) {
	events := slices.Concat(history(nil, first, second), []Event{{Kind: Queued, Client: "b", ID: "bb", At: 99, Ticket: 21}})
	require.Equal(t, 1, Judge(events, 1).HandOff.N)
}
