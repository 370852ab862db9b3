package fairlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// lasting is for tests of what must happen at once: by a beat, a renewal or an expiry it would happen after the test
// has given up.
var lasting = fairlock.Config{TTL: 5 * time.Minute, WaiterTTL: 5 * time.Minute}

// ask is one way to acquire.
type ask func(context.Context) (*fairlock.Lease, error)

// face is a lock that several can hold, seen by one client. What is asked of it is a number of permits, or "r" or "w".
type face struct {
	kind     string
	one, all string // a share that leaves room for others, and one that does not
	ask, try func(what string) ask
	do       func(ctx context.Context, what string, f func(context.Context) error) error
	shared
}

type shared interface {
	Inspect(ctx context.Context) (fairlock.State, error)
	Resume(ctx context.Context, t token.Token) (*fairlock.Lease, error)
	ForceRelease(ctx context.Context) (bool, error)
}

// severals are the faces of the locks named x that several can hold.
var severals = map[string]func(*fairlock.Client) face{"semaphore": five, "rwmutex": readWrite}

// five is a semaphore of five permits.
func five(c *fairlock.Client) face {
	s := c.Semaphore("x", 5)
	n := func(what string) int {
		n, err := strconv.Atoi(what)
		if err != nil {
			panic(err)
		}
		return n
	}
	return face{
		kind: "semaphore", one: "1", all: "5", shared: s,
		ask: func(what string) ask {
			return func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, n(what)) }
		},
		try: func(what string) ask {
			return func(ctx context.Context) (*fairlock.Lease, error) { return s.TryAcquire(ctx, n(what)) }
		},
		do: func(ctx context.Context, what string, f func(context.Context) error) error {
			return s.Do(ctx, n(what), f)
		},
	}
}

func readWrite(c *fairlock.Client) face {
	m := c.RWMutex("x")
	return face{
		kind: "rwmutex", one: "r", all: "w", shared: m,
		ask: func(what string) ask { return map[string]ask{"r": m.RLock, "w": m.Lock}[what] },
		try: func(what string) ask { return map[string]ask{"r": m.TryRLock, "w": m.TryLock}[what] },
		do: func(ctx context.Context, what string, f func(context.Context) error) error {
			if what == "r" {
				return m.RDo(ctx, f)
			}
			return m.Do(ctx, f)
		},
	}
}

// onKinds runs a test for each kind, on the in-memory server and on a real one.
func onKinds(t *testing.T, test func(t *testing.T, b backend, see func(*fairlock.Client) face)) {
	for kind, see := range severals {
		t.Run(kind, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b backend) { test(t, b, see) })
		})
	}
}

// onServers runs a test for each kind on a real server of its own, side by side.
func onServers(t *testing.T, test func(t *testing.T, s *redistest.Server, see func(*fairlock.Client) face)) {
	for kind, see := range severals {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, redistest.Start(t), see)
		})
	}
}

func hold(t testing.TB, a ask) *fairlock.Lease {
	t.Helper()
	lease, err := a(within(t, soon))
	require.NoError(t, err)
	return lease
}

func begin(ctx context.Context, a ask) *waiting {
	w := &waiting{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = a(ctx)
		w.at = time.Now()
	}()
	return w
}

func state(t testing.TB, l shared) fairlock.State {
	t.Helper()
	s, err := l.Inspect(context.Background())
	require.NoError(t, err)
	return s
}

// standing waits until so many wait.
func standing(t testing.TB, l shared, n int) {
	t.Helper()
	until(t, l, func(s fairlock.State) bool { return s.Waiting == n })
}

// until waits for a state.
func until(t testing.TB, l shared, is func(fairlock.State) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		s, err := l.Inspect(context.Background())
		return err == nil && is(s)
	}, soon, time.Millisecond)
}

// join begins an acquisition that has to wait, and returns once it does.
func join(t testing.TB, l shared, a ask) *waiting {
	t.Helper()
	n := state(t, l).Waiting
	w := begin(within(t, 3*soon), a)
	standing(t, l, n+1)
	return w
}

// attentive returns a client whose subscription is up, and what it traces.
func attentive(t testing.TB, rdb fairlock.Redis, cfg fairlock.Config) (*fairlock.Client, *journal) {
	t.Helper()
	j := &journal{}
	cfg.Trace = j.trace()
	c := newClient(t, rdb, cfg)
	m := c.Mutex("warm " + c.Name())
	first := lock(t, m)
	w := enqueue(within(t, soon), m)
	queued(t, m, 1)
	unlock(t, first)
	unlock(t, w.got(t))
	require.Eventually(t, func() bool { return j.count("subscription ok=true") == 1 }, soon, time.Millisecond)
	return c, j
}

// granted are the grants of the lock named x.
func (j *journal) granted() []fairlock.GrantedInfo {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.grants), func(g fairlock.GrantedInfo) bool { return g.Name != "x" })
}

// share shows how much of a lock one has or wants.
func share(l face, weight int, writer bool) string {
	switch {
	case l.kind == "semaphore":
		return strconv.Itoa(weight)
	case writer:
		return "w"
	default:
		return "r"
	}
}

// picture shows who holds, in the order of grants, and who waits: "a2 b1 | c3".
func picture(s fairlock.State, l face, names map[token.Token]string) string {
	var all []string
	slices.SortFunc(s.Holders, func(a, b fairlock.Holder) int { return int(a.Fence) - int(b.Fence) })
	for _, h := range s.Holders {
		all = append(all, names[h.Token]+share(l, h.Weight, h.Writer))
	}
	all = append(all, "|")
	for _, w := range s.Waiters {
		all = append(all, names[w.Token]+share(l, w.Weight, w.Writer))
	}
	return strings.Join(all, " ")
}

