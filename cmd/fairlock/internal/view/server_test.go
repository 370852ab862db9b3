package view

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// client is one of the library's, closed when the test ends.
func client(t *testing.T, rdb redis.UniversalClient, cfg fairlock.Config) *fairlock.Client {
	t.Helper()
	c, err := fairlock.New(rdb, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// got is a lease that was granted.
func got(t *testing.T, lease *fairlock.Lease, err error) *fairlock.Lease {
	t.Helper()
	require.NoError(t, err)
	return lease
}

// enqueue has somebody wait, and waits until that is seen.
func enqueue(t *testing.T, s Server, id ID, wait func(context.Context) error) {
	t.Helper()
	before := one(t, s, id).Waiting
	ctx, cancel := context.WithCancel(context.Background())
	var task sync.WaitGroup
	task.Go(func() { _ = wait(ctx) })
	t.Cleanup(task.Wait)
	t.Cleanup(cancel)
	require.Eventually(t, func() bool { return one(t, s, id).Waiting == before+1 }, time.Minute, time.Millisecond)
}

func one(t *testing.T, s Server, id ID) Lock {
	t.Helper()
	locks, err := s.Look(t.Context(), Most, id)
	require.NoError(t, err)
	require.Len(t, locks, 1)
	return locks[0]
}

func TestLocksOfAllKindsAreRead(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := Server{rdb, "ns"}
	a := client(t, rdb, fairlock.Config{Namespace: "ns", Name: "a"})
	b := client(t, rdb, fairlock.Config{Namespace: "ns", Name: "b"})
	ctx := t.Context()
	ids := IDs([]string{"x", "free"}, Kinds...)

	began := time.Now()
	lease, err := a.Mutex("x").Lock(ctx)
	got(t, lease, err)
	share, err := a.Semaphore("x", 5).Acquire(ctx, 2)
	got(t, share, err)
	reader, err := a.RWMutex("x").RLock(ctx)
	got(t, reader, err)
	lock := func(ctx context.Context) error {
		_, err := b.Mutex("x").Lock(ctx)
		return err
	}
	enqueue(t, s, ID{Mutex, "x"}, lock)
	enqueue(t, s, ID{Mutex, "x"}, lock)
	enqueue(t, s, ID{Semaphore, "x"}, func(ctx context.Context) error {
		_, err := b.Semaphore("x", 5).Acquire(ctx, 4)
		return err
	})
	enqueue(t, s, ID{RW, "x"}, func(ctx context.Context) error {
		_, err := b.RWMutex("x").Lock(ctx)
		return err
	})

	require.NoError(t, rdb.ScriptFlush(ctx).Err(), "the server does not know the scripts")
	locks, err := s.Look(ctx, Most, ids...)
	require.NoError(t, err)
	require.Len(t, locks, len(ids))
	for i, l := range locks {
		require.Equal(t, ids[i], l.ID)
		require.WithinDuration(t, time.Now(), l.At, time.Minute)
		require.Equal(t, l.Name == "x", l.InUse())
		if l.Name != "x" {
			continue
		}
		h := l.Holders[0]
		require.Len(t, l.Holders, 1)
		require.Equal(t, "a", h.Token.Client())
		require.WithinRange(t, h.Since, began.Truncate(time.Microsecond), time.Now())
		require.Greater(t, h.Left, time.Second)
		require.LessOrEqual(t, h.Left, fairlock.DefaultTTL)
		w := l.Waiters[0]
		require.Equal(t, "b", w.Token.Client())
		require.True(t, w.Since.After(h.Since))
		require.True(t, w.Alive())
		require.LessOrEqual(t, w.Patience, fairlock.DefaultWaiterTTL)
	}
	m, sem, rw := locks[0], locks[1], locks[2]
	require.Equal(t, []int{2, 1, 1}, []int{m.Waiting, sem.Waiting, rw.Waiting})
	require.Equal(t, lease.Fence(), m.Holders[0].Fence)
	require.Equal(t, []int{2, 5, 2, 4}, []int{sem.Used, sem.Permits, sem.Holders[0].Weight, sem.Waiters[0].Weight})
	require.True(t, rw.Waiters[0].Writer)
	require.False(t, rw.Holders[0].Writer)
	require.True(t, m.Waiters[0].Since.Before(m.Waiters[1].Since))

	some, err := s.Look(ctx, 1, ID{Mutex, "x"})
	require.NoError(t, err)
	require.Len(t, some[0].Waiters, 1, "the limit")
	require.Equal(t, 2, some[0].Waiting)
	others, err := Server{rdb, "fairlock"}.Look(ctx, Most, ids...)
	require.NoError(t, err)
	require.Empty(t, InUse(others), "another namespace")
	none, err := s.Look(ctx, Most)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestASilentWaiterIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	link := redistest.NewLink(t, server)
	rdb := server.Client()
	s := Server{rdb, "fairlock"}
	a := client(t, rdb, fairlock.Config{})
	lease, err := a.Mutex("x").Lock(t.Context())
	got(t, lease, err)
	far := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr()})
	t.Cleanup(func() { _ = far.Close() })
	b := client(t, far, fairlock.Config{WaiterTTL: 200 * time.Millisecond})
	enqueue(t, s, ID{Mutex, "x"}, func(ctx context.Context) error {
		_, err := b.Mutex("x").Lock(ctx)
		return err
	})
	link.Cut()
	keys := lua.MutexKeys("fairlock", "x")
	require.True(t, rdb.Persist(t.Context(), keys.Queue).Val(), "it would not be there for long")
	require.True(t, rdb.Persist(t.Context(), keys.Alive).Val())
	require.Eventually(t, func() bool {
		l := one(t, s, ID{Mutex, "x"})
		return l.Waiting == 1 && !l.Waiters[0].Alive() && l.Waiters[0].Heard
	}, time.Minute, 5*time.Millisecond)
}

