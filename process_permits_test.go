package fairlock_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// These tests have processes of the operating system contend for permits, as those of process_test.go do for one lock.
// Times of several processes are compared by the machine's clock, by which Redis's leases go as well.

// procPermits is of how many permits the semaphores here are.
const procPermits = 11

// procPeak is the most weight that was believed in at one moment. Who begins at the very moment at which another one
// ends does not overlap.
func procPeak(list []holding) int {
	type edge struct {
		at     time.Time
		weight int
	}
	var edges []edge
	for _, h := range list {
		if h.held() {
			edges = append(edges, edge{h.At, h.Weight}, edge{h.End, -h.Weight})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.weight, b.weight)) })
	now, peak := 0, 0
	for _, e := range edges {
		now += e.weight
		peak = max(peak, now)
	}
	return peak
}

// procLeft has the leases of those who were killed last until their deadline: nobody gave them back, so nobody may have
// their permits before.
func procLeft(list []holding) []holding {
	list = slices.Clone(list)
	for i := range list {
		if list[i].Event == "got" {
			list[i].End = list[i].Deadline
		}
	}
	return list
}

// procGrown holds fences to real time: whoever asked after another one had got in has the higher one.
func procGrown(t *testing.T, list []holding) {
	t.Helper()
	var asked time.Time // the latest of those with lower fences
	for i, h := range list {
		require.False(t, h.At.Before(asked), "grant %d: one with a lower fence asked after it was in", i)
		if h.From.After(asked) {
			asked = h.From
		}
	}
}

// procInspect looks at a semaphore, and holds what is used to what its holders have.
func procInspect(t *testing.T, sem fairlock.Semaphore) fairlock.State {
	t.Helper()
	s, err := sem.Inspect(context.Background())
	require.NoError(t, err)
	sum := 0
	for _, h := range s.Holders {
		sum += h.Weight
	}
	assert.Equal(t, sum, s.Used, "what is used is not what the holders have")
	assert.LessOrEqual(t, sum, procPermits)
	return s
}

// procWaiting waits until so many wait.
func procWaiting(t *testing.T, sem fairlock.Semaphore, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s, err := sem.Inspect(context.Background())
		return err == nil && s.Waiting == n
	}, soon, time.Millisecond, "%d waiters", n)
}

// permitting is an Acquire under way.
func permitting(t *testing.T, sem fairlock.Semaphore, n int) *waiting {
	t.Helper()
	ctx, w := within(t, soon), &waiting{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = sem.Acquire(ctx, n)
		w.at = time.Now()
	}()
	return w
}

func permit(t *testing.T, sem fairlock.Semaphore, n int) *fairlock.Lease {
	t.Helper()
	return permitting(t, sem, n).got(t)
}

