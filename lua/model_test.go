package lua_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fairlock/fairlock-go/internal/model"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Every step of these tests is done to the scripts and to the model. What both answer and what both leave is compared.
//
// In memory the clock is the test's and stands still between two steps. So everything is compared to the µs: fences,
// tickets, expiries of holders and waiters, and what comes just before, at and after them.
//
// On a real server TTLs are half an hour at least, so that time decides nothing; to expire a holder or a waiter, the test
// writes that into Redis. Fences and tickets are compared by their order, times within a minute.
//
// Whoever has left or released asks no more, as a client does; only a question that went astray arrives later, and only
// of a token that was buried.

// lockKind is one kind of lock.
type lockKind struct {
	name    string
	keys    lua.PermitKeys
	lock    string               // the key of a mutex, which has the first three only
	sizes   []int                // the capacities that processes come with
	weights func(size int) []int // what can be asked for
	open    func(rdb lua.Scripter, size int) lua.Lock
}

func lockKinds() []lockKind {
	mutex := lua.MutexKeys(ns, "name")
	return []lockKind{
		{
			"mutex", lua.PermitKeys{Queue: mutex.Queue, Alive: mutex.Alive, Fence: mutex.Fence}, mutex.Lock,
			[]int{1}, func(int) []int { return []int{1} },
			func(rdb lua.Scripter, _ int) lua.Lock { return lua.Mutex(rdb, ns, "name") },
		},
		{
			"semaphore", lua.SemaphoreKeys(ns, "name"), "",
			[]int{3, 1, 2, 5}, func(size int) []int { return []int{1, 2, 3, 4, 5}[:size] },
			func(rdb lua.Scripter, size int) lua.Lock { return lua.Semaphore(rdb, ns, "name", size) },
		},
		{
			"rwmutex", lua.RWMutexKeys(ns, "name"), "",
			[]int{lua.WriterWeight}, func(int) []int { return []int{1, lua.WriterWeight} },
			func(rdb lua.Scripter, _ int) lua.Lock { return lua.RWMutex(rdb, ns, "name") },
		},
	}
}

// checker is a *testing.T or a *rapid.T.
type checker interface {
	require.TestingT
	Helper()
	Logf(format string, args ...any)
}

// both is a number as the model has it and as Redis has it.
type both struct{ model, redis uint64 }

// party is one acquisition. Whenever it asks, it asks for the same.
type party struct {
	token        token.Token
	size, weight int
	ticket       both // the last that it was told
	try          bool
	left         bool // it has released or left, and asks no more, but for a question that went astray
}

// machine does steps to a lock and to its model.
type machine struct {
	*world
	t               checker
	kind            lockKind
	model           model.Lock
	clock           int64         // µs
	slack           time.Duration // how far times may be apart
	parties         []*party
	fences, tickets []both          // all that were ever seen
	forgotten       map[string]bool // by Redis, with the whole queue
	blind           bool            // what stands in Redis is not compared for now
}

func newMachine(t checker, w *world, k lockKind) *machine {
	m := &machine{world: w, kind: k, t: t, slack: time.Minute, forgotten: map[string]bool{}}
	require.NoError(t, w.rdb.FlushAll(context.Background()).Err())
	if w.mini != nil {
		m.slack = 0
		m.setClock(1_700_000_000_000_000) // the same in every run, so that what fails does so again
	}
	return m
}

func (m *machine) setClock(to int64) {
	m.clock = to
	m.mini.SetTime(time.UnixMicro(to))
}

// begin begins every step: it says what is done, and brings the model to the present.
func (m *machine) begin(format string, args ...any) context.Context {
	m.t.Helper()
	ctx := context.Background()
	if m.real != nil {
		now, err := m.rdb.Time(ctx).Result()
		require.NoError(m.t, err)
		m.clock = now.UnixMicro()
	}
	m.t.Logf("%d: "+format, append([]any{m.clock}, args...)...)
	m.model.Advance(m.clock)
	if from, by := m.model.Forgets(); len(m.model.Waiters) > 0 && m.clock >= from {
		// Some time in between Redis forgets the queue.
		if m.rdb.Exists(ctx, m.kind.keys.Queue).Val() == 0 {
			for _, w := range m.model.Waiters {
				m.forgotten[w.Token] = true
			}
			m.model.Forget()
		} else {
			require.LessOrEqual(m.t, m.clock, by, "the queue is to be forgotten by then")
		}
	}
	return ctx
}

