package fairlock_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// The suite of this file shows what the library promises through its API, on two servers: the one in memory, in
// simulated time, and a redis-server. What needs faults or exact instants is shown in package fairlock.

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // the tests on a redis-server wait most of the time
	redistest.Silence()                 // of servers that tests kill
	os.Exit(redistest.Main(m))
}

// hang is how long a test waits for what does not happen, before it fails.
const hang = 30 * time.Second

// server is a Redis that a test of the suite runs on.
type server struct {
	t         *testing.T
	namespace string
	rdb       func() *redis.Client // makes a client of its own
	root      *redis.Client        // may do what the others may not; nil: they may do everything
}

// each runs a test on the server in memory, in a bubble, and on the redis-server that all tests share, in a namespace
// of its own.
func each(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			memory := fairlocktest.NewServer(t)
			test(t, &server{t: t, namespace: "fairlock", rdb: func() *redis.Client { return memory.Link().Redis() }})
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, &server{t: t, namespace: fmt.Sprint("test-", namespaces.Add(1)), rdb: redistest.Shared(t).Client})
	})
}

var namespaces atomic.Int64

// client returns a client with connections of its own.
func (s *server) client(cfg fairlock.Config) *fairlock.Client {
	s.t.Helper()
	if cfg.Namespace == "" {
		cfg.Namespace = s.namespace
	}
	return newClient(s.t, s.rdb(), cfg)
}

func newClient(tb testing.TB, rdb fairlock.Redis, cfg fairlock.Config) *fairlock.Client {
	tb.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := fairlock.New(rdb, cfg)
	require.NoError(tb, err)
	servers.Store(reflect.ValueOf(c).Pointer(), admin.New(rdb.(redis.UniversalClient), cfg.Namespace))
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// until waits until a condition holds.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !condition(); time.Sleep(time.Millisecond) { // no event tells of it
		require.True(t, time.Now().Before(end), "it does not happen")
	}
}

// acquire is one way to acquire a lock.
type acquire = func(context.Context) (*fairlock.Lease, error)

// lockUnderTest is a lock named x, of any kind. A share is a number of permits, or "r" or "w".
type lockUnderTest struct {
	kind         string
	one, all     string // a share that leaves room for others, unless it is a mutex; one that does not
	acquire, try func(share string) acquire
	anyLock
}

// anyLock is a Mutex, a Semaphore, a KeyedSemaphore or an RWMutex.
type anyLock interface {
	Resume(ctx context.Context, h fairlock.Handle) (*fairlock.Lease, error)
}

// servers has where the locks of each client are.
var servers sync.Map // the address of the Client → *admin.Client

// find returns how an operator finds a lock, which has no method that says it.
func find(l anyLock) (*admin.Client, fairlock.ID) {
	if test, ok := l.(lockUnderTest); ok {
		l = test.anyLock
	}
	lock := reflect.ValueOf(l).FieldByName("lock").Elem()
	server, _ := servers.Load(lock.FieldByName("client").Pointer())
	kind, name := lock.FieldByName("kind").String(), lock.FieldByName("name").String()
	return server.(*admin.Client), fairlock.ID{Kind: fairlock.Kind(kind), Name: name}
}

// release takes a lock by force.
func release(t *testing.T, l anyLock) (held bool) {
	t.Helper()
	server, id := find(l)
	held, err := server.ForceRelease(t.Context(), id)
	require.NoError(t, err)
	return held
}

// locks make the locks under test, by their kinds: a mutex, a semaphore of five permits, a read-write lock, and a key
// of a keyed semaphore of five.
var locks = map[string]func(*fairlock.Client) lockUnderTest{
	"mutex": func(c *fairlock.Client) lockUnderTest {
		m := c.Mutex("x")
		return lockUnderTest{
			kind: "mutex", one: "1", all: "1", anyLock: m,
			acquire: func(string) acquire { return m.Lock },
			try:     func(string) acquire { return m.TryLock },
		}
	},
	"semaphore": semaphore,
	"rwmutex": func(c *fairlock.Client) lockUnderTest {
		m := c.RWMutex("x")
		return lockUnderTest{
			kind: "rwmutex", one: "r", all: "w", anyLock: m,
			acquire: func(share string) acquire { return map[string]acquire{"r": m.RLock, "w": m.Lock}[share] },
			try:     func(share string) acquire { return map[string]acquire{"r": m.TryRLock, "w": m.TryLock}[share] },
		}
	},
	"keyed": func(c *fairlock.Client) lockUnderTest {
		s := c.KeyedSemaphore("x", 5)
		return ofPermits("keyed", s, s.Key("A"))
	},
}