func TestKilledProcessesNeitherLosePermitsNorGiveThemTwice(t *testing.T) {
	t.Parallel()
	const processes, workers, ttl = 4, 25, 300 * time.Millisecond
	server := redistest.Start(t)
	cfg := childConfig{TTL: ttl, WaiterTTL: ttl, Kind: "semaphore", Permits: procPermits}
	sem := newClient(t, server.Client(), fairlock.Config{WaiterTTL: 2 * time.Second}).Semaphore("x", procPermits)
	until := time.Now().Add(7 * time.Second)
	var all []*process
	start := func() *process {
		p := procStart(t, server, cfg)
		p.tell(childCommand{
			Do: "work", N: workers, Until: until.Add(time.Minute), Hold: 5 * time.Millisecond,
			Weights: []int{1, 1, 1, 1, 1, 1, 2, 3, 4, 5},
		})
		all = append(all, p)
		return p
	}
	var living [processes]*process
	for i := range living {
		living[i] = start()
	}
	var kills, permits, waiters int // what the killed had, or waited for
	for time.Now().Before(until) {
		time.Sleep(300*time.Millisecond + rand.N(250*time.Millisecond)) // a patience, in which the dead are served, too
		i := rand.IntN(processes)
		living[i].kill()
		s, client := procInspect(t, sem), fmt.Sprintf("-%d-", living[i].cmd.Process.Pid)
		kills++
		for _, h := range s.Holders {
			if strings.Contains(h.Client, client) {
				permits += h.Weight
			}
		}
		for _, w := range s.Waiters {
			if strings.Contains(w.Client, client) {
				waiters++
			}
		}
		living[i] = start()
	}

	// From here on somebody always holds one: what is used never begins anew.
	anchor := permit(t, sem, 1)
	cfg.TTL = 4 * time.Second // is the last to end
	doomed := procStart(t, server, cfg)
	doomed.tell(childCommand{Do: "lock", Weights: []int{3}})
	last := doomed.got("lock", 0)
	for _, p := range append(living[:], doomed) {
		p.kill()
	}
	before := time.Now()
	var end time.Time // of the last dead lease; early by less than 2 ms
	for _, h := range procInspect(t, sem).Holders {
		if h.Token.Text() == last.Token {
			end = before.Add(h.TTL - time.Millisecond)
		}
	}
	require.False(t, end.IsZero(), "a dead holder's permits were given away")
	var rest *fairlock.Lease
	require.Eventually(t, func() bool {
		var err error
		rest, err = sem.TryAcquire(context.Background(), procPermits-1)
		return err == nil
	}, soon, time.Millisecond, "permits of the dead are lost")
	assert.False(t, time.Now().Before(end), "not all leases were over")
	assert.Equal(t, procPermits, procInspect(t, sem).Used)
	_, err := sem.TryAcquire(context.Background(), 1)
	require.ErrorIs(t, err, fairlock.ErrBusy, "permits came back twice")
	unlock(t, rest)
	unlock(t, anchor)
	whole, err := sem.TryAcquire(context.Background(), procPermits)
	require.NoError(t, err)

	list := procHoldings(t, all)
	assert.Greater(t, whole.Fence(), list[len(list)-1].Fence)
	unlock(t, whole)
	procClean(t, server.Client(), lua.SemaphoreKeys(lua.DefaultNamespace, "x").Fence, soon)
	procOrder(t, list)
	procGrown(t, list)
	assert.LessOrEqual(t, procPeak(procLeft(list)), procPermits, "too many held permits")
	assert.Equal(t, procPermits, procPeak(list), "never were all permits in use")
	t.Logf("%d processes killed, with %d permits and %d waiters", kills, permits, waiters)
	require.True(t, kills >= 8 && permits >= 10 && waiters >= 100 && len(list) >= 300, "too little has happened")
}

func TestTheLateReleaseOfADeadHolderGivesNothingBack(t *testing.T) {
	t.Parallel()
	const tries, live = 1000, time.Minute
	server := redistest.Start(t)
	sem := lua.Semaphore(server.Client(), lua.DefaultNamespace, "x", procPermits)
	ask := func(weight int, ttl time.Duration) (token.Token, lua.Request, lua.Reply) {
		id, err := token.New("test")
		require.NoError(t, err)
		r := lua.Request{Token: id, TTL: ttl, WaiterTTL: live, Weight: weight}
		reply, err := sem.Acquire(t.Context(), r)
		require.NoError(t, err)
		return id, r, reply
	}
	granted := func(weight int, ttl time.Duration) token.Token {
		id, _, reply := ask(weight, ttl)
		require.Equal(t, lua.Granted, reply.Outcome)
		return id
	}
	release := func(id token.Token) lua.Handoff {
		h, err := sem.Release(t.Context(), id, live)
		require.NoError(t, err)
		return h
	}
	leave := func(id token.Token, tombstoneTTL time.Duration) lua.Handoff {
		h, err := sem.Leave(t.Context(), id, live, tombstoneTTL)
		require.NoError(t, err)
		return h
	}
	lates := []func(id token.Token) lua.Handoff{
		release,
		func(id token.Token) lua.Handoff { return leave(id, 0) },
		func(id token.Token) lua.Handoff { return leave(id, time.Second) },
	}
	granted(6, live) // one holds all the time: what is used never begins anew
	handed := 0
	for i := range tries {
		weight := 1 + i%5
		dead := granted(weight, 2*time.Millisecond)
		ended := time.Now().Add(3 * time.Millisecond)
		others := []token.Token{}
		if weight < 5 {
			others = append(others, granted(5-weight, live))
		}
		heir, again, reply := ask(weight, live)
		others = append(others, heir)
		next, _, behind := ask(1, live)
		require.Equal(t, lua.Queued, behind.Outcome)
		if i%2 == 0 { // the heir is in before the release comes; otherwise it may be the release that lets it in
			again.Ticket = reply.Ticket
			require.Eventually(t, func() bool {
				reply, err := sem.Acquire(t.Context(), again)
				return err == nil && reply.Outcome == lua.Granted
			}, soon, time.Millisecond, "try %d: the permits of the dead are lost", i)
		}
		time.Sleep(time.Until(ended))
		for range 2 {
			h := lates[i%len(lates)](dead)
			require.False(t, h.Released, "try %d", i)
			for _, g := range h.Grants {
				require.Equal(t, heir, g.Token, "try %d: permits came back twice", i)
				handed++
			}
			s, err := sem.Inspect(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, procPermits, s.Used, "try %d", i)
			require.Len(t, s.Holders, 1+len(others))
			require.Equal(t, 1, s.Waiting)
		}
		leave(next, 0)
		for _, id := range others {
			require.True(t, release(id).Released)
		}
		s, err := sem.Inspect(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, 6, s.Used, "try %d", i)
	}
	t.Logf("%d were let in by the late release itself", handed)
	assert.Positive(t, handed)
}