func (m *machine) lockOf(p *party) lua.Lock { return m.kind.open(m.rdb, p.size) }

func (m *machine) any() lua.Lock { return m.kind.open(m.rdb, m.kind.sizes[0]) }

// holderOf returns the holder that a reply has to name. On a real server leases of two holders can end in any order: the
// clock has moved between their grants.
func (m *machine) holderOf(outcome lua.Outcome, want string) string {
	if m.mini != nil || m.kind.lock != "" || want == "" {
		return want
	}
	if outcome != lua.Busy && outcome != lua.Queued {
		return ""
	}
	first, err := m.rdb.ZRange(context.Background(), m.kind.keys.Permits, 0, 0).Result()
	require.NoError(m.t, err)
	require.True(m.t, slices.ContainsFunc(m.model.Holders, func(h model.Holder) bool { return h.Token == first[0] }))
	return first[0]
}

// party adds one who has not asked yet.
func (m *machine) party(size, weight int) *party {
	p := &party{token: numbered("c", len(m.parties)+1), size: size, weight: weight}
	m.parties = append(m.parties, p)
	return p
}

// ask asks: with its ticket, if it has one and says so.
func (m *machine) ask(p *party, ttl, waiterTTL time.Duration, bound int, ticket bool) model.Outcome {
	m.t.Helper()
	ctx := m.begin("%s asks for %d of %d, ttl %v, waiter TTL %v, max waiters %d, try %v, ticket %v", p.token.Text(),
		p.weight, p.size, ttl, waiterTTL, bound, p.try, ticket)
	brings := both{}
	if ticket {
		brings = p.ticket
	}
	waits := m.waits(p)
	got, err := m.lockOf(p).Acquire(ctx, lua.Request{
		Token: p.token, TTL: ttl, WaiterTTL: waiterTTL, MaxWaiters: bound, Try: p.try, Weight: p.weight,
		Ticket: lua.Ticket(brings.redis),
	})
	require.NoError(m.t, err)
	ask := model.Request{
		Token: p.token.Text(), Weight: p.weight, Capacity: p.size, TTL: ttl.Microseconds(),
		WaiterTTL: waiterTTL.Microseconds(), MaxWaiters: bound, Ticket: brings.model,
	}
	if p.try {
		ask.WaiterTTL = 0
	}
	want := m.model.Acquire(m.clock, ask)

	outcomes := map[lua.Outcome]model.Outcome{
		lua.Granted: model.Granted, lua.Queued: model.Queued, lua.Busy: model.Busy, lua.Full: model.Full,
		lua.CapacityDiffers: model.CapacityDiffers,
	}
	require.Equal(m.t, want.Outcome, outcomes[got.Outcome])
	require.Equal(m.t, want.Position, got.Position, "position")
	require.Equal(m.t, want.Capacity, got.Capacity, "capacity")
	require.Equal(m.t, want.Queue == model.More, got.More, "more")
	require.Equal(m.t, m.holderOf(got.Outcome, want.Holder), got.Holder, "holder")
	m.same(&m.fences, want.Fence, got.Fence)
	if m.same(&m.tickets, want.Ticket, uint64(got.Ticket)); want.Ticket != 0 {
		p.ticket = both{want.Ticket, uint64(got.Ticket)}
		if !waits && brings.redis == 0 {
			require.Greater(m.t, uint64(got.Ticket), got.Fence, "a new ticket is above the last fence")
		}
	}
	m.compare()
	return want.Outcome
}

func (m *machine) release(p *party) {
	m.t.Helper()
	ctx := m.begin("%s releases", p.token.Text())
	p.left = true
	got, err := m.lockOf(p).Release(ctx, p.token, ttl)
	m.handoff(got, err, m.model.Release(m.clock, p.token.Text(), ttl.Microseconds()))
}

func (m *machine) leave(p *party, ttl, bury time.Duration) {
	m.t.Helper()
	ctx := m.begin("%s leaves, given %v, buried %v", p.token.Text(), ttl, bury)
	p.left = true
	got, err := m.lockOf(p).Leave(ctx, p.token, ttl, bury)
	m.handoff(got, err, m.model.Leave(m.clock, p.token.Text(), ttl.Microseconds(), bury.Microseconds()))
}