func semaphore(c *fairlock.Client) lockUnderTest {
	s := c.Semaphore("x", 5)
	return ofPermits("semaphore", s, s)
}

func ofPermits(kind string, l anyLock, s fairlock.Semaphore) lockUnderTest {
	count := func(share string) int {
		n, err := strconv.Atoi(share)
		if err != nil {
			panic(err)
		}
		return n
	}
	return lockUnderTest{
		kind: kind, one: "1", all: "5", anyLock: l,
		acquire: func(share string) acquire { return permits(s, count(share)) },
		try: func(share string) acquire {
			return func(ctx context.Context) (*fairlock.Lease, error) { return s.TryAcquire(ctx, count(share)) }
		},
	}
}

func permits(s fairlock.Semaphore, n int) acquire {
	return func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, n) }
}

// share shows how much of a lock a holder has, or a waiter wants.
func (l lockUnderTest) share(weight int, writer bool) string {
	switch {
	case writer:
		return "w"
	case l.kind == "rwmutex":
		return "r"
	default:
		return strconv.Itoa(weight)
	}
}

// eachKind is each, for every kind of lock.
func eachKind(t *testing.T, test func(t *testing.T, s *server, of func(*fairlock.Client) lockUnderTest)) {
	t.Helper()
	t.Parallel()
	for kind, of := range locks {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, s *server) { test(t, s, of) })
		})
	}
}

func hold(t testing.TB, a acquire) *fairlock.Lease {
	t.Helper()
	return begin(t, a).granted(t)
}

// refused calls an acquire that is to fail, and returns its error.
func refused(t testing.TB, a acquire) error {
	t.Helper()
	q := begin(t, a)
	<-q.done
	return q.err
}

func unlock(t testing.TB, l *fairlock.Lease) {
	t.Helper()
	require.NoError(t, l.Unlock(t.Context()))
}

// acquisition is an acquire under way.
type acquisition struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has returned; it guards the rest
	lease  *fairlock.Lease
	err    error
}

func begin(t testing.TB, a acquire) *acquisition {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	q := &acquisition{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(q.done)
		q.lease, q.err = a(ctx)
	}()
	return q
}

// join begins an acquisition that has to wait, and returns when it is queued.
func join(t *testing.T, l anyLock, a acquire) *acquisition {
	t.Helper()
	n := state(t, l).Waiting
	q := begin(t, a)
	queued(t, l, n+1)
	return q
}

func (q *acquisition) granted(t testing.TB) *fairlock.Lease {
	t.Helper()
	<-q.done
	require.NoError(t, q.err)
	return q.lease
}

func (q *acquisition) pending() bool {
	select {
	case <-q.done:
		return false
	default:
		return true
	}
}

func state(t testing.TB, l anyLock) admin.State {
	t.Helper()
	server, id := find(l)
	s, err := server.Inspect(t.Context(), id, bounds.MaxInspected, bounds.MaxInspected)
	require.NoError(t, err)
	return s
}

// queued waits until so many wait.
func queued(t *testing.T, l anyLock, n int) {
	t.Helper()
	until(t, func() bool { return state(t, l).Waiting == n })
}

// journal records what Trace tells of the locks of a test.
type journal struct {
	mu     sync.Mutex
	queued []fairlock.QueuedInfo  // guarded by mu
	grants []fairlock.GrantedInfo // guarded by mu
	lost   int                    // guarded by mu: leases
}

func (j *journal) trace() *fairlock.Trace {
	note := func(e fairlock.Event, f func()) {
		if strings.HasPrefix(e.Name, warmUp) {
			return
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		f()
	}
	return &fairlock.Trace{
		Queued:  func(i fairlock.QueuedInfo) { note(i.Event, func() { j.queued = append(j.queued, i) }) },
		Granted: func(i fairlock.GrantedInfo) { note(i.Event, func() { j.grants = append(j.grants, i) }) },
		Ended: func(i fairlock.EndedInfo) {
			if i.Err != nil {
				note(i.Event, func() { j.lost++ })
			}
		},
	}
}

// waited returns how many acquisitions were queued so far.
func (j *journal) waited() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queued)
}

// assertHandoffs fails the test if a waiter needed a further request for its grant.
func (j *journal) assertHandoffs(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, g := range j.grants {
		assert.Equal(t, g.Ticket != 0, g.Handoff, "%s: a waiter needed a further request", g.Name)
	}
}

// lasting is for tests of what a request brings about: no lease ends meanwhile, and no waiter expires.
var lasting = fairlock.Config{TTL: 5 * time.Minute, WaiterTTL: 5 * time.Minute}