func TestStoppedProcessesThatReleaseLateGiveNothingBack(t *testing.T) {
	const processes, rounds, ttl = 3, 5, 200 * time.Millisecond
	server := redistest.Start(t)
	sem := newClient(t, server.Client(), fairlock.Config{}).Semaphore("x", procPermits)
	var all [processes]*process
	for i := range all {
		// As on a machine whose clock stands while it is suspended: it believes in its lease, and its release is sent.
		all[i] = procStart(t, server, childConfig{
			TTL: ttl, NoRenewal: true, Slow: 1000, Kind: "semaphore", Permits: procPermits,
		})
	}
	anchor := permit(t, sem, procPermits-2*processes)
	for round := range rounds {
		for _, p := range all {
			p.tell(childCommand{Do: "lock", ID: round, Weights: []int{2}})
			p.got("lock", round)
			p.stop()
		}
		heir := permitting(t, sem, 2*processes)
		lease := heir.got(t)
		next := permitting(t, sem, 1)
		procWaiting(t, sem, 1)
		for _, p := range all {
			p.tell(childCommand{Do: "unlock", ID: round})
			p.resume()
		}
		for _, p := range all {
			late := p.await("unlock", round)
			assert.True(t, late.Lost, late.Err)
			assert.Contains(t, late.Err, fairlock.ErrTaken.Error(), "it was not sent to Redis")
		}
		s := procInspect(t, sem)
		assert.Equal(t, procPermits, s.Used)
		assert.Equal(t, 1, s.Waiting)
		assert.True(t, next.pending(), "permits came back twice")
		unlock(t, lease)
		unlock(t, next.got(t))
	}
	unlock(t, anchor)
}

func TestReadersAndWritersOfManyProcessesTakeTurnsInOrder(t *testing.T) {
	const processes, workers = 8, 6
	server := redistest.Start(t)
	all := make([]*process, processes)
	for i := range all {
		all[i] = procStart(t, server, childConfig{Kind: "rwmutex"})
	}
	for _, p := range all {
		p.await("ready", 0)
	}
	until := time.Now().Add(4 * time.Second)
	for _, p := range all {
		p.tell(childCommand{
			Do: "work", N: workers, Until: until, Hold: 2 * time.Millisecond,
			Weights: []int{1, 1, 1, 1, 1, 1, 1, 1, 1, lua.WriterWeight},
		})
	}
	for _, p := range all {
		p.await("done", 0)
	}
	list := procHoldings(t, all)
	procOrder(t, list)
	procGrown(t, list)

	type share struct{ reads, writes int }
	shares, readers := map[*process]share{}, []holding{}
	var end, written time.Time // of all before; of the writers before
	longest := 0
	for i, h := range list {
		require.True(t, h.held(), "a lease of 10 s was lost")
		s := shares[h.by]
		if h.Weight == 1 {
			require.False(t, h.At.Before(written), "grant %d: a reader is in with a writer before it", i)
			readers = append(readers, h)
			s.reads++
		} else {
			require.False(t, h.At.Before(end), "grant %d: a writer is not alone", i)
			written = h.End
			s.writes++
		}
		shares[h.by] = s
		if h.End.After(end) {
			end = h.End
		}
		if h.Ticket != 0 {
			first, _ := slices.BinarySearchFunc(list, h.Ticket, func(g holding, ticket uint64) int {
				return cmp.Compare(g.Fence, ticket)
			})
			longest = max(longest, i-first)
		}
	}
	assert.LessOrEqual(t, longest, processes*workers-1, "one waited for longer than the queue can be")
	assert.LessOrEqual(t, procPeak(list), lua.WriterWeight)
	together := procPeak(readers)
	assert.Greater(t, together, 1, "readers were never together")
	t.Logf("%d readers together; the longest wait was %d grants", together, longest)
	require.Len(t, shares, processes)
	for p, s := range shares {
		assert.True(t, s.reads >= 20 && s.writes >= 1, "%v: too little has happened: %+v", p, s)
	}
	procClean(t, server.Client(), lua.RWMutexKeys(lua.DefaultNamespace, "x").Fence, soon)
}
