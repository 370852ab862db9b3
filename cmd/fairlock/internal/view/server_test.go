package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// names are such that somebody could take them for something else.
var names = []string{
	"billing:42", "a", "50%", "%25", "%7B", "{", "}", "}:lock", "{a}:sem:queue", "a*b", "a?b", "a[b]c", `a\b`, "日本語",
	"\x1b[31mred", "\xff\xfe", "a b", "\n", "a:{b}:rw:permits", "]", "^-", "%257b",
}

// keysOf are all keys of all locks of a name, and those of them that show that a lock is in use.
func keysOf(namespace, name string) (all []string, signs map[string]ID) {
	m, s, rw := lua.MutexKeys(namespace, name), lua.SemaphoreKeys(namespace, name), lua.RWMutexKeys(namespace, name)
	all = []string{
		m.Queue, m.Heartbeats, m.Tombstones, m.Number, m.Lock, s.Queue, s.Heartbeats, s.Tombstones, s.Number, s.Permits, s.Holders,
		rw.Queue, rw.Heartbeats, rw.Tombstones, rw.Number, rw.Permits, rw.Holders,
	}
	return all, map[string]ID{
		m.Queue: {Mutex, name}, m.Lock: {Mutex, name}, s.Queue: {Semaphore, name}, s.Permits: {Semaphore, name},
		rw.Queue: {RW, name}, rw.Permits: {RW, name},
	}
}