// step is one thing done and the picture after it. "+3": the next one (a, b, …) asks for 3; "-a": a gives back; "!c": c
// gives up waiting; "?1": a try for 1 is refused.
type step struct{ do, want string }

// play does the steps by two clients in turn, whose beats never come. What a release admits holds before the release
// returns; who holds is told, and who does not waits.
func play(t *testing.T, b backend, see func(*fairlock.Client) face, steps []step) {
	type actor struct {
		*waiting
		cancel context.CancelFunc
		gone   bool
	}
	var actors []*actor
	var journals []*journal
	var faces []face
	for range 2 {
		c, j := attentive(t, b.rdb(t), lasting)
		journals, faces = append(journals, j), append(faces, see(c))
	}
	l, names := faces[0], map[token.Token]string{}
	who := func(do string) *actor { return actors[do[1]-'a'] }
	for i, s := range steps {
		switch what := s.do[1:]; s.do[0] {
		case '+':
			ctx, cancel := context.WithCancel(within(t, 3*soon))
			name := string(rune('a' + len(actors)))
			actors = append(actors, &actor{waiting: begin(ctx, faces[len(actors)%2].ask(what)), cancel: cancel})
			until(t, l, func(st fairlock.State) bool {
				for _, h := range st.Holders {
					if names[h.Token] == "" {
						names[h.Token] = name
					}
				}
				for _, w := range st.Waiters {
					if names[w.Token] == "" {
						names[w.Token] = name
					}
				}
				return len(names) == len(actors)
			})
		case '-':
			unlock(t, who(s.do).got(t))
			who(s.do).gone = true
		case '!':
			who(s.do).cancel()
			_, err := who(s.do).result(t)
			require.ErrorIs(t, err, context.Canceled)
			who(s.do).gone = true
			until(t, l, func(st fairlock.State) bool { return picture(st, l, names) == s.want })
		case '?':
			_, err := faces[i%2].try(what)(within(t, soon))
			require.ErrorIs(t, err, fairlock.ErrBusy)
		}
		require.Equal(t, s.want, picture(state(t, l), l, names), "step %d: %s", i, s.do)
		held, waits, _ := strings.Cut(s.want, "|")
		for i, a := range actors {
			name := string(rune('a' + i))
			if !a.gone && strings.Contains(held, name) {
				a.got(t)
			}
			assert.True(t, !strings.Contains(waits, name) || a.pending(), "%s is in", name)
		}
	}
	var fence uint64
	for _, a := range actors {
		if a.err == nil {
			assert.Greater(t, a.got(t).Fence(), fence, "grants are in the order of arrival")
			fence = a.lease.Fence()
		}
		if !a.gone {
			unlock(t, a.lease)
		}
		a.cancel()
	}
	for _, j := range journals {
		for _, g := range j.granted() {
			assert.Equal(t, g.Ticket != 0, g.Handoff, "who waited is handed its share")
		}
	}
}

func TestPermitsGoToTheHeadAndOnToAllThatFit(t *testing.T) {
	for name, steps := range map[string][]step{
		"a small one does not pass a great one": {
			{"+2", "a2 |"}, {"+2", "a2 b2 |"}, {"+3", "a2 b2 | c3"}, {"+1", "a2 b2 | c3 d1"}, {"?1", "a2 b2 | c3 d1"},
			{"-a", "b2 c3 | d1"}, {"+1", "b2 c3 | d1 e1"}, {"-b", "c3 d1 e1 |"}, {"-c", "d1 e1 |"},
		},
		"one release admits exactly those that fit": {
			{"+5", "a5 |"}, {"+1", "a5 | b1"}, {"+2", "a5 | b1 c2"}, {"+2", "a5 | b1 c2 d2"}, {"+1", "a5 | b1 c2 d2 e1"},
			{"-a", "b1 c2 d2 | e1"}, {"-d", "b1 c2 e1 |"}, {"?2", "b1 c2 e1 |"}, {"+1", "b1 c2 e1 f1 |"},
		},
		"permits are saved up for the head": {
			{"+1", "a1 |"}, {"+1", "a1 b1 |"}, {"+1", "a1 b1 c1 |"}, {"+5", "a1 b1 c1 | d5"}, {"+1", "a1 b1 c1 | d5 e1"},
			{"-b", "a1 c1 | d5 e1"}, {"-a", "c1 | d5 e1"}, {"?1", "c1 | d5 e1"}, {"-c", "d5 | e1"}, {"-d", "e1 |"},
		},
		"a head that gives up lets in those behind it": {
			{"+3", "a3 |"}, {"+1", "a3 b1 |"}, {"+3", "a3 b1 | c3"}, {"+1", "a3 b1 | c3 d1"}, {"+4", "a3 b1 | c3 d1 e4"},
			{"+1", "a3 b1 | c3 d1 e4 f1"}, {"!c", "a3 b1 d1 | e4 f1"}, {"-b", "a3 d1 | e4 f1"}, {"!e", "a3 d1 f1 |"},
		},
		"who gives up behind the head lets nobody in": {
			{"+3", "a3 |"}, {"+3", "a3 | b3"}, {"+5", "a3 | b3 c5"}, {"+1", "a3 | b3 c5 d1"}, {"!c", "a3 | b3 d1"},
			{"-a", "b3 d1 |"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b backend) { play(t, b, five, steps) })
		})
	}
}