// forceRelease is told the fence that its caller has seen.
func (m *machine) forceRelease(seen both) {
	m.t.Helper()
	ctx := m.begin("force release, seen %d", seen.model)
	got, err := m.any().ForceRelease(ctx, ttl, seen.redis)
	m.handoff(got, err, m.model.ForceRelease(m.clock, ttl.Microseconds(), seen.model))
}

func (m *machine) handoff(got lua.Handoff, err error, want model.Handoff) {
	m.t.Helper()
	require.NoError(m.t, err)
	require.Equal(m.t, want.Released, got.Released, "released")
	require.Equal(m.t, want.Queue == model.More, got.More, "more")
	require.Len(m.t, got.Grants, len(want.Grants))
	for i, g := range got.Grants {
		require.Equal(m.t, want.Grants[i].Token, g.Token.Text(), "granted, in order")
		m.same(&m.fences, want.Grants[i].Fence, g.Fence)
		m.near(want.Grants[i].Given, g.Given.Microseconds(), "given")
	}
	m.compare()
}

func (m *machine) renew(p *party, ttl time.Duration) {
	m.t.Helper()
	ctx := m.begin("%s renews for %v", p.token.Text(), ttl)
	got, ok, err := m.lockOf(p).Renew(ctx, p.token, ttl, 0)
	require.NoError(m.t, err)
	want := m.model.Renew(m.clock, p.token.Text(), ttl.Microseconds())
	require.Equal(m.t, want != 0, ok, "renewed")
	m.same(&m.fences, want, got)
	m.compare()
}

func (m *machine) heartbeat(ttl, waiterTTL time.Duration, who ...*party) {
	m.t.Helper()
	tokens, texts := make([]token.Token, len(who)), make([]string, len(who))
	for i, p := range who {
		tokens[i], texts[i] = p.token, p.token.Text()
	}
	ctx := m.begin("heartbeat of %v, ttl %v, waiter TTL %v", texts, ttl, waiterTTL)
	before := m.model.Fence
	got, err := m.any().Heartbeat(ctx, ttl, waiterTTL, tokens)
	require.NoError(m.t, err)
	states, best := m.model.Heartbeat(m.clock, ttl.Microseconds(), waiterTTL.Microseconds(), texts)
	names := map[lua.WaiterState]model.WaiterState{
		lua.NotQueued: model.NotQueued, lua.StillQueued: model.StillQueued, lua.Holding: model.Holding, lua.NowGranted: model.NowGranted,
	}
	for i, state := range got.States {
		require.Equal(m.t, states[i], names[state], texts[i])
	}
	require.Equal(m.t, best, got.First, "the foremost")
	m.same(&m.fences, before, got.Fence)
	m.compare()
}

// lose loses all data, to a server whose clock is so much later; or earlier.
func (m *machine) lose(later time.Duration) {
	m.t.Helper()
	ctx := m.begin("data lost, clock %v", later)
	require.NoError(m.t, m.rdb.FlushAll(ctx).Err())
	m.model = model.Lock{}
	if m.mini != nil {
		m.setClock(m.clock + later.Microseconds())
	}
	m.compare()
}

// pass lets time pass. In memory only.
func (m *machine) pass(to int64) {
	m.t.Helper()
	m.setClock(to)
	m.begin("time has passed")
	m.compare()
}

// expire ends a lease, as time would; kill expires a waiter. On a real server, where the test has to do it.
func (m *machine) expire(p *party) {
	m.t.Helper()
	ctx := m.begin("the lease of %s ends", p.token.Text())
	at := slices.IndexFunc(m.model.Holders, func(h model.Holder) bool { return h.Token == p.token.Text() })
	if at < 0 {
		return
	}
	m.model.Holders = slices.Delete(m.model.Holders, at, at+1)
	m.end(ctx, p.token.Text())
	m.compare()
}

func (m *machine) end(ctx context.Context, holder string) {
	m.t.Helper()
	if m.kind.lock != "" {
		require.NoError(m.t, m.rdb.Del(ctx, m.kind.lock).Err())
		return
	}
	over := redis.Z{Score: float64(m.clock), Member: holder}
	require.NoError(m.t, m.rdb.ZAddXX(ctx, m.kind.keys.Permits, over).Err())
}

// endRest ends the rest after lost data.
func (m *machine) endRest() {
	m.t.Helper()
	ctx := m.begin("the rest ends")
	m.model.Holders = slices.DeleteFunc(m.model.Holders, func(h model.Holder) bool { return h.Token == model.Quarantined })
	if m.kind.lock == "" || m.rdb.Get(ctx, m.kind.lock).Val() == model.Quarantined {
		m.end(ctx, model.Quarantined)
	}
	m.compare()
}

