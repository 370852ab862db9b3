package fairlock_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// These tests have processes of the operating system contend for one lock on a real redis-server: only a process can be
// killed, or stopped without noticing.

var procKeys = lua.MutexKeys(lua.DefaultNamespace, "x")

// procQueue waits until so many wait, and returns their tokens in order.
func procQueue(t *testing.T, rdb *redis.Client, n int) []string {
	t.Helper()
	var all []string
	require.Eventually(t, func() bool {
		var err error
		all, err = rdb.ZRange(context.Background(), procKeys.Queue, 0, -1).Result()
		return err == nil && len(all) == n
	}, soon, time.Millisecond, "%d waiters", n)
	return all
}

// procPatience is when the patience of the last of these waiters ends.
func procPatience(t *testing.T, rdb *redis.Client, tokens []string) time.Time {
	t.Helper()
	short := make([]string, len(tokens)) // as they are called there
	for i, token := range tokens {
		short[i] = token[len(token)-14:]
	}
	scores, err := rdb.ZMScore(context.Background(), procKeys.Alive, short...).Result()
	require.NoError(t, err)
	return time.UnixMicro(int64(slices.Max(scores)))
}

// procLeaseEnd is when the lock ends in Redis by itself. It errs on the early side, by less than 2 ms.
func procLeaseEnd(t *testing.T, rdb *redis.Client) time.Time {
	t.Helper()
	before := time.Now()
	left, err := rdb.PTTL(context.Background(), procKeys.Lock).Result()
	require.NoError(t, err)
	require.Positive(t, left)
	return before.Add(left - time.Millisecond)
}

func procOwner(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	owner, err := rdb.Get(context.Background(), procKeys.Lock).Result()
	require.NoError(t, err)
	return owner
}

func procFence(t *testing.T, rdb *redis.Client) uint64 {
	t.Helper()
	fence, err := rdb.Get(context.Background(), procKeys.Fence).Uint64()
	require.NoError(t, err)
	return fence
}

// procClean waits until nothing but this fence is left in Redis.
func procClean(t *testing.T, rdb *redis.Client, fence string, within time.Duration) {
	t.Helper()
	for from := time.Now(); ; time.Sleep(10 * time.Millisecond) { // keys end by time
		last := time.Since(from) >= within // even if this process stood still, it looks once after that
		left := keys(t, rdb)
		if slices.Equal(left, []string{fence}) {
			return
		}
		if last {
			t.Errorf("left in Redis after %v: %v", within, left)
			return
		}
	}
}

// holding is one lease of a worker.
type holding struct {
	childEvent
	by *process
}

// procHoldings collects what the workers of these processes held, sorted by fence. What one held that was killed ends
// with it.
func procHoldings(t *testing.T, all []*process) []holding {
	t.Helper()
	var list []holding
	for _, p := range all {
		p.mu.Lock()
		last := map[int]holding{} // by worker
		for _, e := range p.work {
			switch e.Event {
			case "failed":
				assert.True(t, e.Lost || e.hurried(), "%v: worker %d: %s", p, e.ID, e.Err)
			case "got":
				last[e.ID] = holding{e, p}
			case "held":
				delete(last, e.ID)
				list = append(list, holding{e, p})
			}
		}
		p.mu.Unlock()
		for _, h := range last {
			if !p.killed.IsZero() && p.killed.Before(h.End) {
				h.End = p.killed
			}
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b holding) int { return cmp.Compare(a.Fence, b.Fence) })
	return list
}

// hurried reports whether an Unlock had so little time left that a busy machine may not have answered within it.
func (e childEvent) hurried() bool {
	return strings.Contains(e.Err, fairlock.ErrUnreachable.Error()) && e.Deadline.Sub(e.End) < time.Second
}

// procCheck holds the history of a mutex to exclusion and order.
func procCheck(t *testing.T, list []holding) {
	t.Helper()
	var end time.Time
	for i, h := range list {
		if h.held() {
			require.False(t, h.At.Before(end), "grant %d: two hold the lock for %v", i, end.Sub(h.At))
			end = h.End
		}
	}
	procOrder(t, list)
}