func TestTryingForAShareLeavesNoTrace(t *testing.T) {
	onKinds(t, func(t *testing.T, b backend, see func(*fairlock.Client) face) {
		rdb := b.rdb(t)
		c, _ := attentive(t, b.rdb(t), lasting)
		l := see(c)
		first, second := hold(t, l.try(l.one)), hold(t, l.try(l.one))
		before := contents(t, rdb)
		_, err := l.try(l.all)(context.Background())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		assert.Equal(t, before, contents(t, rdb))
		w := join(t, l, l.ask(l.all))
		before = contents(t, rdb)
		for _, what := range []string{l.one, l.all} { // one would fit
			_, err := l.try(what)(context.Background())
			require.ErrorIs(t, err, fairlock.ErrBusy)
		}
		assert.Equal(t, before, contents(t, rdb))
		unlock(t, first)
		unlock(t, second)
		unlock(t, w.got(t))
	})
}

// contents is what is in Redis, without times.
func contents(t testing.TB, rdb *redis.Client) map[string][]string {
	t.Helper()
	all, ctx := map[string][]string{}, context.Background()
	for _, key := range keys(t, rdb) {
		switch rdb.Type(ctx, key).Val() {
		case "zset":
			all[key] = rdb.ZRange(ctx, key, 0, -1).Val()
		case "hash":
			for field, value := range rdb.HGetAll(ctx, key).Val() {
				all[key] = append(all[key], field+": "+value)
			}
		default:
			all[key] = []string{rdb.Get(ctx, key).Val()}
		}
		slices.Sort(all[key])
	}
	return all
}

func TestEveryHolderHasALeaseOfItsOwn(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b backend, see func(*fairlock.Client) face) {
		var j journal
		cfg := fairlock.Config{TTL: 3 * time.Second, Trace: j.trace()}
		l, other := see(b.client(t, cfg)), see(b.client(t, cfg))
		var leases []*fairlock.Lease
		for i := range 4 {
			leases = append(leases, hold(t, []face{l, other}[i%2].ask(l.one)))
			assert.True(t, i == 0 || leases[i].Fence() > leases[i-1].Fence())
		}
		w := join(t, other, other.ask(l.all))
		require.Eventually(t, func() bool { return j.count("renewed ok=true") >= 4*4 }, soon, time.Millisecond)
		st := state(t, l)
		require.Len(t, st.Holders, 4)
		slices.SortFunc(st.Holders, func(a, b fairlock.Holder) int { return int(a.Fence) - int(b.Fence) })
		for i, lease := range leases {
			require.NoError(t, lease.Err())
			assert.Equal(t, lease.Token(), st.Holders[i].Token)
			assert.Equal(t, lease.Fence(), st.Holders[i].Fence)
		}

		// One goes on elsewhere, and is given back there: where it began this is known at the next renewal.
		resumed, err := other.Resume(context.Background(), leases[0].Token())
		require.NoError(t, err)
		assert.Equal(t, leases[0].Fence(), resumed.Fence())
		unlock(t, resumed)
		_, err = other.Resume(context.Background(), leases[0].Token())
		require.ErrorIs(t, err, fairlock.ErrLost)
		<-leases[0].Done()
		require.ErrorIs(t, leases[0].Err(), fairlock.ErrTaken)
		require.ErrorIs(t, leases[0].Unlock(context.Background()), fairlock.ErrLost)

		// Giving back twice gives back once.
		unlock(t, leases[1])
		unlock(t, leases[1])
		assert.Equal(t, 2, state(t, l).Used)
		for _, lease := range leases[2:] {
			require.NoError(t, lease.Renew(context.Background()))
		}
		assert.True(t, w.pending())
		unlock(t, leases[2])
		unlock(t, leases[3])
		next := w.got(t)
		assert.Greater(t, next.Fence(), leases[3].Fence())
		unlock(t, next)
		assert.Len(t, j.lost, 1)
	})
}

func TestForceReleaseTakesEverythingFromEverybody(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b backend, see func(*fairlock.Client) face) {
		l := see(b.client(t, fairlock.Config{TTL: 3 * time.Second}))
		operator := see(b.client(t, fairlock.Config{}))
		held, err := operator.ForceRelease(context.Background())
		require.NoError(t, err)
		assert.False(t, held)
		robbed := []*fairlock.Lease{hold(t, l.ask(l.one)), hold(t, l.ask(l.one)), hold(t, l.ask(l.one))}
		waiters := []*waiting{join(t, l, l.ask(l.all)), join(t, l, l.ask(l.one)), join(t, l, l.ask(l.one))}
		held, err = operator.ForceRelease(context.Background())
		require.NoError(t, err)
		assert.True(t, held)
		next := waiters[0].got(t)
		for _, lease := range robbed {
			assert.Greater(t, next.Fence(), lease.Fence())
			<-lease.Done()
			require.ErrorIs(t, lease.Err(), fairlock.ErrTaken)
			require.ErrorIs(t, lease.Unlock(context.Background()), fairlock.ErrLost)
		}
		assert.True(t, waiters[1].pending() && waiters[2].pending())
		require.NoError(t, next.Renew(context.Background()))
		unlock(t, next)
		for _, w := range waiters[1:] {
			require.NoError(t, w.got(t).Renew(context.Background()))
			unlock(t, w.lease)
		}
	})
}

// A force-release takes what was held when it was called, and nothing of what was granted since.
func TestForceReleaseTakesFromAllWhoHeldWhenItWasCalled(t *testing.T) {
	onKinds(t, func(t *testing.T, b backend, see func(*fairlock.Client) face) {
		rdb, h := b.rdb(t), &counter{}
		rdb.AddHook(h)
		l, operator := see(b.client(t, lasting)), see(newClient(t, rdb, lasting))
		_, err := operator.ForceRelease(context.Background()) // the scripts are there
		require.NoError(t, err)
		old := []*fairlock.Lease{hold(t, l.ask(l.one)), hold(t, l.ask(l.one))}
		var late *fairlock.Lease
		h.second = func() { late = hold(t, l.ask(l.one)) } // it has looked, and has not yet acted
		held, err := operator.ForceRelease(context.Background())
		require.NoError(t, err)
		assert.True(t, held)
		for _, lease := range old {
			require.ErrorIs(t, lease.Renew(context.Background()), fairlock.ErrTaken)
		}
		require.NoError(t, late.Renew(context.Background()))
		assert.Equal(t, 1, state(t, l).Used)
		unlock(t, late)
	})
}