func (m *machine) kill(p *party) {
	m.t.Helper()
	ctx := m.begin("waiter %s expires", p.token.Text())
	for i := range m.model.Waiters {
		if m.model.Waiters[i].Token == p.token.Text() {
			m.model.Waiters[i].Expires = m.clock
			over := redis.Z{Score: float64(m.clock), Member: short(p.token)}
			require.NoError(m.t, m.rdb.ZAddXX(ctx, m.kind.keys.Alive, over).Err())
		}
	}
}

// inspect compares what inspect says. What is not listed is not looked at.
func (m *machine) inspect(limit int) {
	m.t.Helper()
	ctx := m.begin("inspect %d", limit)
	got, err := m.any().Inspect(ctx, limit)
	require.NoError(m.t, err)
	m.near(m.clock, got.Now.UnixMicro(), "now")
	m.same(&m.fences, m.model.Fence, got.Fence)
	require.Equal(m.t, m.model.Used(), got.Used, "used")
	if m.model.InUse() {
		require.Equal(m.t, m.model.Capacity, got.Capacity, "capacity")
	}
	require.Len(m.t, got.Holders, min(limit, len(m.model.Holders)))
	for _, h := range got.Holders {
		at := slices.IndexFunc(m.model.Holders, func(want model.Holder) bool { return want.Token == h.Token })
		require.NotEqual(m.t, -1, at, "%s holds nothing", h.Token)
		want := m.model.Holders[at]
		require.Equal(m.t, want.Weight, h.Weight, h.Token)
		m.near((want.Expires-m.clock)/1000, h.Left.Milliseconds(), "what is left to "+h.Token)
		if want.Token != model.Quarantined {
			m.same(&m.fences, want.Fence, h.Fence)
		}
	}
	require.Equal(m.t, len(m.model.Waiters), got.Waiting, "waiting")
	require.Len(m.t, got.Waiters, min(limit, len(m.model.Waiters)))
	for i, w := range got.Waiters {
		want := m.model.Waiters[i]
		require.Equal(m.t, want.Token, w.Token)
		require.Equal(m.t, want.Weight, w.Weight, w.Token)
		m.same(&m.tickets, want.Ticket, uint64(w.Ticket))
		if want.Expires <= m.clock { // alive may end before the queue
			require.LessOrEqual(m.t, w.Expires.UnixMicro(), m.clock, "%s is dead", w.Token)
		} else {
			m.near(want.Expires, w.Expires.UnixMicro(), "until when "+w.Token+" keeps its place")
		}
	}
	m.compare()
}

// compare compares what stands in Redis, and checks what has to hold whatever the model says. It reads the keys itself:
// inspect takes back what expired holders had.
func (m *machine) compare() {
	m.t.Helper()
	if m.blind {
		return
	}
	ctx := context.Background()
	queue := m.rdb.ZRangeWithScores(ctx, m.kind.keys.Queue, 0, -1).Val()
	waiting := map[string]bool{}
	tickets := map[float64]bool{}
	var got, want []string
	for i, z := range queue {
		name := z.Member.(string)
		waiting[name], tickets[z.Score] = true, true
		got = append(got, name)
		if i < len(m.model.Waiters) {
			m.same(&m.tickets, m.model.Waiters[i].Ticket, uint64(z.Score))
		}
	}
	for _, w := range m.model.Waiters {
		want = append(want, w.Token)
	}
	require.Equal(m.t, want, got, "the queue")
	require.Len(m.t, tickets, len(queue), "tickets are distinct")

	var holds, held []string
	for _, h := range m.model.Holders {
		holds = append(holds, h.Token)
	}
	if m.kind.lock != "" {
		if owner := m.rdb.Get(ctx, m.kind.lock).Val(); owner != "" {
			held = []string{owner}
		}
	} else {
		held = m.permits(ctx, waiting)
	}
	require.ElementsMatch(m.t, holds, held, "who holds")
	for _, name := range held {
		require.False(m.t, waiting[name], "%s holds and waits", name)
	}
}