// procOrder holds a history to order. A worker whose process stood still while it waited may have lost its patience,
// or a lock that was handed to it: its order is not judged.
func procOrder(t *testing.T, list []holding) {
	t.Helper()
	var fence, place uint64
	var lost, paused int
	for i, h := range list {
		require.Greater(t, h.Fence, fence, "grant %d: a fence was given twice", i)
		fence = h.Fence
		if !h.held() {
			lost++
		}
		own := h.Ticket
		switch {
		case own != 0:
		case h.Wait < procPause/2:
			own = h.Fence // it came to an idle lock
		default:
			continue // the answer that told its ticket was lost
		}
		if own <= place && h.paused() {
			paused++
			continue
		}
		require.Greater(t, own, place, "grant %d: it was overtaken by a later one", i)
		place = own
	}
	t.Logf("%d grants; %d over before they were used, %d late because their process stood still", len(list), lost, paused)
}

// held reports whether it was not over before it was used.
func (h holding) held() bool { return !h.End.Before(h.At) }

// paused reports whether its process stood still between its call and its grant.
func (h holding) paused() bool {
	h.by.mu.Lock()
	defer h.by.mu.Unlock()
	return slices.ContainsFunc(h.by.work, func(e childEvent) bool {
		return e.Event == "paused" && e.From.Before(h.At) && e.At.After(h.From)
	})
}

func TestManyProcessesTakeTurnsInTheOrderInWhichTheyCame(t *testing.T) {
	const processes, workers = 6, 50
	server := redistest.Start(t)
	all := make([]*process, processes)
	for i := range all {
		all[i] = procStart(t, server, childConfig{})
	}
	for _, p := range all {
		p.await("ready", 0)
	}
	from := time.Now()
	until := from.Add(6 * time.Second) // in which each gets in some twenty times, on a slow machine five times
	for _, p := range all {
		p.tell(childCommand{Do: "work", N: workers, Until: until})
	}
	for _, p := range all {
		p.await("done", 0)
	}
	list := procHoldings(t, all)
	procCheck(t, list)

	type worker struct {
		by *process
		id int
	}
	share := map[worker]int{}
	for _, h := range list {
		assert.False(t, h.End.IsZero(), "a lease of 10 s was lost")
		share[worker{h.by, h.ID}]++
	}
	require.Len(t, share, processes*workers, "a worker never got in")
	least, most := len(list), 0
	for _, n := range share {
		least, most = min(least, n), max(most, n)
	}
	t.Logf("%d to %d grants for each worker", least, most)
	assert.GreaterOrEqual(t, least, 3, "hardly any progress")
	assert.LessOrEqual(t, most-least, 2+most/4, "the shares differ")
	procClean(t, server.Client(), procKeys.Fence, fairlock.DefaultWaiterTTL+time.Second)
}

func TestAKilledHolderCostsTheRestOfItsTTL(t *testing.T) {
	// The waiter's first beat would come too late: it must have been told when to ask, or it is 750 ms late.
	const ttl = 1250 * time.Millisecond
	promptly(t, func(t *testing.T) time.Duration {
		server := redistest.Start(t)
		rdb := server.Client()
		holder := procStart(t, server, childConfig{TTL: ttl, NoRenewal: true})
		waiter := procStart(t, server, childConfig{})
		waiter.await("ready", 0)

		assert.Empty(t, holder.ask("lock", 0).Err)
		waiter.tell(childCommand{Do: "lock"})
		procQueue(t, rdb, 1)
		assert.Empty(t, holder.ask("unlock", 0).Err)
		waiter.got("lock", 0) // now it listens, and will not beat because it begins to
		assert.Empty(t, waiter.ask("unlock", 0).Err)

		held := holder.ask("lock", 1)
		assert.LessOrEqual(t, held.Deadline.Sub(heldUntil(t, rdb)), -ttl/200, "the holder believes too long")
		end := procLeaseEnd(t, rdb)
		waiter.tell(childCommand{Do: "lock", ID: 1})
		procQueue(t, rdb, 1)
		holder.kill()

		next := waiter.got("lock", 1)
		assert.False(t, next.At.Before(end), "%v before the lease's end", end.Sub(next.At))
		assert.Greater(t, next.Fence, held.Fence)
		return next.At.Sub(end)
	})
}