// timeless is as lasting, but the client sends no heartbeat either: its clock stands still.
func timeless(t *testing.T) fairlock.Config {
	cfg := lasting
	cfg.Clock = fairlocktest.NewClock(t)
	return cfg
}

// warmUp is what the names of locks begin with that are used before a test.
const warmUp = "warm up "

// listening returns a client whose subscription is up, and what it traces from then on.
func listening(t *testing.T, rdb fairlock.Redis, cfg fairlock.Config) (*fairlock.Client, *journal) {
	t.Helper()
	var j journal
	var up atomic.Bool
	cfg.Trace = j.trace()
	cfg.Trace.Subscription = func(err error) { up.Store(err == nil) }
	c := newClient(t, rdb, cfg)
	m := c.Mutex(warmUp + c.Name())
	first := hold(t, m.Lock)
	second := join(t, m, m.Lock)
	until(t, up.Load)
	unlock(t, first)
	unlock(t, second.granted(t))
	return c, &j
}

// Many clients contend. No more is held than there is, the fences rise, and the lock is granted in the order of
// tickets.
//
//fairlock:promise Exclusion: one holder at a time: many clients, many waiters
//fairlock:promise Permits: never more are held than the largest number that requests bring; the first waiter is granted as many as it wants when no more than its own number are held with them
//fairlock:promise Order
func TestLock_ExclusionAndOrder(t *testing.T) {
	capacity := map[string]int64{"mutex": 1, "semaphore": 5, "rwmutex": 1 << 30, "keyed": 5}
	weights := map[string]int64{"r": 1, "w": 1 << 30, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5}
	shares := map[string][]string{"mutex": {"1"}, "semaphore": {"1", "2", "3", "4", "5"}, "rwmutex": {"r", "r", "r", "w"},
		"keyed": {"1", "2", "3", "4", "5"}}
	eachKind(t, func(t *testing.T, s *server, of func(*fairlock.Client) lockUnderTest) {
		const clients, perClient, rounds = 4, 6, 3
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		defer cancel()
		var j journal
		var used, most atomic.Int64
		var wg sync.WaitGroup
		for i := range clients {
			l := of(s.client(fairlock.Config{Trace: j.trace(), TTL: lasting.TTL, WaiterTTL: lasting.WaiterTTL}))
			for g := range perClient {
				wg.Go(func() {
					for round := range rounds {
						share := shares[l.kind][(i*perClient+g+round)%len(shares[l.kind])]
						lease, err := l.acquire(share)(ctx)
						if !assert.NoError(t, err) {
							return
						}
						now := used.Add(weights[share])
						assert.LessOrEqual(t, now, capacity[l.kind], "more is held than there is")
						for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
						}
						time.Sleep(time.Millisecond) // the work
						used.Add(-weights[share])
						assert.NoError(t, lease.Unlock(t.Context()))
					}
				})
			}
		}
		wg.Wait()
		l := of(s.client(fairlock.Config{}))
		assert.Equal(t, capacity[l.kind], most.Load())
		assert.Empty(t, state(t, l).Holders)
		require.Len(t, j.grants, clients*perClient*rounds)
		assert.Zero(t, j.lost)
		queued := map[uint64]bool{}
		for _, q := range j.queued {
			queued[q.Ticket] = true
		}
		slices.SortFunc(j.grants, func(a, b fairlock.GrantedInfo) int { return int(a.Fence) - int(b.Fence) })
		var fence, ticket uint64
		for i, g := range j.grants {
			require.Greater(t, g.Fence, fence, "a fence was given twice")
			fence = g.Fence
			if g.Ticket != 0 { // it was queued
				require.Greater(t, g.Ticket, ticket, "grant %d is out of order", i)
				ticket = g.Ticket
				require.True(t, queued[ticket], "it was queued with another ticket")
			}
		}
	})
}

// picture shows who holds, in the order of grants, and who waits: "a2 b1 | c3".
func (l lockUnderTest) picture(s admin.State, names map[token.Token]string) string {
	var all []string
	slices.SortFunc(s.Holders, func(a, b admin.Holder) int { return int(a.Fence) - int(b.Fence) })
	for _, h := range s.Holders {
		all = append(all, names[h.Token]+l.share(h.Weight, h.Writer))
	}
	all = append(all, "|")
	for _, w := range s.Waiters {
		all = append(all, names[w.Token]+l.share(w.Weight, w.Writer))
	}
	return strings.Join(all, " ")
}

// scenario is one of testdata/order.txt.
type scenario struct {
	kind, name string
	steps      []step
}

// step is a step of a scenario, and the picture after it.
type step struct{ do, want string }