func TestALostReplyChangesNoShare(t *testing.T) {
	onServers(t, func(t *testing.T, s *redistest.Server, see func(*fairlock.Client) face) {
		cfg := fairlock.Config{TTL: 2 * time.Second}
		c, link := linked(t, s, cfg)
		unlock(t, lock(t, c.Mutex("warm"))) // connections are there
		l, other := see(c), see(newClient(t, s.Client(), cfg))
		rdb := s.Client()
		unlock(t, hold(t, l.ask(l.one))) // and scripts
		fence := func() uint64 {
			f, err := rdb.Get(context.Background(), fenceKeyOf(l)).Uint64()
			require.NoError(t, err)
			return f
		}
		used := func(n int) {
			t.Helper()
			st := state(t, other)
			assert.Equal(t, n, st.Used)
			assert.Len(t, st.Holders, n)
		}
		lost := 0
		lose := func() { link.LoseReplies(1); lost++ }
		first := hold(t, other.ask(l.one))

		lose() // of a grant
		lease := hold(t, l.ask(l.one))
		require.Equal(t, lost, link.Lost())
		assert.Equal(t, lease.Fence(), fence(), "one fence step")
		used(2)

		lose() // of a renewal
		require.NoError(t, lease.Renew(context.Background()))
		require.Equal(t, lost, link.Lost())
		used(2)

		all := join(t, other, other.ask(l.all))
		lose() // of a queued
		one := join(t, other, l.ask(l.one))
		require.Eventually(t, func() bool { return link.Lost() == lost }, soon, time.Millisecond)
		assert.Equal(t, 2, state(t, other).Waiting)

		lose() // of a release
		unlock(t, lease)
		require.Equal(t, lost, link.Lost())
		used(1)
		unlock(t, first)
		last := all.got(t)
		assert.True(t, one.pending())
		unlock(t, last)
		lease = one.got(t)
		used(1)

		lose() // of a leave
		all = join(t, other, other.ask(l.all))
		ctx, cancel := context.WithCancel(context.Background())
		gone := begin(ctx, l.ask(l.all))
		standing(t, other, 2)
		cancel()
		_, err := gone.result(t)
		require.ErrorIs(t, err, context.Canceled)
		standing(t, other, 1)
		unlock(t, lease)
		unlock(t, all.got(t))
		used(0)
	})
}

// fenceKeyOf is where the last fence of the lock named x stands.
func fenceKeyOf(l face) string {
	return "fairlock:{x}:" + map[string]string{"semaphore": "sem", "rwmutex": "rw"}[l.kind] + ":fence"
}

func TestAQuestionThatHangsHoldsUpNobodyAndLeavesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, s *redistest.Server, see func(*fairlock.Client) face) {
		link := redistest.NewLink(t, s)
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), ReadTimeout: 2 * soon})
		t.Cleanup(func() { _ = rdb.Close() })
		l := see(newClient(t, rdb, fairlock.Config{TTL: 5 * time.Minute, WaiterTTL: 500 * time.Millisecond}))
		t.Cleanup(link.Mend)
		unlock(t, hold(t, l.ask(l.one)))
		link.Freeze() // the one connection that is idle
		before := rdb.PoolStats().Hits
		ctx, cancel := context.WithCancel(context.Background())
		hung := begin(ctx, l.ask(l.one))
		require.Eventually(t, func() bool { return rdb.PoolStats().Hits > before }, soon, time.Millisecond)
		other := hold(t, l.ask(l.one)) // by a new one
		cancel()
		_, err := hung.result(t)
		require.ErrorIs(t, err, context.Canceled)
		unlock(t, other)
		time.Sleep(1500 * time.Millisecond) // for longer than a token is refused that has left
		link.Mend()
		observer := see(newClient(t, s.Client(), fairlock.Config{}))
		until(t, observer, func(s fairlock.State) bool { return s.Fence > other.Fence() && s.Used == 0 })
	})
}

func TestDoRunsOnlyWithItsShare(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b backend, see func(*fairlock.Client) face) {
		l, ctx := see(b.client(t, fairlock.Config{TTL: 3 * time.Second})), context.Background()
		for _, what := range []string{l.one, l.all} {
			free := func() bool { return !state(t, l).Held }
			boom := errors.New("boom")
			require.ErrorIs(t, l.do(ctx, what, func(context.Context) error {
				assert.Equal(t, what, share(l, state(t, l).Holder.Weight, state(t, l).Holder.Writer))
				return boom
			}), boom)
			assert.True(t, free())
			assert.PanicsWithValue(t, "boom", func() { _ = l.do(ctx, what, func(context.Context) error { panic("boom") }) })
			assert.True(t, free(), "a panic must release it")
			err := l.do(ctx, what, func(ctx context.Context) error {
				_, err := l.ForceRelease(context.Background())
				require.NoError(t, err)
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), fairlock.ErrTaken)
				return nil
			})
			require.ErrorIs(t, err, fairlock.ErrLost)
			dead, cancel := context.WithCancel(ctx)
			cancel()
			err = l.do(dead, what, func(context.Context) error { t.Error("ran with nothing"); return nil })
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