// permits returns who holds permits, and checks the books.
func (m *machine) permits(ctx context.Context, waiting map[string]bool) (held []string) {
	m.t.Helper()
	books := m.rdb.HGetAll(ctx, m.kind.keys.Holders).Val()
	number := func(field string) int {
		n, _ := strconv.Atoi(strings.Fields(books[field] + " 0")[0])
		return n
	}
	written, used := 0, 0
	all := m.rdb.ZRangeWithScores(ctx, m.kind.keys.Permits, 0, -1).Val()
	for _, z := range all {
		name := z.Member.(string)
		written += number(name)
		if int64(z.Score) > m.clock {
			held = append(held, name)
			used += number(name)
		}
	}
	require.Equal(m.t, m.model.Used(), used, "the holders' weights")
	require.LessOrEqual(m.t, used, max(number("capacity"), 0), "no more than there are")
	if len(all) > 0 {
		require.Equal(m.t, written, number("used"), "the sum that is kept is that of the weights")
	}
	wants := m.rdb.HGetAll(ctx, m.kind.keys.Wants).Val()
	for _, w := range m.model.Waiters {
		n, _ := strconv.Atoi(wants[w.Token])
		require.Equal(m.t, w.Weight, max(n, 1), "what %s wants", w.Token)
	}
	for name := range wants {
		require.True(m.t, waiting[name] || m.forgotten[name] || name == "capacity", "%s wants permits and does not wait", name)
	}
	if m.model.InUse() {
		require.Equal(m.t, m.model.Capacity, number("capacity"), "capacity")
	}
	return held
}

// same checks a number that the model and Redis have each for itself: the same two always go together, and in the same
// order; in memory they are equal.
func (m *machine) same(seen *[]both, want, got uint64) {
	m.t.Helper()
	if m.mini != nil || want == 0 {
		require.Equal(m.t, want, got)
		return
	}
	at, known := slices.BinarySearchFunc(*seen, want, func(b both, want uint64) int {
		switch {
		case b.model < want:
			return -1
		case b.model > want:
			return 1
		}
		return 0
	})
	if known {
		require.Equal(m.t, (*seen)[at].redis, got, "it does not change")
		return
	}
	if at > 0 {
		require.Greater(m.t, got, (*seen)[at-1].redis, "it rises")
	}
	if at < len(*seen) {
		require.Less(m.t, got, (*seen)[at].redis, "it rises")
	}
	*seen = slices.Insert(*seen, at, both{want, got})
}

// near compares two times, or durations, in µs.
func (m *machine) near(want, got int64, what string) {
	m.t.Helper()
	require.InDelta(m.t, 0, want-got, float64(m.slack.Microseconds())+1, what)
}

// fence returns the last fence.
func (m *machine) fence() both {
	last, _ := m.rdb.Get(context.Background(), m.kind.keys.Fence).Uint64()
	return both{m.model.Fence, last}
}

func (m *machine) waits(p *party) bool {
	return slices.ContainsFunc(m.model.Waiters, func(w model.Waiter) bool { return w.Token == p.token.Text() })
}

