package view

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// watching runs a Watch until the test ends. The returned function waits for a glance that will do.
func watching(t *testing.T, w Watch) func(will func(Glance) bool) Glance {
	t.Helper()
	glances := make(chan Glance)
	ctx, cancel := context.WithCancel(context.Background())
	var task sync.WaitGroup
	task.Go(func() {
		w.Run(ctx, func(g Glance) {
			select {
			case glances <- g:
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(task.Wait)
	t.Cleanup(cancel)
	return func(will func(Glance) bool) Glance {
		t.Helper()
		for over := time.After(time.Minute); ; {
			select {
			case g := <-glances:
				if will(g) {
					return g
				}
			case <-over:
				t.Fatal("nothing of that kind is seen")
			}
		}
	}
}

func TestNamedLocksAreWatched(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := Server{rdb, "fairlock"}
	c := client(t, rdb, fairlock.Config{Name: "a"})
	sees := watching(t, Watch{Server: s, IDs: IDs([]string{"x", "y"}, Kinds...), Every: MinInterval})

	g := sees(func(Glance) bool { return true })
	require.NoError(t, g.Err)
	require.Equal(t, IDs([]string{"x", "y"}, Kinds...), ids(g.Locks), "free ones, too")
	lease, err := c.Mutex("x").Lock(t.Context())
	got(t, lease, err)
	g = sees(func(g Glance) bool { return g.Locks[0].Held() })
	require.Equal(t, "a", g.Locks[0].Holders[0].Token.Client())
	enqueue(t, s, ID{Mutex, "x"}, func(ctx context.Context) error {
		_, err := c.Mutex("x").Lock(ctx)
		return err
	})
	g = sees(func(g Glance) bool { return g.Locks[0].Waiting == 1 })
	require.Len(t, g.Locks[0].Waiters, 1)
	require.NoError(t, lease.Unlock(t.Context()))
	sees(func(g Glance) bool { return g.Locks[0].Waiting == 0 && g.Locks[0].Held() })
}

func TestAllLocksInUseAreWatchedAsTheyComeAndGo(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := Server{rdb, "fairlock"}
	c := client(t, rdb, fairlock.Config{Name: "a"})
	first, err := c.Mutex("x").Lock(t.Context())
	got(t, first, err)
	hold(t, c, "other")
	want := Want{Prefix: "x", Kinds: []Kind{Mutex, RW}}
	sees := watching(t, Watch{Server: s, Want: want, Every: MinInterval})

	g := sees(func(Glance) bool { return true })
	require.Equal(t, IDs([]string{"x"}, Mutex), ids(g.Locks))
	second, err := c.RWMutex("xy").Lock(t.Context())
	got(t, second, err)
	lease, err := c.Semaphore("xz", 1).Acquire(t.Context(), 1)
	got(t, lease, err)
	g = sees(func(g Glance) bool { return len(InUse(g.Locks)) == 2 })
	require.Equal(t, []ID{{Mutex, "x"}, {RW, "xy"}}, ids(g.Locks))
	require.Nil(t, g.Locks[0].Waiters)

	require.NoError(t, first.Unlock(t.Context()))
	g = sees(func(g Glance) bool { return len(InUse(g.Locks)) == 1 })
	require.Contains(t, ids(g.Locks), ID{Mutex, "x"}, "whoever watches is told that it is free")
	sees(func(g Glance) bool { return len(g.Locks) == 1 })
}

// A search may come between a lock's end and the look that would have shown it.
func TestALockThatIsNotFoundAnyMoreIsSeenToBeFree(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	key := lua.MutexKeys("fairlock", "x").Lock
	require.NoError(t, rdb.Set(t.Context(), key, tokenOf("a", 1), time.Hour).Err())
	f := &finder{watch: Watch{Server: Server{rdb, "fairlock"}}, first: make(chan struct{}), ids: IDs([]string{"x"}, Mutex)}
	close(f.first)
	look := func() []Lock {
		g := f.look(t.Context(), func(Glance) {})
		require.NoError(t, g.Err)
		return g.Locks
	}
	require.True(t, look()[0].Held())
	require.NoError(t, rdb.Del(t.Context(), key).Err())
	f.ids = nil
	require.True(t, look()[0].Free())
	require.Empty(t, look())
}

func TestWatchingGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	for _, ids := range [][]ID{nil, IDs([]string{"x"}, Mutex)} {
		server := redistest.Start(t)
		sees := watching(t, Watch{Server: Server{server.Client(), "fairlock"}, IDs: ids, Every: MinInterval})
		sees(func(g Glance) bool { return g.Err == nil })
		server.Kill()
		sees(func(g Glance) bool { return g.Err != nil })
		server.Run()
		rdb := server.Client()
		require.NoError(t, rdb.Set(t.Context(), lua.MutexKeys("fairlock", "x").Lock, tokenOf("a", 1), time.Hour).Err())
		sees(func(g Glance) bool { return g.Err == nil && len(InUse(g.Locks)) == 1 })
	}
}

func TestALookThatHangsIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	link := redistest.NewLink(t, server)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), ReadTimeout: time.Hour})
	t.Cleanup(func() { _ = rdb.Close() })
	sees := watching(t, Watch{Server: Server{rdb, "fairlock"}, IDs: IDs([]string{"x"}, Mutex), Every: MinInterval})
	sees(func(g Glance) bool { return g.Err == nil })
	link.Hang()
	sees(func(g Glance) bool { return g.Err != nil && strings.Contains(g.Err.Error(), "longer than 3s") })
	link.Mend()
	sees(func(g Glance) bool { return g.Err == nil })
}

func TestLookingLeavesTheServerInPeace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ took, rest, every time.Duration }{
			{0, 0, time.Second}, {100 * time.Millisecond, 100 * time.Millisecond, time.Second},
			{time.Second / 2, time.Minute, time.Minute + time.Second/2}, {time.Minute, time.Second, time.Minute + time.Second},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			began, times := time.Now(), 0
			repeat(ctx, time.Second, func(context.Context) time.Duration {
				require.Equal(t, time.Duration(times)*c.every, time.Since(began))
				time.Sleep(c.took)
				if times++; times == 4 {
					cancel()
				}
				return c.rest
			})
		}
	})
}

func TestManyLocksAreLookedAtMoreRarely(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for i := range 1500 {
		key := lua.MutexKeys("fairlock", fmt.Sprint(i)).Lock
		require.NoError(t, rdb.Set(t.Context(), key, tokenOf("a", 1), time.Hour).Err())
	}
	sees := watching(t, Watch{Server: Server{rdb, "fairlock"}, Every: MinInterval})
	sees(func(g Glance) bool { return len(g.Locks) == 1500 })
	began := time.Now()
	sees(func(Glance) bool { return true })
	require.Greater(t, time.Since(began), time.Second)
}