func TestACrashedHoldersShareComesBackOnceAtItsLeasesEnd(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b backend, see func(*fairlock.Client) face) {
		crashing := b.client(t, fairlock.Config{TTL: 1500 * time.Millisecond})
		rdb, n := b.rdb(t), &counter{}
		rdb.AddHook(n)
		l := see(newClient(t, rdb, lasting)) // no beat finds anything
		gone, well := hold(t, see(crashing).ask(l.one)), hold(t, l.ask(l.one))
		require.NoError(t, crashing.Close())
		w := join(t, l, l.ask(l.all))
		behind := join(t, l, l.ask(l.one))
		unlock(t, well)
		before := n.scripts.Load()
		asked := time.Now()
		st := state(t, l)
		require.Equal(t, 1, st.Used, "it is not taken before its end")
		require.Equal(t, gone.Token(), st.Holder.Token)
		lease := w.got(t)
		assert.True(t, w.at.After(asked.Add(st.Holder.TTL-time.Millisecond)), "got in early")
		assert.Less(t, n.scripts.Load()-before, int64(10), "it asks when that can help")
		st = state(t, l)
		require.Len(t, st.Holders, 1)
		assert.Equal(t, lease.Token(), st.Holder.Token)
		assert.True(t, behind.pending())
		unlock(t, lease)
		unlock(t, behind.got(t))
		assert.Zero(t, state(t, l).Used)
	})
}

// counter counts the scripts that a go-redis client sends.
type counter struct {
	scripts atomic.Int64
	second  func() // called once, before the second script from when it was set
	first   bool   // that one was sent
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.count(cmd)
		}
		return next(ctx, cmds)
	}
}

func (c *counter) count(cmd redis.Cmder) {
	if cmd.Name() != "evalsha" {
		return
	}
	c.scripts.Add(1)
	if f := c.second; f != nil && c.first {
		c.second = nil
		f()
	} else if f != nil {
		c.first = true
	}
}

func TestOneHolderIsToldOfItsLossInTimeAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *redistest.Server, see func(*fairlock.Client) face) {
		cfg := fairlock.Config{TTL: 3 * time.Second} // as in TestTheHolderKnowsBeforeTheServersTTLEnds
		thrice(t, func(t *testing.T) bool {
			c, link := linked(t, s, cfg)
			l := see(newClient(t, s.Client(), cfg))
			well := hold(t, l.ask(l.one))
			cut := hold(t, see(c).ask(l.one))
			also := hold(t, l.ask(l.one))
			w := join(t, l, l.ask(l.all))
			require.NoError(t, cut.Renew(context.Background()))
			st := state(t, l)
			i := slices.IndexFunc(st.Holders, func(h fairlock.Holder) bool { return h.Token == cut.Token() })
			end := time.Now().Add(st.Holders[i].TTL)
			link.Cut()
			<-cut.Done()
			late := time.Since(end)
			t.Logf("told %v late", late)
			require.ErrorIs(t, cut.Err(), fairlock.ErrUnreachable)
			until(t, l, func(s fairlock.State) bool { return s.Used == 2 })
			assert.True(t, w.pending())
			for _, lease := range []*fairlock.Lease{well, also} {
				require.NoError(t, lease.Renew(context.Background()))
				unlock(t, lease)
			}
			unlock(t, w.got(t))
			return late < 0
		})
	})
}

func TestALostMessageToManyCostsOneBeat(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *redistest.Server, see func(*fairlock.Client) face) {
		const patience = 9 * time.Second
		link := redistest.NewLink(t, s)
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), ReadTimeout: time.Second})
		t.Cleanup(func() { _ = rdb.Close() })
		c, j := attentive(t, rdb, fairlock.Config{WaiterTTL: patience, TTL: patience})
		l, holder := see(c), see(newClient(t, s.Client(), lasting))
		first := hold(t, holder.ask(l.all))
		var waiters []*waiting
		for range 3 {
			waiters = append(waiters, join(t, holder, l.ask(l.one)))
		}
		last := join(t, holder, l.ask(l.all))
		link.DropNotifications()
		start := time.Now()
		unlock(t, first)
		for _, w := range waiters {
			require.NoError(t, w.got(t).Err())
			assert.Less(t, w.at.Sub(start), patience/3+2*time.Second)
		}
		assert.Equal(t, 3, j.count("notification lost"))
		assert.True(t, last.pending())
		for _, w := range waiters {
			unlock(t, w.lease)
		}
		unlock(t, last.got(t))
	})
}

func TestADeadHeadCostsOnePatienceAlsoIfNobodyReleases(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *redistest.Server, see func(*fairlock.Client) face) {
		const patience = 1500 * time.Millisecond
		c, link := linked(t, s, fairlock.Config{WaiterTTL: patience})
		// Those behind would find it by their beats after minutes.
		l, other := see(newClient(t, s.Client(), lasting)), see(newClient(t, s.Client(), lasting))
		first := hold(t, l.ask(l.one))
		dead := []*waiting{join(t, l, see(c).ask(l.all)), join(t, l, see(c).ask(l.all))}
		waiters := []*waiting{join(t, l, l.ask(l.one)), join(t, l, other.ask(l.one)), join(t, l, l.ask(l.one))}
		last := join(t, l, other.ask(l.all))
		link.Cut()
		asked := time.Now()
		st := state(t, l)
		require.Equal(t, 6, st.Waiting)
		for _, w := range waiters {
			w.got(t)
			for _, d := range st.Waiters[:2] {
				assert.True(t, w.at.After(asked.Add(d.TTL-time.Millisecond)), "passed a waiter that was patient")
			}
		}
		assert.True(t, last.pending())
		assert.True(t, dead[0].pending() && dead[1].pending(), "a waiter whose ctx has time got an error")
		require.NoError(t, c.Close())
		unlock(t, first)
		for _, w := range waiters {
			unlock(t, w.lease)
		}
		unlock(t, last.got(t))
	})
}

