package fairlocktest_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Regression tests.

func TestClock_AdvanceWaitsForNetwork(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer web.Close()
	clock := fairlocktest.NewClock(t)
	for range 50 {
		var done atomic.Bool
		clock.AfterFunc(time.Second, func() {
			if r, err := http.Get(web.URL); err == nil { //nolint:noctx // the server replies at once
				done.Store(r.Body.Close() == nil)
			}
		})
		clock.Advance(time.Second)
		require.True(t, done.Load())
	}
}

// A goroutine that starts a garbage collection waits to stop the world, and shows as one that waits for another.
func TestClock_AdvanceWaitsForGarbageCollection(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	clock := fairlocktest.NewClock(t)
	for range 50 {
		var done atomic.Bool
		clock.AfterFunc(time.Second, func() {
			for range 1000 {
				garbage = make([]byte, 10_000)
			}
			done.Store(true)
		})
		clock.Advance(time.Second)
		require.True(t, done.Load())
	}
}

var garbage []byte

func TestClock_MadeInEndedGoroutine(t *testing.T) {
	made := make(chan *fairlocktest.Clock)
	go func() { made <- fairlocktest.NewClock(t) }()
	clock := <-made
	for range 50 {
		var done atomic.Bool
		clock.AfterFunc(time.Second, func() {
			work()
			done.Store(true)
		})
		clock.Advance(time.Second)
		require.True(t, done.Load())
	}
}

func TestClock_WithTimeoutChildError(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	ctx, cancel := clock.WithTimeout(t.Context(), time.Second)
	defer cancel()
	child, end := context.WithCancel(ctx)
	defer end()
	clock.Advance(time.Second)
	require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
}

func TestLink_DropReplyOfLargeRequest(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		const many = 20000
		incr := func() error {
			_, err := client.Redis.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for range many {
					p.Incr(t.Context(), "n")
				}
				return nil
			})
			return err
		}
		client.Link.DropReply()
		require.NoError(t, incr()) // go-redis sends it again
		n, err := client.Redis.Get(t.Context(), "n").Int()
		require.NoError(t, err)
		assert.Equal(t, 2*many, n)
		client.Link.DropRequest()
		require.NoError(t, client.Redis.Set(t.Context(), "big", bytes.Repeat([]byte("x"), 300<<10), 0).Err())
		assert.Equal(t, int64(300<<10), client.Redis.StrLen(t.Context(), "big").Val())
	})
}

func TestServer_ScriptsAreLoaded(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		lease := lock(t, client)
		client.Link.Hang()
		unlocked := make(chan error, 1)
		go func() { unlocked <- lease.Unlock(context.Background()) }()
		synctest.Wait()
		client.Close()
		require.ErrorIs(t, <-unlocked, fairlock.ErrClosed)
		server.Mutex("x").AssertHeldBy("client-1")
		client.Link.Mend()
		server.Mutex("x").AssertFree() // the request has arrived after all
	})
}

func TestLock_WaitsLastDefaultTTLs(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, _ *fairlocktest.Client) {
		x := server.Mutex("x")
		x.CrashHolding("crashed", fairlock.DefaultTTL)
		x.WaitFree()
		held := x.HoldAs("holder")
		x.CrashQueued("waiter", 5*time.Second)
		require.NoError(t, held.Unlock(t.Context()))
		x.AssertHeldBy("waiter")
		x.WaitFree()
	})
}

func TestServer_AssertNothingLeftIgnoresOtherKeys(t *testing.T) {
	server := fairlocktest.NewServer(t)
	rdb := server.Link().Redis()
	require.NoError(t, rdb.HSet(t.Context(), "shop:{1}:lock", "a", "b").Err())
	require.NoError(t, rdb.Set(t.Context(), "shop:{2}:lock", "mine", 0).Err())
	require.NoError(t, rdb.RPush(t.Context(), "shop:{1}:queue", "a").Err())
	server.AssertNothingLeft()
}

func TestLock_InEmptyNamespace(t *testing.T) {
	server := fairlocktest.NewServer(t)
	server.Mutex("x").In("").CrashHolding("crashed", time.Minute)
	server.Mutex("x").AssertHeldBy("crashed")
}

func TestServer_OtherBubbleFails(t *testing.T) {
	message, fatal := runFailing(func(tb testing.TB) {
		tb.Helper()
		server := fairlocktest.NewServer(tb)
		synctest.Test(t, func(*testing.T) {
			ended := make(chan struct{})
			go func() { // Fatalf ends it
				defer close(ended)
				server.Client(fairlock.Config{})
			}()
			<-ended
		})
	})
	assert.True(t, fatal)
	assert.Contains(t, message, "the server was made outside a testing/synctest bubble, and is used in")
}

func TestClock_AdvanceNegative(t *testing.T) {
	message, fatal := runFailing(func(tb testing.TB) {
		tb.Helper()
		fairlocktest.NewClock(tb).Advance(-time.Second)
	})
	assert.True(t, fatal)
	assert.Contains(t, message, "a clock cannot be set back: -1s")
}
