package fairlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is how long a test waits for what must happen at once, on a machine that is busy with something else.
const soon = 20 * time.Second

// prompt is how late may be what must be prompt.
const prompt = 100 * time.Millisecond

// promptly holds an attempt, which returns by how much something was late, to prompt.
func promptly(t *testing.T, attempt func(t *testing.T) time.Duration) {
	t.Helper()
	thrice(t, func(t *testing.T) bool {
		late := attempt(t)
		t.Logf("late by %v", late)
		return late <= prompt
	})
}

// thrice gives an attempt that a busy machine can spoil, and which returns whether it was good, two more chances. What
// it asserts besides, each attempt must keep.
func thrice(t *testing.T, attempt func(t *testing.T) (good bool)) {
	t.Helper()
	for i := range 3 {
		good := false
		if !t.Run(strconv.Itoa(i), func(t *testing.T) { good = attempt(t) }) || good {
			return
		}
	}
	t.Error("no attempt was good")
}

// backend is a server that a test of the suite runs on.
type backend struct {
	name    string
	options func() *redis.Options
}

// onBoth runs a test on the in-memory server and on a real redis-server, side by side.
func onBoth(t *testing.T, test func(t *testing.T, b backend)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		m := miniredis.RunT(t)
		m.ClockTTL(true)
		test(t, backend{"memory", func() *redis.Options { return &redis.Options{Addr: m.Addr()} }})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		test(t, backend{"redis", s.Options})
	})
}

// rdb returns a go-redis client of its own.
func (b backend) rdb(t testing.TB) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(b.options())
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// client returns a lock client with connections of its own.
func (b backend) client(t testing.TB, cfg fairlock.Config) *fairlock.Client {
	t.Helper()
	return newClient(t, b.rdb(t), cfg)
}

func newClient(tb testing.TB, rdb fairlock.Redis, cfg fairlock.Config) *fairlock.Client {
	tb.Helper()
	c, err := fairlock.New(rdb, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// linked returns a lock client behind a link.
func linked(t testing.TB, s *redistest.Server, cfg fairlock.Config) (*fairlock.Client, *redistest.Link) {
	t.Helper()
	return linkedFor(t, s, time.Second, cfg)
}

// linkedFor returns one whose go-redis waits for so long for an answer.
func linkedFor(
	t testing.TB, s *redistest.Server, timeout time.Duration, cfg fairlock.Config,
) (*fairlock.Client, *redistest.Link) {
	t.Helper()
	link := redistest.NewLink(t, s)
	rdb := redis.NewClient(&redis.Options{
		Network: "unix", Addr: link.Addr(), ReadTimeout: timeout, DialTimeout: timeout,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return newClient(t, rdb, cfg), link
}

// within returns a context that ends the test's patience.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func lock(t testing.TB, m fairlock.Mutex) *fairlock.Lease {
	t.Helper()
	lease, err := m.Lock(within(t, soon))
	require.NoError(t, err)
	return lease
}

func unlock(t testing.TB, l *fairlock.Lease) {
	t.Helper()
	require.NoError(t, l.Unlock(context.Background()))
}

// waiting is a Lock under way.
type waiting struct {
	done  chan struct{}
	lease *fairlock.Lease
	err   error
	at    time.Time // when it returned
}

func enqueue(ctx context.Context, m fairlock.Mutex) *waiting {
	w := &waiting{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = m.Lock(ctx)
		w.at = time.Now()
	}()
	return w
}

func (w *waiting) result(t testing.TB) (*fairlock.Lease, error) {
	t.Helper()
	select {
	case <-w.done:
		return w.lease, w.err
	case <-time.After(soon):
		t.Fatal("Lock did not return")
		return nil, nil
	}
}

func (w *waiting) got(t testing.TB) *fairlock.Lease {
	t.Helper()
	lease, err := w.result(t)
	require.NoError(t, err)
	return lease
}

func (w *waiting) pending() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// queued waits until so many wait.
func queued(t testing.TB, m fairlock.Mutex, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s, err := m.Inspect(context.Background())
		return err == nil && s.Waiting == n
	}, soon, time.Millisecond, "%d waiters", n)
}

// line enqueues one waiter after the other, so that their order is known.
func line(t testing.TB, n int, mutex func(i int) fairlock.Mutex) []*waiting {
	t.Helper()
	all := make([]*waiting, n)
	first, err := mutex(0).Inspect(context.Background())
	require.NoError(t, err)
	for i := range n {
		all[i] = enqueue(within(t, 3*soon), mutex(i))
		queued(t, mutex(i), first.Waiting+i+1)
	}
	return all
}

// keys lists what is in Redis, sorted.
func keys(t testing.TB, rdb *redis.Client) []string {
	t.Helper()
	all, err := rdb.Keys(context.Background(), "*").Result()
	require.NoError(t, err)
	slices.Sort(all)
	return all
}

// journal collects what Trace tells.
type journal struct {
	mu     sync.Mutex
	events []string                    // guarded by mu
	grants []fairlock.GrantedInfo      // guarded by mu
	queued []fairlock.QueuedInfo       // guarded by mu
	lost   []fairlock.LostInfo         // guarded by mu
	ups    []fairlock.SubscriptionInfo // guarded by mu
}

func (j *journal) note(format string, args ...any) {
	j.events = append(j.events, fmt.Sprintf(format, args...))
}

func (j *journal) trace() *fairlock.Trace {
	locked := func(f func()) {
		j.mu.Lock()
		defer j.mu.Unlock()
		f()
	}
	return &fairlock.Trace{
		Queued: func(i fairlock.QueuedInfo) {
			locked(func() { j.queued = append(j.queued, i); j.note("queued %d", i.Position) })
		},
		Granted: func(i fairlock.GrantedInfo) {
			locked(func() { j.grants = append(j.grants, i); j.note("granted handoff=%v", i.Handoff) })
		},
		Renewed:          func(i fairlock.RenewedInfo) { locked(func() { j.note("renewed ok=%v", i.Err == nil) }) },
		Lost:             func(i fairlock.LostInfo) { locked(func() { j.lost = append(j.lost, i); j.note("lost") }) },
		Released:         func(fairlock.ReleasedInfo) { locked(func() { j.note("released") }) },
		Left:             func(fairlock.LeftInfo) { locked(func() { j.note("left") }) },
		NotificationLost: func(fairlock.Event) { locked(func() { j.note("notification lost") }) },
		Subscription: func(i fairlock.SubscriptionInfo) {
			locked(func() { j.ups = append(j.ups, i); j.note("subscription ok=%v", i.Err == nil) })
		},
	}
}

func (j *journal) count(event string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, e := range j.events {
		if e == event {
			n++
		}
	}
	return n
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}