func TestAnotherNumberOfPermitsIsRefusedWhileAnybodyIsThere(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		rdb, ctx := b.rdb(t), context.Background()
		c, _ := attentive(t, b.rdb(t), lasting)
		s, other := c.Semaphore("x", 5), c.Semaphore("x", 7)
		refused := func(have int) {
			t.Helper()
			before := contents(t, rdb)
			_, acquired := other.Acquire(ctx, 6)
			_, tried := other.TryAcquire(ctx, 1)
			done := other.Do(ctx, 1, func(context.Context) error { t.Error("ran"); return nil })
			for _, err := range []error{acquired, tried, done} {
				var e *fairlock.CapacityError
				require.ErrorAs(t, err, &e)
				assert.Equal(t, fairlock.CapacityError{Want: 7, Have: have}, *e)
				require.ErrorContains(t, err, "5 permits, not with 7")
			}
			assert.Equal(t, before, contents(t, rdb))
		}
		l := five(c)
		first := hold(t, l.ask("3"))
		refused(5)
		w := join(t, l, l.ask("5"))
		refused(5)
		resumed, err := other.Resume(ctx, first.Token()) // that it is passed on with another number harms nobody
		require.NoError(t, err)
		assert.Equal(t, 5, state(t, other).Permits)
		unlock(t, resumed)
		unlock(t, w.got(t))

		lease, err := other.Acquire(ctx, 6)
		require.NoError(t, err)
		assert.Equal(t, 7, state(t, s).Permits)
		_, err = s.TryAcquire(ctx, 1)
		var e *fairlock.CapacityError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, fairlock.CapacityError{Want: 5, Have: 7}, *e)
		unlock(t, lease)

		// Who has crashed is not there any more once its lease has ended.
		crashed := b.client(t, fairlock.Config{TTL: 200 * time.Millisecond})
		_, err = crashed.Semaphore("x", 9).Acquire(ctx, 9)
		require.NoError(t, err)
		require.NoError(t, crashed.Close())
		require.Eventually(t, func() bool {
			lease, err = s.TryAcquire(ctx, 5)
			return err == nil
		}, soon, time.Millisecond)
		unlock(t, lease)
	})
}

func TestKindsOfTheSameNameShareNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c, rdb, ctx := b.client(t, fairlock.Config{}), b.rdb(t), within(t, 3*soon)
		for _, name := range []string{
			"a", "a:sem", "a:rw", "{a}", "}:sem", "a}:rw:fence", "%", "%7B", "\x00", "\xff\xfe", "\r\n", "sem", "rw",
			"'\"\\", "日本", strings.Repeat("n", fairlock.MaxName),
		} {
			s, m := c.Semaphore(name, 1), c.RWMutex(name)
			acquire := func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, 1) }
			try := func(ctx context.Context) (*fairlock.Lease, error) { return s.TryAcquire(ctx, 1) }
			var leases []*fairlock.Lease
			for _, a := range []ask{c.Mutex(name).TryLock, try, m.TryLock} {
				lease, err := a(ctx)
				require.NoError(t, err, "%q shares something", name)
				assert.Equal(t, name, lease.Name())
				leases = append(leases, lease)
			}
			w, r := begin(ctx, acquire), begin(ctx, m.RLock)
			standing(t, s, 1)
			standing(t, m, 1)
			standing(t, c.Mutex(name), 0)
			for _, lease := range leases {
				unlock(t, lease)
			}
			unlock(t, w.got(t))
			unlock(t, r.got(t))
		}
		left, err := rdb.Keys(ctx, "*:fence").Result()
		require.NoError(t, err)
		assert.Len(t, left, 3*16)
	})
}

func TestMaxWaitersCountsWaitersNotPermits(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c := b.client(t, fairlock.Config{MaxWaiters: 2})
		s, m := c.Semaphore("x", 5), c.RWMutex("x")
		for _, k := range []struct{ all, more, wide ask }{
			{
				func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, 5) },
				func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, 1) },
				func(ctx context.Context) (*fairlock.Lease, error) { return s.WithMaxWaiters(3).Acquire(ctx, 1) },
			},
			{m.Lock, m.RLock, m.WithMaxWaiters(3).RLock},
		} {
			var l shared = s
			if state(t, s).Fence != 0 {
				l = m
			}
			lease := hold(t, k.all)
			waiters := []*waiting{join(t, l, k.all), join(t, l, k.all)}
			_, err := k.more(within(t, soon))
			require.ErrorIs(t, err, fairlock.ErrQueueFull)
			waiters = append(waiters, join(t, l, k.wide))
			unlock(t, lease)
			for _, w := range waiters {
				unlock(t, w.got(t))
			}
		}
	})
}