func scenarios(t *testing.T) (all []scenario) {
	t.Helper()
	text, err := os.ReadFile("testdata/order.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if kind, name, ok := strings.Cut(line, ": "); ok && locks[kind] != nil {
			all = append(all, scenario{kind: kind, name: name})
		} else if do, want, ok := strings.Cut(line, "  "); ok {
			last := &all[len(all)-1]
			last.steps = append(last.steps, step{strings.TrimSpace(do), want})
		}
	}
	return all
}

// play plays a scenario. The clients send no heartbeat meanwhile. What a release admits is admitted when it returns,
// and every waiter is notified of its grant, and needs no further request.
func (c scenario) play(t *testing.T, s *server) {
	t.Helper()
	var all []*acquisition
	var journals []*journal
	var seen []lockUnderTest
	for range 2 {
		cfg := timeless(t)
		cfg.Namespace = s.namespace
		client, j := listening(t, s.rdb(), cfg)
		journals, seen = append(journals, j), append(seen, locks[c.kind](client))
	}
	l, names, ended := seen[0], map[token.Token]string{}, map[*acquisition]bool{}
	for i, step := range c.steps {
		who := func() *acquisition { return all[step.do[1]-'a'] }
		switch what := step.do[1:]; step.do[0] {
		case '+':
			name := string(rune('a' + len(all)))
			j := journals[len(all)%2]
			before := j.waited()
			q := begin(t, seen[len(all)%2].acquire(what))
			all = append(all, q)
			until(t, func() bool {
				st := state(t, l)
				for _, h := range st.Holders {
					names[h.Token] = cmp.Or(names[h.Token], name)
				}
				for _, w := range st.Waiters {
					names[w.Token] = cmp.Or(names[w.Token], name)
				}
				heard := !q.pending() || j.waited() > before // the reply to itself
				return heard && len(names) == len(all)
			})
		case '-':
			unlock(t, who().granted(t))
			ended[who()] = true
		case '!':
			who().cancel()
			<-who().done
			require.ErrorIs(t, who().err, context.Canceled)
			require.Regexp(t, `^fairlock: r?(lock|acquire) "x": context canceled$`, who().err.Error())
			ended[who()] = true
			until(t, func() bool { return l.picture(state(t, l), names) == step.want })
		case '?':
			require.ErrorIs(t, refused(t, seen[i%2].try(what)), fairlock.ErrBusy)
		}
		require.Equal(t, step.want, l.picture(state(t, l), names), "step %d: %s", i, step.do)
		held, waits, _ := strings.Cut(step.want, "|")
		for i, q := range all {
			name := string(rune('a' + i))
			if !ended[q] && strings.Contains(held, name) {
				q.granted(t)
			}
			assert.True(t, !strings.Contains(waits, name) || q.pending(), "%s has the lock", name)
		}
	}
	var fence uint64
	for _, q := range all {
		if !ended[q] {
			unlock(t, q.granted(t))
		}
		if q.err == nil {
			assert.Greater(t, q.lease.Fence(), fence, "grants are not in the order of arrival")
			fence = q.lease.Fence()
		}
	}
	for _, j := range journals {
		j.assertHandoffs(t)
	}
}

// Every scenario, on both servers.
//
//fairlock:promise Order
//fairlock:promise Only the head
//fairlock:promise No overtaking by the holder: a holder that unlocks and locks again goes behind every waiter
//fairlock:promise No overtaking by TryLock: ErrBusy while anybody holds or waits; nothing is left in Redis
//fairlock:fault ctx ends: the waiter is out of the queue, and no grant is swallowed
//fairlock:promise A handoff is prompt
//fairlock:promise Order among permits: a waiter for three is not passed by one for a single permit that would fit; a release admits the waiters that fit their own numbers, up to the first one that does not, in one call, and notifies them at once
//fairlock:promise Readers and writers: readers at the head get in together and send nothing more; a writer is alone; no request passes an earlier one, and none starves
func TestLock_FIFO(t *testing.T) {
	t.Parallel()
	for _, c := range scenarios(t) {
		t.Run(c.name, func(t *testing.T) { each(t, c.play) })
	}
}

// One script looks at some of many holders: ForceRelease goes on until all have lost the lock. (In memory, one script
// looks at all.)
//
//fairlock:promise Force-release
func TestForceRelease_ManyHolders(t *testing.T) {
	t.Parallel()
	s := &server{t: t, namespace: fmt.Sprint("test-", namespaces.Add(1)), rdb: redistest.Shared(t).Client}
	x := s.client(fairlock.Config{TTL: time.Minute}).RWMutex("x")
	for range 1000 { // more than Redis keeps in one list, which one script would see
		hold(t, x.RLock)
	}
	release(t, x)
	unlock(t, hold(t, x.TryLock))
}