func TestANewcomerDoesNotOvertakeAWaiterThatIsSlowToTakeADeadHoldersLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	holder := procStart(t, server, childConfig{TTL: 1500 * time.Millisecond, NoRenewal: true})
	slow, newcomer := procStart(t, server, childConfig{}), procStart(t, server, childConfig{})
	slow.await("ready", 0)
	newcomer.await("ready", 0)
	assert.Empty(t, holder.ask("lock", 0).Err)
	slow.tell(childCommand{Do: "lock"})
	waiters := procQueue(t, rdb, 1)
	slow.stop()
	holder.kill()
	require.Eventually(t, func() bool {
		return rdb.Exists(context.Background(), procKeys.Lock).Val() == 0
	}, soon, time.Millisecond)

	newcomer.tell(childCommand{Do: "lock"})
	require.Eventually(t, func() bool {
		return rdb.Exists(context.Background(), procKeys.Lock).Val() == 1
	}, soon, time.Millisecond)
	require.Equal(t, waiters[0], procOwner(t, rdb), "it has overtaken")
	slow.resume()
	first := slow.got("lock", 0)
	released := slow.ask("unlock", 0)
	assert.Empty(t, released.Err)
	next := newcomer.got("lock", 0)
	assert.False(t, next.At.Before(released.At), "two hold the lock")
	assert.Greater(t, next.Fence, first.Fence)
	assert.Greater(t, next.Ticket, first.Ticket)
}

func TestARowOfKilledWaitersCostsOnePatience(t *testing.T) {
	t.Parallel()
	// The survivor beats every 600 ms or 500 ms, which does not meet the end of the others' patience.
	const dead, patience = 100, 1500 * time.Millisecond
	queue := func(t *testing.T) (rdb *redis.Client, lease *fairlock.Lease, doomed, survivor *process) {
		server := redistest.Start(t)
		rdb = server.Client()
		doomed = procStart(t, server, childConfig{TTL: patience, WaiterTTL: patience})
		survivor = procStart(t, server, childConfig{TTL: 1800 * time.Millisecond, WaiterTTL: 1800 * time.Millisecond})
		doomed.await("ready", 0)
		survivor.await("ready", 0)
		lease = lock(t, newClient(t, server.Client(), fairlock.Config{TTL: patience, WaiterTTL: patience}).Mutex("x"))
		for i := range dead {
			doomed.tell(childCommand{Do: "lock", ID: i})
			if i == 0 {
				procQueue(t, rdb, 1) // the first one is the first
			}
		}
		procQueue(t, rdb, dead)
		survivor.tell(childCommand{Do: "lock"})
		return rdb, lease, doomed, survivor
	}
	t.Run("killed while they wait", func(t *testing.T) {
		promptly(t, func(t *testing.T) time.Duration {
			rdb, lease, doomed, survivor := queue(t)
			waiters := procQueue(t, rdb, dead+1)
			doomed.kill()
			killed := time.Now() // no beat is on its way any more
			end := procPatience(t, rdb, waiters[:dead])
			assert.Less(t, end.Sub(killed), patience+200*time.Millisecond, "they keep their places for too long")
			unlock(t, lease)
			assert.False(t, procLeaseEnd(t, rdb).After(end), "a waiter was given more than the patience it had proved")

			next := survivor.got("lock", 0)
			assert.Greater(t, next.At.Sub(end), -2*time.Millisecond, "it has overtaken")
			return next.At.Sub(end)
		})
	})
	t.Run("killed when the first has just got the lock", func(t *testing.T) {
		promptly(t, func(t *testing.T) time.Duration {
			rdb, lease, doomed, survivor := queue(t)
			waiters := procQueue(t, rdb, dead+1)
			unlock(t, lease)
			require.Equal(t, waiters[0], procOwner(t, rdb))
			doomed.got("lock", 0)
			doomed.kill()
			end := procPatience(t, rdb, waiters[1:dead])
			if held := procLeaseEnd(t, rdb); held.After(end) {
				end = held
			}

			next := survivor.got("lock", 0)
			assert.Greater(t, next.At.Sub(end), -2*time.Millisecond, "it has overtaken")
			return next.At.Sub(end)
		})
	})
}