func TestWhatCannotBeReadDoesNotHideTheRest(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := Server{rdb, "fairlock"}
	for _, name := range []string{"a\n", "b"} {
		require.NoError(t, rdb.LPush(t.Context(), lua.MutexKeys("fairlock", name).Lock, "theirs").Err())
	}
	for range 2 { // the server does not know the script, and knows it
		locks, err := s.Look(t.Context(), Most, ID{Mutex, "a\n"}, ID{Mutex, "b"}, ID{Mutex, "c"})
		require.ErrorContains(t, err, `mutex "a\n": key "fairlock:{a\n}:lock" is not ours`)
		require.ErrorContains(t, err, "(and 1 more error)")
		_, ok := errors.AsType[redis.Error](err)
		require.True(t, ok, "it says whose error it is")
		require.Len(t, locks, 1)
		require.Equal(t, "c", locks[0].Name)
	}
}

func TestAServerThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, r := server.Client(), &recorder{}
	rdb.AddHook(r)
	s := Server{rdb, "fairlock"}
	server.Kill()
	locks, err := s.Look(t.Context(), Most, IDs([]string{"a", "b"}, Kinds...)...)
	require.Empty(t, locks)
	_, ok := errors.AsType[net.Error](err)
	require.True(t, ok, err)
	require.Len(t, r.pipelines, 1, "it is not asked for one lock after the other")
	_, err = s.List(t.Context(), Want{}, nil)
	_, ok = errors.AsType[net.Error](err)
	require.True(t, ok, err)
}

func TestManyErrorsAreOne(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	require.NoError(t, gather(nil))
	require.EqualError(t, gather([]error{a, errors.New("a")}), "a")
	all := gather([]error{a, gather([]error{a, b}), b})
	require.EqualError(t, all, "a (and 2 more errors)")
	require.ErrorIs(t, all, b)
}

func TestAConnectionThatIsRefusedIsAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client().ConfigSet(t.Context(), "requirepass", "right").Err())
	o := server.Options()
	o.Password = "wrong"
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	_, err := Server{rdb, "fairlock"}.Look(t.Context(), Most, IDs([]string{"a"}, Kinds...)...)
	require.ErrorContains(t, err, "WRONGPASS")
}

// The end of ctx is heard though go-redis goes on.
func TestTheEndOfCtxEndsACall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	link := redistest.NewLink(t, server)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), ReadTimeout: time.Hour})
	t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(t, rdb.Ping(t.Context()).Err())
	link.Hang()
	t.Cleanup(link.Mend)
	enough := errors.New("enough")
	for _, call := range []func(context.Context, Server) error{
		func(ctx context.Context, s Server) error {
			_, err := s.Look(ctx, Most, ID{Mutex, "a"})
			return err
		},
		func(ctx context.Context, s Server) error {
			_, err := s.List(ctx, Want{}, func(Progress) {})
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
		require.ErrorIs(t, call(ctx, Server{rdb, "fairlock"}), enough)
	}
}

// recorder notes what is sent.
type recorder struct {
	mu        sync.Mutex
	names     []string // guarded by mu
	pipelines []int    // guarded by mu
	entries   []int    // guarded by mu; that a pipeline may bring, at most
	counts    []string // guarded by mu; of SCAN
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.mu.Lock()
		r.note(cmd)
		r.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.mu.Lock()
		r.pipelines = append(r.pipelines, len(cmds))
		entries := 0
		for _, cmd := range cmds {
			r.note(cmd)
			var limit int
			args := cmd.Args()
			_, _ = fmt.Sscan(fmt.Sprint(args[len(args)-1]), &limit)
			entries += limit
		}
		r.entries = append(r.entries, entries)
		r.mu.Unlock()
		return next(ctx, cmds)
	}
}

func (r *recorder) note(cmd redis.Cmder) {
	if !slices.Contains(r.names, cmd.Name()) {
		r.names = append(r.names, cmd.Name())
	}
	if args := cmd.Args(); cmd.Name() == "scan" {
		r.counts = append(r.counts, fmt.Sprint(args[len(args)-1]))
	}
}

func TestNoCallKeepsTheServerBusy(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("job:%d", i))
		require.NoError(t, rdb.Set(t.Context(), lua.MutexKeys("fairlock", names[i]).Lock, tokenOf("a", 1), time.Hour).Err())
	}
	r := &recorder{}
	rdb.AddHook(r)
	s := Server{rdb, "fairlock"}
	locks, err := s.List(t.Context(), Want{}, nil)
	require.NoError(t, err)
	require.Len(t, locks, 2000)
	require.LessOrEqual(t, len(r.pipelines), 2000*Listed/together+len(r.counts), "they go together as far as they may")
	for _, limit := range []int{1, watched, Most} {
		locks, err = s.Look(t.Context(), limit, IDs(names[:700], Mutex)...)
		require.NoError(t, err)
		require.Len(t, locks, 700)
	}
	allowed := []string{"hello", "client", "scan", "evalsha", "eval"}
	require.Subset(t, allowed, r.names, "nothing that takes as long as there are keys")
	require.Greater(t, len(r.counts), 3)
	for _, count := range r.counts {
		require.Equal(t, "500", count)
	}
	for i, n := range r.pipelines {
		require.True(t, r.entries[i] <= together || n == 1, "%d locks with %d entries in one pipeline", n, r.entries[i])
	}
}
