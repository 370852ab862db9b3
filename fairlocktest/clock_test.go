package fairlocktest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

func TestClock_AdvanceWaitsUntilIdle(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	start := clock.Now()
	var at []time.Duration
	first, second := make(chan struct{}), make(chan struct{})
	go func() { // this one and the next one work for some milliseconds each
		<-first
		work()
		close(second)
	}()
	var done atomic.Bool
	go func() {
		<-second
		work()
		done.Store(true)
	}()
	clock.AfterFunc(3*time.Second, func() { at = append(at, clock.Now().Sub(start)) })
	clock.AfterFunc(time.Second, func() {
		at = append(at, clock.Now().Sub(start))
		clock.AfterFunc(time.Second, func() { at = append(at, clock.Now().Sub(start)) })
		close(first)
	})
	stopped := clock.AfterFunc(2*time.Second, func() { at = append(at, -1) })
	assert.True(t, stopped.Stop())
	assert.False(t, stopped.Stop())

	clock.Advance(time.Second)
	assert.True(t, done.Load(), "Advance did not wait until all goroutines were idle")
	clock.Advance(4 * time.Second)
	assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, at)
	assert.Equal(t, start.Add(5*time.Second), clock.Now())
}

// work uses a processor for some milliseconds.
func work() {
	for until := time.Now().Add(5 * time.Millisecond); time.Now().Before(until); {
		continue
	}
}

func TestClock_AdvanceWithParallelTests(t *testing.T) {
	const clocks = 3
	var done atomic.Int32
	t.Run("busy", func(t *testing.T) {
		t.Parallel()
		var workers sync.WaitGroup
		workers.Go(func() {
			// Only for some time, in case the others begin after it (-parallel 1).
			for began := time.Now(); done.Load() < clocks && time.Since(began) < 3*time.Second; {
				runtime.Gosched() // there may be only one processor
			}
		})
		workers.Wait()
	})
	for i := range clocks {
		t.Run(fmt.Sprintf("clock %d", i), func(t *testing.T) {
			t.Parallel()
			defer done.Add(1)
			clock := fairlocktest.NewClock(t)
			client := fairlocktest.NewServerWithClock(t, clock).Client(fairlock.Config{})
			lease := lock(t, client)
			for range 20 {
				clock.Advance(5 * time.Second)
			}
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}

func TestClock_WithTimeout(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	client := fairlocktest.NewServerWithClock(t, clock).Client(fairlock.Config{})
	held := lock(t, client)
	ctx, cancel := clock.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, ok := ctx.Deadline()
	assert.False(t, ok)
	result := make(chan error, 1)
	go func() {
		_, err := client.Mutex("x").Lock(ctx)
		result <- err
	}()
	clock.Advance(time.Minute - 1)
	require.NoError(t, ctx.Err())
	clock.Advance(1)
	require.ErrorIs(t, <-result, context.DeadlineExceeded)
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	require.NoError(t, held.Unlock(t.Context()))

	ctx, cancel = clock.WithTimeout(t.Context(), time.Minute)
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	clock.Advance(time.Hour)
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// A client's timeouts go by the Clock, go-redis's included.
func TestClock_HungRequestTimesOut(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	server := fairlocktest.NewServerWithClock(t, clock)
	client := server.Client(fairlock.Config{})
	lease := lock(t, client)
	client.Link.Hang()
	unlocked := make(chan error, 1)
	go func() { unlocked <- lease.Unlock(context.Background()) }()
	clock.Wait()
	assert.Empty(t, unlocked)
	clock.Advance(fairlock.DefaultTTL)
	require.ErrorIs(t, <-unlocked, fairlock.ErrUnreachable)
	server.Mutex("x").AssertFree()

	pinged := make(chan error, 1)
	go func() { pinged <- client.Redis.Ping(context.Background()).Err() }()
	clock.Advance(2 * time.Second)
	assert.Empty(t, pinged)
	clock.Advance(time.Minute)
	require.Error(t, <-pinged)
}

// No request waits for a connection by the system's clock.
func TestClock_ManyHungRequestsTimeOut(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	link := fairlocktest.NewServerWithClock(t, clock).Link()
	rdb := link.Redis()
	link.Hang()
	const many = 200
	ended := make(chan error, many)
	for range many {
		go func() { ended <- rdb.Ping(context.Background()).Err() }()
	}
	clock.Advance(time.Minute)
	n := len(ended) // not Len, which would print the channel
	assert.Equal(t, many, n)
}

func TestClock_KeysExpire(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	server := fairlocktest.NewServerWithClock(t, clock)
	rdb := server.Link().Redis()
	require.NoError(t, rdb.Set(t.Context(), "k", "v", time.Minute).Err())
	before, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	assert.WithinDuration(t, clock.Now(), before, 0)
	clock.Advance(time.Minute - time.Millisecond)
	assert.Equal(t, int64(1), rdb.Exists(t.Context(), "k").Val())
	clock.Advance(time.Millisecond)
	assert.Equal(t, int64(0), rdb.Exists(t.Context(), "k").Val())
	assert.Equal(t, clock.Now().UnixMicro(), rdb.Time(t.Context()).Val().UnixMicro())
}

// bothTimes runs a test in a bubble and by a Clock.
func bothTimes(t *testing.T, test func(t *testing.T, server *fairlocktest.Server, pass func(time.Duration))) {
	t.Helper()
	t.Run("in a bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			test(t, fairlocktest.NewServer(t), func(d time.Duration) {
				time.Sleep(d)
				synctest.Wait()
			})
		})
	})
	t.Run("by a clock", func(t *testing.T) {
		clock := fairlocktest.NewClock(t)
		test(t, fairlocktest.NewServerWithClock(t, clock), clock.Advance)
	})
}

