package fairlocktest_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
)

// bubble runs a test in a bubble, on a server with one client.
func bubble(t *testing.T, test func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		test(t, server, server.Client(fairlock.Config{}))
	})
}

func lock(t *testing.T, client *fairlocktest.Client) *fairlock.Lease {
	t.Helper()
	lease, err := client.Mutex("x").Lock(t.Context())
	if err != nil { // in goroutines, too
		t.Error(err)
	}
	return lease
}

func TestLock_HoldAsCrashQueuedAndExpire(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		x.AssertFree()
		held := x.HoldAs("other")
		time.Sleep(10 * time.Minute)
		x.AssertHeldBy("other") // its lease is renewed
		start := time.Now()
		x.CrashQueued("crashed", 5*time.Second)
		go func() { lock(t, client) }()
		x.WaitQueued(2)
		x.AssertQueue("crashed", "client-1")
		x.Expire()
		x.WaitHeldBy("crashed")  // the next heartbeat of client-1 finds the lock free, and grants it to the first waiter
		x.WaitHeldBy("client-1") // after the waiter TTL
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(2*time.Millisecond))
		x.AssertQueue()
		<-held.Done()
		require.ErrorIs(t, held.Err(), fairlock.ErrLost)
	})
}

func TestLock_KindsAndNamespaces(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		api := server.Semaphore("api", 5)
		three, one := api.HoldPermitsAs("a", 3), api.HoldAs("b")
		api.AssertHeldBy("b", "a")
		assert.Equal(t, 4, api.State().Used)
		_, err := client.Semaphore("api", 5).TryAcquire(t.Context(), 2)
		require.ErrorIs(t, err, fairlock.ErrBusy)
		api.Expire()
		api.AssertFree()
		<-three.Done()
		<-one.Done()

		gpu := server.KeyedSemaphore("gpu", 3)
		held := gpu.Key("A").HoldPermitsAs("a", 2)
		gpu.Key("B").CrashHolding("b", time.Minute)
		gpu.Key("C").CrashQueued("c", time.Minute)
		gpu.AssertHeldBy("a", "b")
		assert.Equal(t, time.Minute, gpu.State().Holders[1].TTL)
		gpu.AssertQueue("c")
		assert.Equal(t, []string{"A", "B", "C", "C"}, []string{
			gpu.State().Holders[0].Key, gpu.State().Holders[1].Key, gpu.State().Waiters[0].Key, gpu.State().Keys[0].Key,
		})
		gpu.Expire()
		<-held.Done()
		gpu.WaitFree()
		server.Semaphore("gpu", 3).AssertFree() // another kind of the same name

		doc := server.RWMutex("doc")
		first, second := doc.ReadAs("a"), doc.ReadAs("b")
		doc.AssertHeldBy("a", "b")
		_, err = client.RWMutex("doc").TryLock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		require.NoError(t, first.Unlock(t.Context()))
		doc.AssertHeldBy("b")
		require.NoError(t, second.Unlock(t.Context()))
		doc.CrashHolding("writer", time.Second)
		start := time.Now()
		assert.True(t, doc.State().Holders[0].Writer)
		server.Mutex("doc").AssertFree() // another kind of the same name
		doc.WaitFree()
		assert.InDelta(t, time.Second, time.Since(start), float64(2*time.Millisecond))
		server.AssertNothingLeft()

		lock(t, server.Client(fairlock.Config{Namespace: "shop"})) // another namespace
		server.Mutex("x").AssertFree()
		server.Mutex("x").In("shop").AssertHeldBy("client-2")
		server.Mutex("x").In("").CrashHolding("crashed", time.Second)
		server.Mutex("x").AssertHeldBy("crashed")
	})
}

// recorder is a testing.TB that records failures.
type recorder struct {
	testing.TB

	messages []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf("fatal: "+format, args...)
	runtime.Goexit()
}

// failure runs a part of a test, which Fatalf may end, and returns how it failed.
func (r *recorder) failure(part func()) string {
	r.messages = nil
	done := make(chan struct{})
	go func() {
		defer close(done)
		part()
	}()
	<-done
	return strings.Join(r.messages, "\n")
}

