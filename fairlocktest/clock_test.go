package fairlocktest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Functions run one after the other, each at the time of its timer, and Advance returns after the last one.
func TestClock_AdvanceCallsInOrder(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	start := clock.Now()
	var at []time.Duration
	note := func() {
		time.Sleep(time.Millisecond) // the clock stands still meanwhile
		at = append(at, clock.Now().Sub(start))
	}
	last := clock.AfterFunc(3*time.Second, note)
	clock.AfterFunc(time.Second, func() {
		note()
		clock.AfterFunc(time.Second, note)
	})
	stopped := clock.AfterFunc(2*time.Second, note)
	assert.True(t, stopped.Stop())
	assert.False(t, stopped.Stop())
	clock.Advance(2500 * time.Millisecond)
	assert.Equal(t, []time.Duration{time.Second, 2 * time.Second}, at)
	clock.Advance(2500 * time.Millisecond)
	assert.Len(t, at, 3)
	assert.False(t, last.Stop())
	assert.Equal(t, start.Add(5*time.Second), clock.Now())
	clock.AfterFunc(0, note)
	clock.Advance(0)
	assert.Len(t, at, 4)
}

// A lease is renewed, and a ticket kept, through an Advance of any length: renewals and heartbeats are timers' functions.
func TestClock_AdvanceKeepsLeasesAndTickets(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	server := fairlocktest.NewServerWithClock(t, clock)
	x := server.Mutex("x")
	holder, waiter := server.Client(fairlock.Config{Name: "holder"}), server.Client(fairlock.Config{Name: "waiter"})
	lease := lock(t, holder)
	granted := make(chan *fairlock.Lease, 1)
	go func() { granted <- lock(t, waiter) }()
	x.WaitQueued(1)
	for beating := false; !beating; { // the waiter has received its reply, and set its timer
		clock.Advance(fairlock.DefaultWaiterTTL / 3)
		waiters := x.State().Waiters
		beating = len(waiters) == 1 && waiters[0].TTL > 2*fairlock.DefaultWaiterTTL/3
	}
	clock.Advance(5 * time.Minute)
	require.NoError(t, lease.Err())
	x.AssertHeldBy("holder")
	x.AssertQueue("waiter")

	holder.Link.Cut()
	for lease.Err() == nil {
		clock.Advance(10 * time.Millisecond)
	}
	x.AssertHeldBy("holder")
	require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
	for x.State().Holder.Client != "waiter" { // it sets its timer in a goroutine of its own
		clock.Advance(50 * time.Millisecond)
	}
	require.NoError(t, (<-granted).Unlock(t.Context()))
	x.WaitFree()
}

// go-redis's timeouts go by the Clock, also when many requests need a connection at once.
func TestClock_Timeouts(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	link := fairlocktest.NewServerWithClock(t, clock).Link()
	rdb := link.Redis()
	link.Hang()
	ended := make(chan error)
	for range 200 {
		go func() { ended <- rdb.Ping(context.Background()).Err() }()
	}
	for range 200 {
		for err := error(nil); err == nil; clock.Advance(time.Second) {
			select {
			case err = <-ended:
			default:
			}
		}
	}
}

func TestClock_Failures(t *testing.T) {
	fairlocktest.SetAdvanceTimeout(t, 10*time.Millisecond)
	r := &recorder{TB: t}
	clock := fairlocktest.NewClock(r)
	assert.Contains(t, r.failure(func() { clock.Advance(-time.Second) }), "fatal: fairlocktest: a clock cannot be set back: -1s")
	hung := make(chan struct{})
	defer close(hung)
	clock.AfterFunc(time.Second, func() { <-hung })
	assert.Contains(t, r.failure(func() { clock.Advance(3 * time.Second) }),
		"the function of a timer that fired 2s before the end of this Advance has not returned within 10ms")
}

func TestLocalClock_DriftsStepsAndPauses(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, _ *fairlocktest.Client) {
		local, start := server.LocalClock(), time.Now()
		shows := func() time.Duration { return local.Now().Sub(start).Round(time.Microsecond) }
		fired := make(chan time.Duration, 9)
		startTimer := func() fairlock.Timer { return local.AfterFunc(time.Second, func() { fired <- shows() }) }
		still := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
			assert.Empty(t, fired)
		}
		startTimer()
		local.SetRate(0.5)
		still(2*time.Second - time.Millisecond)
		assert.Equal(t, time.Second, <-fired)

		startTimer()
		local.SetRate(0)
		still(time.Hour)
		local.Step(999 * time.Millisecond)
		still(0)
		local.Step(time.Millisecond)
		assert.Equal(t, 2*time.Second, <-fired)

		local.SetRate(1)
		startTimer()
		stopped := startTimer()
		local.Pause()
		still(time.Minute)
		assert.Equal(t, time.Minute+2*time.Second, shows())
		assert.True(t, stopped.Stop())
		local.Resume()
		assert.Equal(t, time.Minute+2*time.Second, <-fired)
		assert.False(t, stopped.Stop())
		still(time.Hour)
	})
}

// On a clock that is slow by 0.9 % a lease still ends before it ends in Redis; by 3 % it does not.
//
//fairlock:promise A lease ends here first
func TestLocalClock_SlowByOnePercent(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, _ *fairlocktest.Client) {
		for _, c := range []struct {
			rate   float64
			inTime bool // Done closes before the lease ends in Redis
		}{{0.991, true}, {0.97, false}} {
			local := server.LocalClock()
			client := server.Client(fairlock.Config{Name: fmt.Sprintf("rate-%v", c.rate), NoRenewal: true, Clock: local})
			local.SetRate(c.rate)
			<-lock(t, client).Done()
			if c.inTime {
				server.Mutex("x").AssertHeldBy(client.Name())
				time.Sleep(time.Second)
			}
			server.Mutex("x").AssertFree()
		}
	})
}

func TestServer_StepClock(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		x.CrashHolding("crashed", 10*time.Second)
		server.StepClock(-time.Hour)
		assert.Equal(t, time.Now().Add(-time.Hour).UnixMicro(), client.Redis.Time(t.Context()).Val().UnixMicro())
		time.Sleep(time.Minute)
		assert.Equal(t, time.Hour-50*time.Second, x.State().Holder.TTL, "a key expires when Redis's clock says so")
		server.StepClock(time.Hour - 51*time.Second)
		x.AssertHeldBy("crashed")
		server.StepClock(time.Second)
		x.AssertFree()
	})
}