func TestAStoppedHolderFindsItsLeaseOverWhenItWakes(t *testing.T) {
	const ttl = 600 * time.Millisecond
	for name, late := range map[string]time.Duration{"its timers first": 0, "the holder before its timers": time.Minute} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			rdb := server.Client()
			stopped := procStart(t, server, childConfig{TTL: ttl, Late: late})
			other := procStart(t, server, childConfig{})
			other.await("ready", 0)

			held := stopped.ask("lock", 0)
			stopped.tell(childCommand{Do: "watch"})
			stopped.await("watching", 0)
			other.tell(childCommand{Do: "lock"})
			procQueue(t, rdb, 1)
			stopped.stop()
			since := time.Now()
			next := other.got("lock", 0)
			assert.Greater(t, next.Fence, held.Fence)
			time.Sleep(time.Until(since.Add(ttl))) // a shorter one it takes for the scheduler's

			stopped.resume()
			woke := stopped.await("woke", 0)
			assert.True(t, woke.Lost, "it believes in its lease: %q", woke.Err)
			assert.True(t, woke.Done)
			late := stopped.await("unlock", 0)
			assert.True(t, late.Lost, "Unlock: %q", late.Err)
			assert.Equal(t, next.Token, procOwner(t, rdb), "the late Unlock has touched the next owner")
			assert.Empty(t, other.ask("err", 0).Err)
			assert.Empty(t, other.ask("unlock", 0).Err)
		})
	}
}

func TestALateUnlockThatReachesRedisDoesNotTouchTheNextOwner(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	robbed, other := procStart(t, server, childConfig{}), procStart(t, server, childConfig{})
	assert.Empty(t, robbed.ask("lock", 0).Err)
	other.tell(childCommand{Do: "lock"})
	procQueue(t, rdb, 1)
	was, err := newClient(t, wrapped{rdb}, fairlock.Config{}).Mutex("x").ForceRelease(context.Background())
	require.NoError(t, err)
	require.True(t, was)
	next := other.got("lock", 0)

	assert.Empty(t, robbed.ask("err", 0).Err, "it cannot know yet")
	late := robbed.ask("unlock", 0)
	assert.True(t, late.Lost, "Unlock: %q", late.Err)
	assert.Equal(t, next.Token, procOwner(t, rdb), "the late Unlock has touched the next owner")
	assert.Empty(t, other.ask("unlock", 0).Err)
}

func TestAWaiterStoppedPastTheTimeGivenDoesNotBelieveTheGrant(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	const patience = 3 * time.Second
	stopped := procStart(t, server, childConfig{TTL: patience, WaiterTTL: patience})
	other := procStart(t, server, childConfig{})
	lease := lock(t, newClient(t, server.Client(), fairlock.Config{}).Mutex("x"))
	stopped.tell(childCommand{Do: "lock"})
	waiters := procQueue(t, rdb, 1)
	ticket, err := rdb.ZScore(context.Background(), procKeys.Queue, waiters[0]).Result()
	require.NoError(t, err)
	other.tell(childCommand{Do: "lock"})
	procQueue(t, rdb, 2)

	stopped.stop()
	unlock(t, lease)
	require.Equal(t, waiters[0], procOwner(t, rdb))
	given := procFence(t, rdb)
	next := other.got("lock", 0)
	stopped.resume()
	require.Eventually(t, func() bool {
		return stopped.told("lock", 0) || rdb.ZCard(context.Background(), procKeys.Queue).Val() == 1
	}, soon, time.Millisecond, "it does not come back")
	require.False(t, stopped.told("lock", 0), "it believes in a grant that is over")
	assert.Equal(t, waiters, procQueue(t, rdb, 1))

	released := other.ask("unlock", 0)
	assert.Empty(t, released.Err)
	last := stopped.got("lock", 0)
	assert.False(t, last.At.Before(released.At), "two hold the lock")
	assert.Greater(t, next.Fence, given)
	assert.Greater(t, last.Fence, next.Fence)
	assert.Equal(t, uint64(ticket), last.Ticket, "it has lost its place")
}