// The server itself says what a pattern matches.
func TestID_KeysAndPatterns(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, namespace := range []string{"fairlock", "a:b", "x*[y]", "%25", `\`} {
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		keys, signs := []any{}, map[string]ID{}
		for _, name := range names {
			others, _ := keysOf("xyz", name) // which x*[y] must not match
			all, some := keysOf(namespace, name)
			for _, key := range append(all, others...) {
				keys = append(keys, key, "")
				id, ok := parse(namespace, key)
				want, sign := some[key]
				require.Equal(t, sign, ok, key)
				require.Equal(t, want, id, key)
				if sign {
					signs[key] = want
				}
			}
		}
		require.NoError(t, rdb.MSet(t.Context(), keys...).Err())
		for _, prefix := range append([]string{"", "bill", "none", "%2"}, names...) {
			var want []string
			for key, id := range signs {
				if strings.HasPrefix(id.Name, prefix) {
					want = append(want, key)
				}
			}
			have, err := rdb.Keys(t.Context(), pattern(namespace, prefix)).Result()
			require.NoError(t, err)
			require.ElementsMatch(t, want, have, "namespace %q, prefix %q", namespace, prefix)
		}
	}
	for _, key := range []string{
		"", "fairlock", "fairlock:{", "fairlock:{}:lock", "fairlock:{a}", "fairlock:{a}:", "fairlock:{a}lock", "fairlock:{a:lock",
		"fairlock:{%41}:lock", "fairlock:{%7b}:lock", "fairlock:{a{b}:lock", "fairlock:{a}b}:lock", "fairlock:{a}:sem:lock",
		"fairlock:{a}:lock:x", "fairlock:{a}:permits", "fairlock:notify:a", "xfairlock:{a}:lock",
	} {
		id, ok := parse("fairlock", key)
		require.False(t, ok, "%q is taken for %v", key, id)
	}
	_, err := ParseKind("\x1b")
	require.EqualError(t, err, `kind "\x1b" is unknown: want mutex, semaphore or rw`)
}

// inBubble runs a test in simulated time, on a server in memory.
func inBubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server, v Server, link *fairlocktest.Link)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		link := s.Link()
		test(t, s, Server{link.Redis(), "fairlock"}, link)
	})
}

func TestServer_LooksAtLocksOfAllKinds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fairlocktest.Server, v Server, _ *fairlocktest.Link) {
		began := time.Now()
		lease := s.Mutex("x").HoldAs("a")
		s.Semaphore("x", 5).HoldPermitsAs("a", 2)
		s.RWMutex("x").ReadAs("a")
		time.Sleep(time.Second)
		waiter, b := s.Mutex("x").CrashQueued("gone", 2*time.Second), s.Client(fairlock.Config{Name: "b"})
		go func() { _, _ = b.Mutex("x").Lock(t.Context()) }()
		go func() { _, _ = b.Semaphore("x", 5).Acquire(t.Context(), 4) }()
		go func() { _, _ = b.RWMutex("x").Lock(t.Context()) }()
		synctest.Wait()
		time.Sleep(2100 * time.Millisecond)

		wanted := IDs([]string{"x", "free"}, Kinds...)
		locks, err := v.Look(t.Context(), Most, wanted...)
		require.NoError(t, err)
		require.Equal(t, wanted, ids(locks))
		require.Len(t, InUse(locks), 3)
		m, sem, rw := locks[0], locks[1], locks[2]
		require.True(t, time.Now().Equal(m.At))
		h := m.Holders[0]
		require.Equal(t, []any{"a", lease.Fence(), true}, []any{h.Token.Client(), h.Fence, h.Since.Equal(began)})
		require.Equal(t, fairlock.DefaultTTL-3100*time.Millisecond, h.Left)
		require.Equal(t, []any{waiter.Text(), false, true, -100 * time.Millisecond},
			[]any{m.Waiters[0].Token.Text(), m.Waiters[0].Alive(), m.Waiters[0].Heard, m.Waiters[0].Patience})
		require.Equal(t, []any{"b", true}, []any{m.Waiters[1].Token.Client(), m.Waiters[1].Alive()})
		require.Equal(t, []int{2, 5, 2, 4}, []int{sem.Used, sem.Permits, sem.Holders[0].Weight, sem.Waiters[0].Weight})
		require.Equal(t, []bool{false, true}, []bool{rw.Holders[0].Writer, rw.Waiters[0].Writer})

		some, err := v.Look(t.Context(), 1, ID{Mutex, "x"})
		require.NoError(t, err)
		require.Equal(t, []int{1, 2}, []int{len(some[0].Waiters), some[0].Waiting}, "the limit")
		others, err := Server{v.Redis, "other"}.Look(t.Context(), Most, wanted...)
		require.NoError(t, err)
		require.Empty(t, InUse(others))
	})
}

// pipelines notes how many entries each pipeline may bring, and of how many locks.
type pipelines struct{ all [][2]int }

func (*pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var limit int
		args := cmds[0].Args()
		_, err := fmt.Sscan(fmt.Sprint(args[len(args)-1]), &limit)
		p.all = append(p.all, [2]int{len(cmds), len(cmds) * limit})
		return errors.Join(err, next(ctx, cmds))
	}
}

// All locks in use are listed in order, and no command keeps the server busy.
func TestServer_Lists(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := Server{rdb, "ns[*]"}
	var keys []any
	for i := range 3000 { // of others, and what is left of locks
		keys = append(keys, fmt.Sprint("user:", i), "", lua.MutexKeys(s.Namespace, fmt.Sprint("old:", i)).Number, i+1)
	}
	for _, name := range names {
		keys = append(keys, lua.MutexKeys(s.Namespace, name).Lock, tokenOf("a", 1), lua.MutexKeys("ns*", name).Lock, tokenOf("a", 1))
	}
	require.NoError(t, rdb.MSet(t.Context(), keys...).Err())
	for key, score := range map[string]int64{
		lua.RWMutexKeys(s.Namespace, "waited for").Queue: time.Now().UnixMicro(), lua.SemaphoreKeys(s.Namespace, "expired").Permits: 1,
	} {
		require.NoError(t, rdb.ZAdd(t.Context(), key, redis.Z{Score: float64(score), Member: tokenOf("a", 1)}).Err())
	}
	total := rdb.DBSize(t.Context()).Val()

	sent := &pipelines{}
	rdb.AddHook(sent)
	var told []Progress
	locks, err := s.List(t.Context(), Want{}, func(p Progress) { told = append(told, p) })
	require.NoError(t, err)
	want := append(IDs(names, Mutex), ID{RW, "waited for"})
	slices.SortFunc(want, ID.compare)
	require.Equal(t, want, ids(locks))
	for _, l := range locks {
		require.Nil(t, l.Waiters)
		require.Equal(t, l.Name == "waited for", l.Free() && l.Waiting == 1)
	}
	prefixed, err := s.List(t.Context(), Want{Prefix: "%", Kinds: []Kind{Mutex, Semaphore}}, nil)
	require.NoError(t, err)
	require.Equal(t, IDs([]string{"%25", "%257b", "%7B"}, Mutex), ids(prefixed))
	for i, p := range told {
		require.Equal(t, []int64{int64(i+1) * step, total}, []int64{p.Keys, p.Total})
	}
	require.Equal(t, len(want), told[len(told)-1].Locks)
	require.GreaterOrEqual(t, int64(len(told)), total/step)
	require.Equal(t, "3012 of 3012 keys searched, 1 lock in use", Progress{3500, 3012, 1}.String())
	require.Equal(t, "3500 keys searched, 0 locks in use", Progress{3500, 0, 0}.String())

	for _, limit := range []int{1, watched, Most} {
		_, err = s.Look(t.Context(), limit, IDs(names, Kinds...)...)
		require.NoError(t, err)
	}
	for _, n := range sent.all {
		require.True(t, n[1] <= together || n[0] == 1, "%d locks with %d entries in one pipeline", n[0], n[1])
	}
	require.NotContains(t, rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_keys", "that takes as long as there are keys")
}

// go-redis goes on: it would wait for a day.
func TestServer_EndOfCtxEndsACall(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *fairlocktest.Server, v Server, link *fairlocktest.Link) {
		enough := errors.New("enough")
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := v.Look(ctx, Most, ID{Mutex, "a"}); return err },
			func(ctx context.Context) error { _, err := v.List(ctx, Want{}, func(Progress) {}); return err },
		} {
			require.NoError(t, call(t.Context()))
			link.Hang()
			ctx, cancel := context.WithCancelCause(t.Context())
			began := time.Now()
			time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
			require.ErrorIs(t, call(ctx), enough)
			require.Equal(t, 50*time.Millisecond, time.Since(began))
			link.Mend()
		}
	})
}

// watching runs a Watch until the test ends. The returned function returns the next glance, and when it was had.
func watching(t *testing.T, w Watch) (next func() (Glance, time.Duration)) {
	t.Helper()
	type seen struct {
		Glance
		at time.Duration
	}
	began, glances := time.Now(), make(chan seen, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Run(ctx, func(g Glance) { glances <- seen{g, time.Since(began)} })
	}()
	t.Cleanup(func() { cancel(); <-over })
	return func() (Glance, time.Duration) {
		s := <-glances
		return s.Glance, s.at
	}
}

func TestWatch_NamedLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fairlocktest.Server, v Server, link *fairlocktest.Link) {
		next := watching(t, Watch{Server: v, IDs: IDs([]string{"x", "y"}, Mutex, RW), Every: time.Second})
		glance := func(at time.Duration, fault string) []Lock {
			g, took := next()
			require.Equal(t, at, took)
			if fault != "" {
				require.EqualError(t, g.Err, fault)
				return nil
			}
			require.NoError(t, g.Err)
			require.Equal(t, IDs([]string{"x", "y"}, Mutex, RW), ids(g.Locks), "free ones, too")
			return InUse(g.Locks)
		}
		require.Empty(t, glance(0, ""))
		s.Mutex("x").HoldAs("a")
		require.Equal(t, "a", glance(time.Second, "")[0].Holders[0].Token.Client())
		link.Hang()
		glance(5*time.Second, "looking takes longer than 3s")
		link.Mend()
		require.Len(t, glance(5*time.Second, ""), 1)
	})
}

func TestWatch_AllLocksInUse(t *testing.T) {
	inBubble(t, func(t *testing.T, s *fairlocktest.Server, v Server, _ *fairlocktest.Link) {
		lease := s.Mutex("x").HoldAs("a")
		s.Mutex("other").HoldAs("a")
		s.Semaphore("x", 1).HoldAs("a")
		next := watching(t, Watch{Server: v, Want: Want{Prefix: "x", Kinds: []Kind{Mutex, RW}}, Every: 500 * time.Millisecond})
		glance := func() []Lock {
			g, _ := next()
			require.NoError(t, g.Err)
			return g.Locks
		}
		require.Equal(t, IDs([]string{"x"}, Mutex), ids(glance()))
		s.RWMutex("xy").HoldAs("a")
		for range 4 { // until the next search, after 2 s
			require.Len(t, glance(), 1)
		}
		locks := glance()
		require.Equal(t, []ID{{Mutex, "x"}, {RW, "xy"}}, ids(locks))
		require.Nil(t, locks[0].Waiters)
		require.NoError(t, lease.Unlock(t.Context()))
		require.True(t, glance()[0].Free(), "whoever watches is told that it is free")

		// Of many locks, each costs a rest.
		next = watching(t, Watch{Server: v, IDs: slices.Repeat(IDs([]string{"x"}, Mutex), 120), Every: MinInterval})
		for i := range 3 {
			_, at := next()
			require.Equal(t, time.Duration(i)*120*time.Millisecond, at)
		}
	})
}