func TestInspectTellsWhoHoldsAndWantsHowMuch(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		a, z := b.client(t, fairlock.Config{Name: "a"}), b.client(t, fairlock.Config{Name: "z"})
		s := state(t, a.Semaphore("x", 5))
		assert.Equal(t, fairlock.State{At: s.At}, s, "nobody is there")
		s = state(t, a.RWMutex("x"))
		assert.Equal(t, fairlock.State{At: s.At}, s, "nobody is there")
		for _, c := range []struct {
			see            func(*fairlock.Client) face
			hold, wait     []string
			used, permits  int
			weights, wants []int
		}{
			{five, []string{"2", "1"}, []string{"3", "1"}, 3, 5, []int{2, 1}, []int{3, 1}},
			{readWrite, []string{"r", "r"}, []string{"w", "r"}, 2, 0, []int{1, 1}, []int{1, 1}},
			{readWrite, []string{"w"}, []string{"r", "w"}, 1, 0, []int{1}, []int{1, 1}},
		} {
			faces := []face{c.see(a), c.see(z)}
			var leases []*fairlock.Lease
			var waiters []*waiting
			for i, what := range c.hold {
				leases = append(leases, hold(t, faces[i%2].ask(what)))
			}
			for i, what := range c.wait {
				waiters = append(waiters, join(t, faces[0], faces[i%2].ask(what)))
			}
			s := state(t, faces[1])
			assert.True(t, s.Held && !s.Quarantined)
			assert.Equal(t, []int{c.used, c.permits, len(c.wait)}, []int{s.Used, s.Permits, s.Waiting})
			require.Len(t, s.Holders, len(c.hold))
			require.Len(t, s.Waiters, len(c.wait))
			assert.Equal(t, s.Holders[0], s.Holder)
			assert.Equal(t, leases[len(leases)-1].Fence(), s.Fence)
			for _, h := range s.Holders {
				i := slices.IndexFunc(leases, func(l *fairlock.Lease) bool { return l.Token() == h.Token })
				require.GreaterOrEqual(t, i, 0)
				assert.Equal(t, fairlock.Holder{
					Client: []string{"a", "z"}[i%2], Token: leases[i].Token(), Fence: leases[i].Fence(), TTL: h.TTL,
					Weight: c.weights[i], Writer: c.hold[i] == "w",
				}, h)
				assert.InDelta(t, 5*time.Second, h.TTL, float64(5*time.Second))
			}
			for i, w := range s.Waiters {
				assert.Equal(t, fairlock.Waiter{
					Client: []string{"a", "z"}[i%2], Token: w.Token, Ticket: w.Ticket, Age: w.Age, TTL: w.TTL,
					Weight: c.wants[i], Writer: c.wait[i] == "w",
				}, w)
			}
			for _, lease := range leases {
				unlock(t, lease)
			}
			for _, w := range waiters {
				unlock(t, w.got(t))
			}
		}
	})
}

func TestTraceTellsTheKind(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b backend, see func(*fairlock.Client) face) {
		var mu sync.Mutex
		seen := map[string]bool{} // guarded by mu
		note := func(what string, e fairlock.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen[what+" "+e.Name+" "+e.Kind] = true
		}
		c := b.client(t, fairlock.Config{TTL: 3 * time.Second, Trace: &fairlock.Trace{
			Queued:   func(i fairlock.QueuedInfo) { note("queued", i.Event) },
			Granted:  func(i fairlock.GrantedInfo) { note("granted", i.Event) },
			Renewed:  func(i fairlock.RenewedInfo) { note("renewed", i.Event) },
			Lost:     func(i fairlock.LostInfo) { note("lost", i.Event) },
			Released: func(i fairlock.ReleasedInfo) { note("released", i.Event) },
			Left:     func(i fairlock.LeftInfo) { note("left", i.Event) },
		}})
		l := see(c)
		lease := hold(t, l.ask(l.one))
		ctx, cancel := context.WithCancel(context.Background())
		gone := begin(ctx, l.ask(l.all))
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen["queued x "+l.kind]
		}, soon, time.Millisecond)
		cancel()
		_, err := gone.result(t)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, lease.Renew(context.Background()))
		unlock(t, lease)
		lease = hold(t, l.ask(l.one))
		_, err = l.ForceRelease(context.Background())
		require.NoError(t, err)
		<-lease.Done()
		require.NoError(t, c.Close())
		want := map[string]bool{}
		for _, what := range []string{"queued", "granted", "renewed", "lost", "released", "left"} {
			want[what+" x "+l.kind] = true
		}
		assert.Equal(t, want, seen)
	})
}

func TestCloseReturnsManyHoldersAndWaiters(t *testing.T) {
	onServers(t, func(t *testing.T, s *redistest.Server, see func(*fairlock.Client) face) {
		rdb := s.Client()
		c, err := fairlock.New(rdb, lasting)
		require.NoError(t, err)
		l := see(c)
		leases := []*fairlock.Lease{hold(t, l.ask(l.one)), hold(t, l.ask(l.one)), hold(t, l.ask(l.one))}
		var waiters []*waiting
		for i := range 20 {
			waiters = append(waiters, join(t, l, l.ask([]string{l.all, l.one}[i%2])))
		}
		require.NoError(t, c.Close())
		for _, w := range waiters { // also those that fit once those before them have left
			_, err := w.result(t)
			require.ErrorIs(t, err, fairlock.ErrClosed)
		}
		for _, lease := range leases {
			require.ErrorIs(t, lease.Err(), fairlock.ErrClosed)
			require.Error(t, lease.Unlock(context.Background()))
		}
		_, err = l.ask(l.one)(context.Background())
		require.ErrorIs(t, err, fairlock.ErrClosed)
		_, err = l.Inspect(context.Background())
		require.ErrorIs(t, err, fairlock.ErrClosed)
		st := state(t, see(newClient(t, s.Client(), fairlock.Config{})))
		assert.Equal(t, []int{3, 0}, []int{st.Used, st.Waiting}, "what is held stays held, places do not stay")
	})
}