// Each failure says what is wanted, and what is.
func TestLock_Failures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		s := fairlocktest.NewServer(r)
		billing := s.Mutex("billing")
		billing.HoldAs("a")
		billing.CrashQueued("b", 10*time.Minute)
		billing.CrashQueued("c", 10*time.Minute)
		s.Semaphore("s", 2).HoldAs("a")
		s.RWMutex("r").ReadAs("a")
		require.NoError(t, s.Miniredis.Set("shop:{1}:lock", "not a key of ours"))
		job, api := s.Mutex("job", fairlock.WithMinHold(time.Hour)), s.Semaphore("api", 3, fairlock.WithMinHold(time.Hour))
		for _, lease := range []*fairlock.Lease{job.HoldAs("a"), api.HoldAs("a")} {
			require.NoError(t, lease.Unlock(t.Context()))
		}
		api.HoldAs("b")
		var text strings.Builder
		for _, c := range []struct {
			what string
			part func()
		}{
			{"assert that it is free", func() { billing.AssertFree() }},
			{"assert that one is free that is kept for a minimum hold", job.AssertFree},
			{"assert that one is free that is kept and held", api.AssertFree},
			{"assert another holder", func() { billing.AssertHeldBy("b") }},
			{"assert a holder of a free lock", func() { s.Mutex("free").AssertHeldBy("a") }},
			{"assert another order", func() { billing.AssertQueue("c", "b") }},
			{"assert that nothing is left", s.AssertNothingLeft},
			{"hold what is held", func() { billing.HoldAs("z") }},
			{"hold without a name", func() { billing.HoldAs("") }},
			{"read a mutex", func() { billing.ReadAs("a") }},
			{"hold permits of a read-write lock", func() { s.RWMutex("m").HoldPermitsAs("a", 2) }},
			{"crash with what is held", func() { billing.CrashHolding("z", time.Second) }},
			{"crash with a TTL that is too short", func() { billing.CrashHolding("z", 1) }},
			{"crash in the queue of a free lock", func() { s.Mutex("m").CrashQueued("z", time.Second) }},
			{"crash with a bad name", func() { billing.CrashQueued("z z", time.Second) }},
			{"crash with a WaiterTTL that is too short", func() { billing.CrashQueued("z", 0) }},
			{"crash with no permits", func() { s.Semaphore("s", 0).CrashQueued("z", time.Second) }},
			{"wait for nothing", func() { billing.WaitFor("to be", nil) }},
			{"take what would be granted to a waiter", func() { billing.TakeAs("z") }},
			{"wait until it is free", func() { billing.WaitFree() }},
			{"wait for more waiters", func() { billing.WaitQueued(3) }},
			{"make a client with a bad TTL", func() { s.Client(fairlock.Config{TTL: -1}) }},
			{"set a rate that is no number", func() { s.LocalClock().SetRate(math.NaN()) }},
			{"set a clock back", func() { s.LocalClock().Step(-1) }},
		} {
			fmt.Fprintf(&text, "%s\n\t%s\n", c.what, strings.ReplaceAll(r.failure(c.part), "\n", "\n\t"))
		}
		golden.Equal(t, "failures.txt", text.String())
	})
}

// The clients of a Lock's methods have its options, and a Key's own come last.
func TestLock_Options(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, _ *fairlocktest.Client) {
		gpu := server.KeyedSemaphore("gpu", 3, fairlock.WithKeyLimit(2))
		a := gpu.Key("A", fairlock.WithKeyLimit(1), fairlock.WithShare(5))
		a.HoldAs("a")
		a.CrashQueued("a", time.Minute) // a permit is free, but not for this key
		gpu.Key("B").HoldPermitsAs("b", 2)
		gpu.Key("B").CrashQueued("b", time.Minute)
		var limits []int
		for _, k := range gpu.State().Keys {
			limits = append(limits, k.Limit, k.Share)
		}
		assert.ElementsMatch(t, []int{1, 5, 2, 1}, limits)

		hour := fairlock.WithMinHold(time.Hour)
		for name, l := range map[string]fairlocktest.Lock{
			"mutex": server.Mutex("job", hour), "semaphore": server.Semaphore("job", 1, hour),
			"key": server.KeyedSemaphore("job", 1, hour).Key("A"),
		} {
			require.NoError(t, l.HoldAs("a").Unlock(t.Context()), name)
			l.AssertHeldBy("a")
			l.Expire()
			l.CrashHolding("a", time.Second)
			assert.Equal(t, time.Hour, l.State().Holders[0].TTL.Round(time.Second), name)
		}
		doc := server.RWMutex("doc", fairlock.WithTTL(time.Hour))
		doc.ReadAs("a")
		assert.Equal(t, time.Hour, doc.State().Holders[0].Token.TTL())
	})
}

func TestServer_OtherBubbleFails(t *testing.T) {
	r := &recorder{TB: t}
	server := fairlocktest.NewServer(r)
	synctest.Test(t, func(*testing.T) {
		assert.Contains(t, r.failure(func() { server.Link() }),
			"the server was made outside a bubble, and is used in a testing/synctest bubble: make it where it is used")
	})
}

