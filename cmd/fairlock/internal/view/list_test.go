package view

import (
	"context"
	"fmt"
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

// hold has somebody hold a lock of each kind and name.
func hold(t *testing.T, c *fairlock.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		lease, err := c.Mutex(name).Lock(t.Context())
		got(t, lease, err)
		lease, err = c.Semaphore(name, 3).Acquire(t.Context(), 1)
		got(t, lease, err)
		lease, err = c.RWMutex(name).Lock(t.Context())
		got(t, lease, err)
	}
}

func listed(t *testing.T, s Server, want Want) []ID {
	t.Helper()
	locks, err := s.List(t.Context(), want, nil)
	require.NoError(t, err)
	return ids(locks)
}

func TestAllLocksInUseAreListedInOrder(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := Server{rdb, "ns[*]"}
	c := client(t, rdb, fairlock.Config{Namespace: s.Namespace, Name: "a"})
	hold(t, c, names...)
	hold(t, client(t, rdb, fairlock.Config{Namespace: "ns*"}), "other")
	for i := range 5000 { // what others have, and what is left of locks
		require.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("user:%d", i), "", 0).Err())
	}
	for i := range 100 {
		name := fmt.Sprintf("old:%d", i)
		keys := lua.SemaphoreKeys(s.Namespace, name)
		require.NoError(t, rdb.Set(t.Context(), lua.MutexKeys(s.Namespace, name).Fence, i+1, 0).Err())
		require.NoError(t, rdb.ZAdd(t.Context(), keys.Alive, redis.Z{Score: -1, Member: "x"}).Err())
		require.NoError(t, rdb.ZAdd(t.Context(), keys.Permits, redis.Z{Score: 1, Member: tokenOf("a", i)}).Err()) // expired
	}
	enqueue(t, s, ID{Mutex, "a"}, func(ctx context.Context) error {
		_, err := c.Mutex("a").Lock(ctx)
		return err
	})

	locks, err := s.List(t.Context(), Want{}, nil)
	require.NoError(t, err)
	want := IDs(names, Kinds...)
	slices.SortFunc(want, ID.compare)
	require.Equal(t, want, ids(locks))
	require.True(t, slices.IsSortedFunc(locks, func(a, b Lock) int { return strings.Compare(a.Name, b.Name) }))
	for _, l := range locks {
		require.Equal(t, "a", l.Holders[0].Token.Client())
		require.Nil(t, l.Waiters)
		require.Equal(t, l.ID == ID{Mutex, "a"}, l.Waiting == 1)
	}
	require.Equal(t, IDs([]string{"%25", "%257b", "%7B"}, RW), listed(t, s, Want{Prefix: "%", Kinds: []Kind{RW}}))
	require.Equal(t, IDs([]string{"a*b"}, Semaphore, RW), listed(t, s, Want{Prefix: "a*", Kinds: []Kind{Semaphore, RW}}))
	require.Empty(t, listed(t, s, Want{Prefix: "old"}))
	require.Equal(t, IDs([]string{"other"}, Kinds...), listed(t, Server{rdb, "ns*"}, Want{}))
}

func TestALockOnlyWaitedForIsListed(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := Server{rdb, "fairlock"}
	keys, now := lua.MutexKeys("fairlock", "x"), float64(time.Now().UnixMicro())
	require.NoError(t, rdb.ZAdd(t.Context(), keys.Queue, redis.Z{Score: now, Member: tokenOf("a", 1)}).Err())
	short := tokenOf("a", 1)[len("a:")+8:]
	require.NoError(t, rdb.ZAdd(t.Context(), keys.Alive, redis.Z{Score: now + 6e6, Member: short}).Err())
	require.Equal(t, IDs([]string{"x"}, Mutex), listed(t, s, Want{}))
	l := one(t, s, ID{Mutex, "x"})
	require.True(t, l.Free())
	require.True(t, l.Waiters[0].Alive())
}

func TestALockThatCannotBeReadDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := Server{rdb, "fairlock"}
	for i := range 120 {
		require.NoError(t, rdb.LPush(t.Context(), lua.MutexKeys("fairlock", fmt.Sprint("bad", i)).Lock, "theirs").Err())
	}
	hold(t, client(t, rdb, fairlock.Config{}), "good")
	locks, err := s.List(t.Context(), Want{}, nil)
	require.Equal(t, IDs([]string{"good"}, Kinds...), ids(locks))
	const want = `^mutex bad\d+: key "fairlock:\{bad\d+\}:lock" is not ours: WRONGTYPE [^\n]* \(and 119 more errors\)$`
	require.Regexp(t, want, err.Error())
}

func TestProgressEndsWhereTheServerDoes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for i := range 3000 {
		require.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("user:%d", i), "", 0).Err())
	}
	hold(t, client(t, rdb, fairlock.Config{}), "x")
	total := rdb.DBSize(t.Context()).Val()
	var told []Progress
	_, err := Server{rdb, "fairlock"}.List(t.Context(), Want{}, func(p Progress) { told = append(told, p) })
	require.NoError(t, err)
	require.Greater(t, len(told), 3)
	for i, p := range told {
		require.Equal(t, total, p.Total)
		require.Equal(t, int64(i+1)*step, p.Keys)
	}
	last := told[len(told)-1]
	require.Equal(t, 3, last.Locks)
	require.InDelta(t, total, last.Keys, step)
	require.Equal(t, "3000 of 3012 keys searched, 1 lock in use", Progress{3000, 3012, 1}.String())
	require.Equal(t, "3012 of 3012 keys searched, 2 locks in use", Progress{3500, 3012, 2}.String())
	require.Equal(t, "3500 keys searched, 0 locks in use", Progress{3500, 0, 0}.String())
}

func TestEveryMasterOfAClusterIsSearched(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	rdb := cluster.Client()
	s := Server{rdb, "fairlock"}
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("job:%02d", i))
	}
	hold(t, client(t, rdb, fairlock.Config{TTL: time.Hour}), names...)
	total := int64(0)
	perMaster := map[string]int{}
	for _, m := range cluster.Masters {
		keys, err := m.Client().Keys(t.Context(), "*:lock").Result()
		require.NoError(t, err)
		perMaster[m.Addr()] = len(keys)
		total += m.Client().DBSize(t.Context()).Val()
		require.NotEmpty(t, keys)
	}
	var last Progress
	locks, err := s.List(t.Context(), Want{}, func(p Progress) { last = p })
	require.NoError(t, err)
	require.Equal(t, IDs(names, Kinds...), ids(locks))
	require.Equal(t, Progress{Keys: 3 * step, Total: total, Locks: 180}, last)
	require.Equal(t, IDs([]string{"job:07"}, Kinds...), listed(t, s, Want{Prefix: "job:07"}))

	some, err := s.Look(t.Context(), Most, IDs(names, Kinds...)...)
	require.NoError(t, err)
	require.Equal(t, IDs(names, Kinds...), ids(some), "in the given order, whichever server has them")

	for _, protocol := range []int{2, 3} {
		node := redis.NewClient(&redis.Options{Addr: cluster.Masters[0].Addr(), Protocol: protocol})
		_, err = Server{node, "fairlock"}.List(t.Context(), Want{}, nil)
		require.ErrorIs(t, err, ErrPart, "protocol %d", protocol)
		require.NoError(t, node.Close())
	}

	cluster.Masters[1].Kill()
	locks, err = s.List(t.Context(), Want{}, nil)
	require.Error(t, err)
	assert.Len(t, locks, 180-3*perMaster[cluster.Masters[1].Addr()], "what the others have")
	some, err = s.Look(t.Context(), Most, IDs(names, Mutex)...)
	require.Error(t, err)
	assert.Len(t, some, 60-perMaster[cluster.Masters[1].Addr()])
}