func TestLostDataRestsAndKeepsTheOrderOfAllWhoWait(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *redistest.Server, see func(*fairlock.Client) face) {
		// As in TestLostDataBreaksNeitherOrderNorExclusion.
		cfg := fairlock.Config{TTL: 3 * time.Second, WaiterTTL: 3 * time.Second}
		a, b := see(newClient(t, s.Client(), cfg)), see(newClient(t, s.Client(), cfg))
		leases := []*fairlock.Lease{hold(t, a.ask(a.one)), hold(t, b.ask(a.one))}
		waiters := []*waiting{join(t, a, b.ask(a.all))}
		for i := range 3 {
			waiters = append(waiters, join(t, a, []face{a, b}[i%2].ask(a.one)))
		}
		waiters = append(waiters, join(t, a, b.ask(a.all)))
		require.NoError(t, s.Client().FlushAll(context.Background()).Err())
		until(t, a, func(s fairlock.State) bool { return s.Quarantined })
		asked := time.Now()
		rests := asked.Add(state(t, a).Holder.TTL - time.Millisecond)
		var told time.Time
		for _, lease := range leases {
			<-lease.Done()
			require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
			told = time.Now()
		}
		first := waiters[0].got(t)
		assert.True(t, waiters[0].at.After(told), "in before the old holders were told")
		assert.True(t, waiters[0].at.After(rests), "it rests for one TTL")
		assert.Greater(t, first.Fence(), leases[1].Fence())
		fence := first.Fence()
		for _, w := range waiters[1:] {
			assert.True(t, w.pending())
		}
		unlock(t, first)
		for _, w := range waiters[1:4] {
			assert.Greater(t, w.got(t).Fence(), fence, "the order changed")
			fence = w.lease.Fence()
		}
		assert.True(t, waiters[4].pending())
		for _, w := range waiters[1:4] {
			unlock(t, w.lease)
		}
		unlock(t, waiters[4].got(t))
	})
}

func TestNothingIsLeftOfSharesButTheFence(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b backend, see func(*fairlock.Client) face) {
		const patience = 2 * time.Second
		c, rdb := b.client(t, fairlock.Config{WaiterTTL: patience, TTL: patience}), b.rdb(t)
		l := see(c)
		for end, do := range map[string]func(leases ...*fairlock.Lease){
			"unlocked": func(leases ...*fairlock.Lease) {
				unlock(t, leases[0])
				unlock(t, leases[1])
			},
			"robbed": func(...*fairlock.Lease) {
				_, err := l.ForceRelease(context.Background())
				require.NoError(t, err)
			},
			"crashed": func(leases ...*fairlock.Lease) {
				crashed := b.client(t, fairlock.Config{TTL: patience})
				hold(t, see(crashed).ask(l.one))
				require.NoError(t, crashed.Close())
				unlock(t, leases[0])
				unlock(t, leases[1])
			},
		} {
			leases := []*fairlock.Lease{hold(t, l.ask(l.one)), hold(t, l.ask(l.one))}
			ctx, cancel := context.WithCancel(context.Background())
			gone := begin(ctx, l.ask(l.all))
			standing(t, l, 1)
			next := join(t, l, l.ask(l.one))
			cancel()
			_, err := gone.result(t)
			require.ErrorIs(t, err, context.Canceled)
			unlock(t, next.got(t))
			do(leases...)
			if end != "crashed" {
				assert.NotContains(t, strings.Join(keys(t, rdb), " "), "holders", end)
			}
			require.Eventually(t, func() bool {
				return slices.Equal([]string{fenceKeyOf(l)}, keys(t, rdb))
			}, soon, time.Millisecond, end)
			assert.LessOrEqual(t, rdb.PTTL(context.Background(), fenceKeyOf(l)).Val(), 24*time.Hour)
		}
	})
}

// arrivals checks that nobody was passed: whoever was granted at once came later than all who were granted before, and
// so did whoever waited.
func arrivals(t testing.TB, grants []fairlock.GrantedInfo) {
	t.Helper()
	slices.SortFunc(grants, func(a, b fairlock.GrantedInfo) int { return int(a.Fence) - int(b.Fence) })
	var fence, arrival uint64
	for i, g := range grants {
		require.Greater(t, g.Fence, fence, "grant %d: a fence was given twice", i)
		fence = g.Fence
		came := g.Ticket
		switch {
		case came != 0:
		case g.Wait < 50*time.Millisecond:
			came = fence // both are times of the server, and a ticket is above the last fence
		default:
			continue // the question was made twice, perhaps, and the answer that told its ticket came too late
		}
		require.Greater(t, came, arrival, "grant %d is out of order", i)
		arrival = came
	}
}

// hammer has 64 goroutines over 8 clients hold, under one name, and returns what they were granted.
func hammer(t *testing.T, b backend, rounds int, run func(c *fairlock.Client, i int)) {
	t.Helper()
	var j journal
	var wg sync.WaitGroup
	for range 8 {
		// Patient enough for a machine that is busy with something else: who is silent loses its place.
		c := b.client(t, fairlock.Config{Trace: j.trace(), TTL: time.Minute, WaiterTTL: time.Minute})
		for g := range 8 {
			wg.Go(func() {
				for i := range rounds {
					run(c, g+i)
				}
			})
		}
	}
	wg.Wait()
	assert.Empty(t, j.lost)
	require.Len(t, j.grants, 64*rounds)
	arrivals(t, j.grants)
}

func TestNoMorePermitsAreHeldThanThereAreAndNobodyIsPassed(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var used, most atomic.Int64
		hammer(t, b, 5, func(c *fairlock.Client, i int) {
			n := i%5 + 1
			lease, err := c.Semaphore("x", 5).Acquire(within(t, 3*soon), n)
			if err != nil {
				t.Error(err)
				return
			}
			now := used.Add(int64(n))
			assert.LessOrEqual(t, now, int64(5), "more than there are")
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			time.Sleep(time.Millisecond) // is what it does in there
			used.Add(-int64(n))
			assert.NoError(t, lease.Unlock(context.Background()))
		})
		assert.Equal(t, int64(5), most.Load())
		assert.Zero(t, state(t, five(b.client(t, fairlock.Config{}))).Used)
	})
}