// TestWorld_FaultsOfConnections has the rest of what a Link does.

// A request of more than one packet is dropped as a whole, and so is its reply.
func TestLink_DropReplyOfLargeRequest(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fairlocktest.Server, client *fairlocktest.Client) {
		const many = 5000
		start := time.Now()
		client.Link.DropReply()
		_, err := client.Redis.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range many {
				p.Incr(t.Context(), "n")
			}
			return nil
		})
		require.NoError(t, err)
		n, err := client.Redis.Get(t.Context(), "n").Int()
		require.NoError(t, err)
		assert.Equal(t, 2*many, n, "go-redis sends it again")
		client.Link.DropRequest()
		require.NoError(t, client.Redis.Set(t.Context(), "big", bytes.Repeat([]byte("x"), 300<<10), 0).Err())
		assert.Equal(t, int64(300<<10), client.Redis.StrLen(t.Context(), "big").Val())
		assert.Equal(t, 2*time.Nanosecond, time.Since(start), "the connections break at once, and each retry takes 1 ns")
	})
}

func TestLink_Hang(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		conn, err := client.Link.Dial(t.Context())
		require.NoError(t, err)
		client.Link.Hang()
		start := time.Now()
		const late = 3*time.Second + 300*time.Microsecond
		require.NoError(t, conn.SetReadDeadline(start.Add(late)))
		_, err = conn.Write([]byte("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"))
		require.NoError(t, err)
		var timeout net.Error
		_, err = conn.Read(make([]byte, 1))
		require.ErrorAs(t, err, &timeout)
		assert.Equal(t, []any{true, late}, []any{timeout.Timeout(), time.Since(start)})
		_, err = client.Link.Dial(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, late+5*time.Second, time.Since(start))

		require.NoError(t, conn.Close())
		assert.False(t, server.Miniredis.Exists("n"))
		client.Link.Mend()
		synctest.Wait()
		assert.True(t, server.Miniredis.Exists("n"), "data was lost")

		client.Link.DropRequest()
		client.Link.DropReply()
		client.Link.Delay(time.Second, time.Second)
		client.Link.Mend()
		start = time.Now()
		require.NoError(t, client.Redis.Incr(t.Context(), "n").Err())
		assert.Equal(t, []any{"2", time.Duration(0)}, []any{client.Redis.Get(t.Context(), "n").Val(), time.Since(start)})
	})
}

// A client that still connects when the test ends is refused, or the server waits for its connection. The race detector
// sees it.
func TestServer_ClosesWhileClientsConnect(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			link := fairlocktest.NewServer(t).Link()
			for range 10 {
				go func() {
					for conn, err := link.Dial(context.Background()); err == nil; conn, err = link.Dial(context.Background()) {
						_ = conn.Close()
					}
				}()
			}
			runtime.Gosched()
		})
	}
}

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

// A lease is renewed, and a ticket kept, through an Advance of any length: renewals and heartbeats are timers'
// functions.
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
		clock.Advance(bounds.DefaultWaiterTTL / 3)
		waiters := x.State().Waiters
		beating = len(waiters) == 1 && waiters[0].TTL > 2*bounds.DefaultWaiterTTL/3
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
	for len(granted) == 0 { // the waiter sets its timer in a goroutine of its own
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
	assert.Contains(t, r.failure(func() { clock.Advance(-time.Second) }),
		"fatal: fairlocktest: a clock cannot be set back: -1s")
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
		startTimer := func() clock.Timer { return local.AfterFunc(time.Second, func() { fired <- shows() }) }
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

func TestServer_StepClock(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		x.CrashHolding("crashed", 10*time.Second)
		other := server.Miniredis.DB(7)
		require.NoError(t, other.Set("key", "value"))
		other.SetTTL("key", 10*time.Second)
		server.StepClock(-time.Hour)
		assert.Equal(t, time.Hour+10*time.Second, other.TTL("key"))
		assert.Equal(t, time.Now().Add(-time.Hour).UnixMicro(), client.Redis.Time(t.Context()).Val().UnixMicro())
		time.Sleep(time.Minute)
		assert.Equal(t, time.Hour-50*time.Second, x.State().Holders[0].TTL, "a key expires when Redis's clock says so")
		server.StepClock(time.Hour - 51*time.Second)
		x.AssertHeldBy("crashed")
		server.StepClock(time.Second)
		x.AssertFree()
	})
}