func TestLocalClock_DriftsStepsAndPauses(t *testing.T) {
	bothTimes(t, func(t *testing.T, server *fairlocktest.Server, pass func(time.Duration)) {
		local := server.LocalClock()
		start := local.Now()
		shows := func() time.Duration { return local.Now().Sub(start).Round(time.Microsecond) }
		var mu sync.Mutex
		var all []time.Duration
		startTimer := func(d time.Duration) fairlock.Timer {
			return local.AfterFunc(d, func() {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, shows())
			})
		}
		fired := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		pass(time.Second)
		assert.Equal(t, time.Second, shows())

		startTimer(time.Second)
		local.SetRate(0.5)
		pass(2*time.Second - time.Millisecond)
		assert.Empty(t, fired())
		pass(2 * time.Millisecond)
		assert.Equal(t, []time.Duration{2 * time.Second}, fired())
		local.SetRate(0)
		startTimer(time.Second)
		was := shows()
		pass(time.Hour)
		assert.Equal(t, was, shows())
		local.Step(999 * time.Millisecond)
		pass(0)
		assert.Len(t, fired(), 1)
		local.Step(time.Millisecond)
		pass(0)
		assert.Len(t, fired(), 2)

		local.SetRate(1)
		startTimer(time.Second)
		stopped := startTimer(time.Second)
		local.Pause()
		was = shows()
		pass(time.Minute)
		assert.Equal(t, was+time.Minute, shows())
		assert.Len(t, fired(), 2)
		assert.True(t, stopped.Stop())
		local.Resume()
		pass(0)
		assert.Len(t, fired(), 3)
		assert.False(t, stopped.Stop())
	})
}

// docs/promises.md promises that a lease ends in time on a clock that is slow by 1 %.
func TestLocalClock_SlowByOnePercent(t *testing.T) {
	bothTimes(t, func(t *testing.T, server *fairlocktest.Server, pass func(time.Duration)) {
		for _, c := range []struct {
			rate   float64
			inTime bool // Done closes before the lease ends in Redis
		}{{0.991, true}, {0.97, false}} {
			local := server.LocalClock()
			client := server.Client(fairlock.Config{Name: fmt.Sprintf("rate-%v", c.rate), NoRenewal: true, Clock: local})
			local.SetRate(c.rate)
			lease := lock(t, client)
			for lease.Err() == nil {
				pass(10 * time.Millisecond)
			}
			if c.inTime {
				server.Mutex("x").AssertHeldBy(client.Name())
				pass(time.Second)
			}
			server.Mutex("x").AssertFree()
		}
	})
}

func TestLocalClock_PausedProcessLosesLease(t *testing.T) {
	bothTimes(t, func(t *testing.T, server *fairlocktest.Server, pass func(time.Duration)) {
		local := server.LocalClock()
		client := server.Client(fairlock.Config{Clock: local})
		lease := lock(t, client)
		local.Pause()
		client.Link.Hang()
		pass(2 * fairlock.DefaultTTL)
		server.Mutex("x").AssertFree()
		require.ErrorIs(t, lease.Err(), fairlock.ErrLost, "no timer has fired yet")
		client.Link.Mend()
		local.Resume()
		pass(time.Millisecond)
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
	})
}

func TestServer_StepClock(t *testing.T) {
	bothTimes(t, func(t *testing.T, server *fairlocktest.Server, pass func(time.Duration)) {
		x := server.Mutex("x")
		client := server.Client(fairlock.Config{})
		rdb := client.Redis
		was := server.Now()
		x.CrashHolding("crashed", 10*time.Second)
		server.StepClock(-time.Hour)
		assert.Equal(t, was.Add(-time.Hour).UnixMicro(), rdb.Time(t.Context()).Val().UnixMicro())
		pass(time.Minute)
		x.AssertHeldBy("crashed")
		assert.Equal(t, time.Hour-50*time.Second, x.State().Holder.TTL, "a key expires when Redis's clock says so")
		server.StepClock(time.Hour - 51*time.Second)
		x.AssertHeldBy("crashed")
		server.StepClock(time.Second)
		x.AssertFree()

		lease := lock(t, client)
		fence := lease.Fence()
		server.StepClock(-time.Hour)
		require.NoError(t, lease.Unlock(t.Context()))
		lease = lock(t, client)
		assert.Greater(t, lease.Fence(), fence)
		server.StepClock(time.Minute)
		x.AssertFree()
		pass(fairlock.DefaultTTL / 2)
		require.ErrorIs(t, lease.Err(), fairlock.ErrTaken, "the next renewal finds out")
	})
}