// random are the random steps.
func (m *machine) random(t *rapid.T) map[string]func(*rapid.T) {
	leases := []time.Duration{time.Second, 61 * time.Millisecond, ttl}
	waits := []time.Duration{waiterTTL, 500 * time.Millisecond, 10 * time.Millisecond}
	if m.real != nil {
		leases, waits = []time.Duration{time.Hour, 3 * time.Hour}, []time.Duration{2 * time.Hour, 30 * time.Minute}
	}
	lease := func() time.Duration { return rapid.SampledFrom(leases).Draw(t, "ttl") }
	wait := func() time.Duration { return rapid.SampledFrom(waits).Draw(t, "waiter TTL") }
	size := m.kind.sizes[0]
	join := func(try bool) {
		p := m.party(size, rapid.SampledFrom(m.kind.weights(size)).Draw(t, "weight"))
		p.try = try
		m.ask(p, lease(), wait(), rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(t, "bound"), false)
	}
	somebody := func() *party {
		if len(m.parties) == 0 {
			t.Skip("nobody there")
		}
		last := m.parties[max(len(m.parties)-10, 0):]
		return last[rapid.IntRange(0, len(last)-1).Draw(t, "who")]
	}
	again := func(t *rapid.T) {
		p := somebody()
		if p.left && m.model.Tombstones[p.token.Text()] <= m.clock {
			t.Skip("it asks no more") // buried: a question that went astray
		}
		m.ask(p, lease(), wait(), 0, !p.try && rapid.Bool().Draw(t, "with its ticket"))
	}
	steps := map[string]func(*rapid.T){
		"join":      func(*rapid.T) { join(false) },
		"join too":  func(*rapid.T) { join(false) },
		"try":       func(*rapid.T) { join(true) },
		"again":     again,
		"once more": again,
		"release":   func(*rapid.T) { m.release(somebody()) },
		"renew":     func(*rapid.T) { m.renew(somebody(), lease()) },
		"inspect":   func(*rapid.T) { m.inspect(rapid.SampledFrom([]int{100, 2, 1}).Draw(t, "limit")) },
		"new size":  func(*rapid.T) { size = rapid.SampledFrom(m.kind.sizes).Draw(t, "size") },
		"leave": func(t *rapid.T) {
			p := somebody()
			bury := rapid.SampledFrom([]time.Duration{0, waits[0], waits[1]}).Draw(t, "bury")
			if bury == 0 && m.model.Tombstones[p.token.Text()] > m.clock {
				t.Skip("who has buried a token does not dig it up")
			}
			m.leave(p, lease(), bury)
		},
		"heartbeat": func(t *rapid.T) {
			var who []*party
			for _, p := range m.parties[max(len(m.parties)-8, 0):] {
				if rapid.Bool().Draw(t, "beats") {
					who = append(who, p)
				}
			}
			m.heartbeat(lease(), wait(), who...)
		},
		"force release": func(t *rapid.T) {
			seen := m.fence()
			if late := rapid.Bool().Draw(t, "late"); late && seen.redis > 0 {
				seen.model--
				seen.redis--
			}
			m.forceRelease(seen)
		},
		"lose": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not so often")
			}
			m.lose(time.Second)
		},
		"": func(*rapid.T) {},
	}
	if m.real != nil {
		steps["expire"] = func(*rapid.T) { m.expire(somebody()) }
		steps["kill"] = func(*rapid.T) { m.kill(somebody()) }
		steps["end rest"] = func(*rapid.T) { m.endRest() }
		return steps
	}
	pass := func(t *rapid.T) {
		next := append(m.events(), m.clock)
		to := next[rapid.IntRange(0, len(next)-1).Draw(t, "event")]
		to += rapid.SampledFrom([]int64{0, 1, -1, -1000, -1001, -999, 1000, 1001}).Draw(t, "off")
		m.pass(max(to, m.clock+1))
	}
	steps["pass"], steps["pass on"] = pass, pass
	return steps
}

// events are the moments to come at which something ends, in order.
func (m *machine) events() (at []int64) {
	from, by := m.model.Forgets()
	at = append(at, from, (from+by)/2, by, m.model.FenceUntil)
	for _, h := range m.model.Holders {
		at = append(at, h.Expires)
	}
	for _, w := range m.model.Waiters {
		at = append(at, w.Expires)
	}
	for _, until := range m.model.Tombstones {
		at = append(at, until)
	}
	at = slices.DeleteFunc(at, func(at int64) bool { return at <= m.clock })
	slices.Sort(at)
	return slices.Compact(at)
}

func TestModel_RandomSteps(t *testing.T) {
	for _, k := range lockKinds() {
		t.Run(k.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				rapid.Check(t, func(t *rapid.T) {
					m := newMachine(t, w, k)
					t.Repeat(m.random(t))
				})
			})
		})
	}
}

func TestModel_BoundsOfACall(t *testing.T) {
	t.Parallel()
	const size = 300
	m := newMachine(t, real(t), lockKinds()[1])
	holder := m.party(size, size)
	m.ask(holder, time.Hour, time.Hour, 0, false)
	m.blind = true // it takes its time
	for range model.MaxDropped + 100 {
		dead := m.party(size, 1)
		m.ask(dead, time.Hour, time.Hour, 0, false)
		m.kill(dead)
	}
	for range size {
		m.ask(m.party(size, 1), time.Hour, time.Hour, 0, false)
	}
	m.blind = false
	m.inspect(1000)
	m.release(holder)                                       // a thousand are dropped
	m.leave(m.party(size, 1), time.Hour, 0)                 // the rest of the dead are, and some are admitted
	m.ask(m.party(size, 1), time.Hour, time.Hour, 0, false) // some more
	require.Len(t, m.model.Holders, 2*model.MaxAdmitted)
	m.heartbeat(time.Hour, time.Hour)
	require.Len(t, m.model.Holders, size)
	m.inspect(1000)
}