func TestAWaiterStoppedForLessThanTheTimeGivenGetsTheLock(t *testing.T) {
	t.Parallel()
	// With less than a sixth of TTL left it does not use what it was handed, but asks.
	const ttl = 7 * time.Second
	for name, left := range map[string]time.Duration{"and uses what is left": ttl, "and asks for more": ttl / 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rdb := server.Client()
			stopped := procStart(t, server, childConfig{TTL: ttl})
			other := procStart(t, server, childConfig{})
			lease := lock(t, newClient(t, server.Client(), fairlock.Config{TTL: ttl}).Mutex("x"))
			stopped.tell(childCommand{Do: "lock"})
			waiters := procQueue(t, rdb, 1)
			other.tell(childCommand{Do: "lock"})
			procQueue(t, rdb, 2)

			stopped.stop()
			unlock(t, lease)
			given := procFence(t, rdb)
			time.Sleep(time.Until(procLeaseEnd(t, rdb).Add(-left)))
			stopped.resume()
			got := stopped.got("lock", 0)
			assert.Equal(t, waiters[0], got.Token)
			assert.Equal(t, given, got.Fence, "it was granted twice")
			assert.Equal(t, given, procFence(t, rdb), "it was granted twice")
			assert.Greater(t, got.Fence, lease.Fence())
			assert.False(t, other.told("lock", 0), "two hold the lock")
			assert.Empty(t, stopped.ask("unlock", 0).Err)
			other.got("lock", 0)
		})
	}
}

func TestProcessesThatAreKilledAtRandomNeitherBreakNorBlockTheLock(t *testing.T) {
	t.Parallel()
	const processes, workers, ttl = 4, 8, 300 * time.Millisecond
	server := redistest.Start(t)
	rdb := server.Client()
	until := time.Now().Add(8 * time.Second)
	var all []*process
	start := func() *process {
		p := procStart(t, server, childConfig{TTL: ttl, WaiterTTL: ttl})
		p.tell(childCommand{Do: "work", N: workers, Until: until.Add(time.Minute), Hold: time.Millisecond})
		all = append(all, p)
		return p
	}
	var living [processes]*process
	for i := range living {
		living[i] = start()
	}
	for time.Now().Before(until) {
		time.Sleep(300*time.Millisecond + rand.N(200*time.Millisecond))
		i := rand.IntN(processes)
		living[i].kill()
		living[i] = start()
	}
	for _, p := range living {
		p.kill()
	}
	ended := time.Now()
	lease := lock(t, newClient(t, server.Client(), fairlock.Config{TTL: ttl, WaiterTTL: ttl}).Mutex("x"))
	assert.Less(t, time.Since(ended), 2*ttl+5*time.Second)
	list := procHoldings(t, all)
	assert.Greater(t, lease.Fence(), list[len(list)-1].Fence)
	unlock(t, lease)
	procClean(t, rdb, procKeys.Fence, ttl+time.Second)

	procCheck(t, list)
	t.Logf("%d processes", len(all))
	var gap time.Duration
	for i := range list[1:] {
		gap = max(gap, list[i+1].At.Sub(list[i].At))
	}
	assert.Less(t, gap, 2*ttl+5*time.Second, "the lock was blocked")
}

func TestKilledProcessesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	server := redistest.Start(t)
	rdb := server.Client()
	p := procStart(t, server, childConfig{TTL: ttl, WaiterTTL: ttl})
	for i := range 20 {
		p.tell(childCommand{Do: "lock", ID: i})
	}
	procQueue(t, rdb, 19)
	p.kill()
	procClean(t, rdb, procKeys.Fence, ttl+time.Second)
}

func TestAnotherProcessResumesALeaseByItsToken(t *testing.T) {
	t.Parallel()
	const ttl, waiters = 3 * time.Second, 5
	server := redistest.Start(t)
	rdb := server.Client()
	first := procStart(t, server, childConfig{TTL: ttl})
	second := procStart(t, server, childConfig{TTL: ttl})
	third := procStart(t, server, childConfig{TTL: ttl, WaiterTTL: ttl})
	second.await("ready", 0)

	began := first.ask("lock", 0)
	first.kill()
	second.tell(childCommand{Do: "resume", Token: began.Token})
	resumed := second.got("resume", 0)
	assert.Equal(t, began.Fence, resumed.Fence)
	assert.Equal(t, began.Token, resumed.Token)
	for i := range waiters {
		third.tell(childCommand{Do: "lock", ID: i})
		procQueue(t, rdb, i+1)
	}
	time.Sleep(2 * ttl) // and two patiences
	assert.Empty(t, second.ask("err", 0).Err)
	assert.Equal(t, began.Token, procOwner(t, rdb))

	released, fence := second.ask("unlock", 0), began.Fence
	for i := range waiters {
		assert.Empty(t, released.Err)
		next := third.got("lock", i)
		assert.False(t, next.At.Before(released.At), "two hold the lock")
		assert.Greater(t, next.Fence, fence)
		released, fence = third.ask("unlock", i), next.Fence
	}
}
