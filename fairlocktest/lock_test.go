package fairlocktest_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

func TestLock_HoldAsAndCrashQueued(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		x.AssertFree()
		held := x.HoldAs("other")
		x.AssertHeldBy("other")
		_, err := client.Mutex("x").TryLock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		time.Sleep(time.Hour)
		x.AssertHeldBy("other") // its lease is renewed

		x.CrashQueued("crashed", 5*time.Second)
		go func() { lock(t, client) }()
		x.WaitQueued(2)
		x.AssertQueue("crashed", "client-1")
		require.NoError(t, held.Unlock(t.Context()))
		x.AssertHeldBy("crashed")
		start := time.Now()
		x.WaitHeldBy("client-1")
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(50*time.Millisecond), "a crashed waiter keeps its ticket for its waiter TTL")
		x.AssertQueue()
	})
}

func TestLock_CrashHoldingLastsTTL(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		x.CrashHolding("crashed", 7*time.Second)
		start := time.Now()
		x.WaitFree()
		assert.Equal(t, 7*time.Second, time.Since(start).Round(10*time.Millisecond))
	})
}

// Redis rounds TTLs to milliseconds, and the key of a queue lasts longer than its waiters.
func TestLock_WaitsEndAtExpiry(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(x fairlocktest.Lock)
		wait  func(x fairlocktest.Lock)
		takes time.Duration
	}{
		"a lease": {
			func(x fairlocktest.Lock) { x.CrashHolding("crashed", 7*time.Second) },
			fairlocktest.Lock.WaitFree, 7 * time.Second,
		},
		"a waiter and its queue": {
			func(x fairlocktest.Lock) {
				x.CrashHolding("crashed", 5*time.Minute)
				x.CrashQueued("crashed", 5*time.Second)
			},
			func(x fairlocktest.Lock) { x.WaitQueued(0) }, 5500 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := fairlocktest.NewServer(t).Mutex("x")
				c.begin(x)
				began := time.Now()
				time.Sleep(500 * time.Microsecond)
				c.wait(x)
				assert.InDelta(t, c.takes.Seconds(), time.Since(began).Seconds(), 0.003)
			})
		})
	}
}

func TestLock_TakenLeaseIsLostAtRenewal(t *testing.T) {
	for name, take := range map[string]func(fairlocktest.Lock){
		"expired":        fairlocktest.Lock.Expire,
		"taken":          func(l fairlocktest.Lock) { l.TakeAs("taker") },
		"force-released": fairlocktest.Lock.ForceRelease,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
				x := server.Mutex("x")
				lease := lock(t, client)
				take(x)
				require.NoError(t, lease.Err())
				if name == "taken" {
					x.AssertHeldBy("taker")
				} else {
					x.AssertFree()
				}
				<-lease.Done()
				require.ErrorIs(t, lease.Err(), fairlock.ErrTaken)
			})
		})
	}
}

func TestLock_ExpireAdmitsNextWaiter(t *testing.T) {
	bothTimes(t, func(t *testing.T, server *fairlocktest.Server, pass func(time.Duration)) {
		for kind, l := range map[string]fairlocktest.Lock{
			"mutex": server.Mutex("x"), "semaphore": server.Semaphore("x", 1), "rwmutex": server.RWMutex("x"),
		} {
			client := server.Client(fairlock.Config{Name: kind, TTL: 3 * time.Second})
			held := l.HoldAs("holder")
			granted := make(chan *fairlock.Lease, 1)
			go func() {
				var lease *fairlock.Lease
				var err error
				switch kind {
				case "semaphore":
					lease, err = client.Semaphore("x", 1).Acquire(context.Background(), 1)
				case "rwmutex":
					lease, err = client.RWMutex("x").Lock(context.Background())
				default:
					lease, err = client.Mutex("x").Lock(context.Background())
				}
				if err != nil {
					t.Error(kind, err)
				}
				granted <- lease
			}()
			l.WaitQueued(1)
			l.Expire()
			pass(3 * time.Second)
			l.AssertHeldBy(kind)
			pass(10 * time.Second)
			require.ErrorIs(t, held.Err(), fairlock.ErrLost, kind)
			require.NoError(t, (<-granted).Unlock(t.Context()))
			l.AssertFree()
		}
	})
}

func TestLock_HoldPermitsAsAndReadAs(t *testing.T) {
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

		doc := server.RWMutex("doc")
		first, second := doc.ReadAs("a"), doc.ReadAs("b")
		doc.AssertHeldBy("a", "b")
		_, err = client.RWMutex("doc").TryLock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		require.NoError(t, first.Unlock(t.Context()))
		doc.AssertHeldBy("b")
		require.NoError(t, second.Unlock(t.Context()))
		doc.CrashHolding("writer", time.Second)
		assert.True(t, doc.State().Holder.Writer)
		server.Mutex("doc").AssertFree() // another kind of the same name
		doc.WaitFree()
		server.AssertNothingLeft()
	})
}

func TestLock_In(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, _ *fairlocktest.Client) {
		shop := server.Client(fairlock.Config{Namespace: "shop"})
		lock(t, shop)
		server.Mutex("x").AssertFree()
		server.Mutex("x").In("shop").AssertHeldBy("client-2")
		server.Mutex("x").In("shop").CrashQueued("crashed", time.Second)
		server.Mutex("x").In("shop").AssertQueue("crashed")
	})
}

func TestClient_Crash(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		lease := lock(t, client)
		waiter := server.Client(fairlock.Config{})
		result := make(chan error, 1)
		go func() {
			_, err := waiter.Mutex("x").Lock(t.Context())
			result <- err
		}()
		x.WaitQueued(1)
		client.Crash()
		waiter.Crash()
		require.ErrorIs(t, lease.Err(), fairlock.ErrClosed)
		require.ErrorIs(t, <-result, fairlock.ErrClosed)
		x.AssertHeldBy("client-1")
		x.AssertQueue("client-2")
		time.Sleep(fairlock.DefaultTTL)
		require.NoError(t, lock(t, server.Client(fairlock.Config{})).Unlock(t.Context()))
		server.AssertNothingLeft()
	})
}

func TestServer_Link(t *testing.T) {
	clock := fairlocktest.NewClock(t)
	server := fairlocktest.NewServerWithClock(t, clock)
	link := server.Link()
	client, err := fairlock.New(link.Redis(), fairlock.Config{Name: "own", Clock: clock})
	require.NoError(t, err)
	lease, err := client.Mutex("x").Lock(t.Context())
	require.NoError(t, err)
	clock.Advance(time.Minute)
	server.Mutex("x").AssertHeldBy("own")
	link.Cut()
	clock.Advance(fairlock.DefaultTTL)
	require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
	require.NoError(t, client.Close())
}

func TestLock_WaitForSeesShortStates(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		var worker sync.WaitGroup
		worker.Go(func() {
			time.Sleep(time.Second)
			lease := lock(t, client)
			time.Sleep(time.Microsecond)
			if err := lease.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		})
		server.Mutex("x").WaitHeldBy("client-1")
		worker.Wait()
	})
}

// recorder is a testing.TB that records the last failure.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	message  string // guarded by mu
	fatal    bool   // guarded by mu
	cleanups []func()
}

func (r *recorder) record(fatal bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.message, r.fatal = fmt.Sprintf(format, args...), fatal
}

func (r *recorder) Helper()                           {}
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) { r.record(false, format, args...) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.record(true, format, args...)
	runtime.Goexit()
}

// runFailing runs a test that should fail, and returns its message and whether the failure was fatal.
func runFailing(test func(testing.TB)) (message string, fatal bool) {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		test(r)
	}()
	<-done
	return r.message, r.fatal
}

func TestLock_FailureMessages(t *testing.T) {
	held := func(s *fairlocktest.Server) fairlocktest.Lock {
		x := s.Mutex("billing")
		x.HoldAs("a")
		x.CrashQueued("b", time.Minute)
		x.CrashQueued("c", time.Minute)
		return x
	}
	const there = "mutex billing is held by a, and has in its queue: b, c"
	const free = "mutex billing is held by no client, and has no waiters"
	for name, c := range map[string]struct {
		test    func(s *fairlocktest.Server)
		message string
		fatal   bool
	}{
		"free":             {func(s *fairlocktest.Server) { held(s).AssertFree() }, "want the lock free; " + there, false},
		"held":             {func(s *fairlocktest.Server) { held(s).AssertHeldBy("b") }, "want the lock held by b; " + there, false},
		"held twice":       {func(s *fairlocktest.Server) { held(s).AssertHeldBy("a", "a") }, "want the lock held by a, a; " + there, false},
		"not held":         {func(s *fairlocktest.Server) { s.Mutex("billing").AssertHeldBy("a") }, "want the lock held by a; " + free, false},
		"queue":            {func(s *fairlocktest.Server) { held(s).AssertQueue("c", "b") }, "want c, b to wait, in that order; " + there, false},
		"hold":             {func(s *fairlocktest.Server) { held(s).HoldAs("z") }, "hold as z: fairlock: trylock billing: lock is busy (held by a); " + there, true},
		"crash holding":    {func(s *fairlocktest.Server) { held(s).CrashHolding("z", time.Second) }, "crash holding as z: the lock is not free; " + there, true},
		"take":             {func(s *fairlocktest.Server) { held(s).TakeAs("z") }, "take as z: the first waiter would be granted the lock; " + there, true},
		"crashed":          {func(s *fairlocktest.Server) { s.Mutex("billing").CrashQueued("z", time.Second) }, "the lock was free, and was granted", true},
		"bad name":         {func(s *fairlocktest.Server) { s.Mutex("billing").CrashQueued("z z", time.Second) }, "token", true},
		"left: mutex":      {func(s *fairlocktest.Server) { s.Mutex("m").HoldAs("a"); s.AssertNothingLeft() }, "left behind in fairlock:{m}:lock: a", false},
		"left: queue":      {func(s *fairlocktest.Server) { held(s); s.Mutex("billing").Expire(); s.AssertNothingLeft() }, "left behind in fairlock:{billing}:queue: b, c", false},
		"left: semaphore":  {func(s *fairlocktest.Server) { s.Semaphore("s", 2).HoldAs("a"); s.AssertNothingLeft() }, "left behind in fairlock:{s}:sem:permits: a", false},
		"left: rwmutex":    {func(s *fairlocktest.Server) { s.RWMutex("r").ReadAs("a"); s.AssertNothingLeft() }, "left behind in fairlock:{r}:rw:permits: a", false},
		"client's config":  {func(s *fairlocktest.Server) { s.Client(fairlock.Config{TTL: -1}) }, "TTL", true},
		"wait":             {func(s *fairlocktest.Server) { held(s).WaitFree() }, "waited 1m0s for the lock to be free; " + there, true},
		"wait for a queue": {func(s *fairlocktest.Server) { held(s).WaitQueued(3) }, "waited 1m0s for the lock to have 3 waiters; " + there, true},
		"reader":           {func(s *fairlocktest.Server) { s.Mutex("m").ReadAs("a") }, "read as a: a mutex has no readers", true},
		"permits":          {func(s *fairlocktest.Server) { s.RWMutex("m").HoldPermitsAs("a", 2) }, "a rwmutex has no permits", true},
		"no name":          {func(s *fairlocktest.Server) { s.Mutex("m").HoldAs("") }, "the name of the client is empty", true},
		"no waiter TTL":    {func(s *fairlocktest.Server) { held(s).CrashQueued("z", 0) }, "must be above 0", true},
		"no TTL":           {func(s *fairlocktest.Server) { s.Mutex("m").CrashHolding("z", 0) }, "must be above 0", true},
		"other capacity": {func(s *fairlocktest.Server) { s.Semaphore("s", 2).HoldAs("a"); s.Semaphore("s", 5).AssertHeldBy("a") },
			"s is in use with 2 permits, not 5", true},
		"rate":          {func(s *fairlocktest.Server) { s.LocalClock().SetRate(math.NaN()) }, "must be a number from 0", true},
		"clock back":    {func(s *fairlocktest.Server) { s.LocalClock().Step(-1) }, "a monotonic clock cannot be set back", true},
		"negative rate": {func(s *fairlocktest.Server) { s.LocalClock().SetRate(-1) }, "must be a number from 0", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				message, fatal := runFailing(func(tb testing.TB) {
					tb.Helper()
					c.test(fairlocktest.NewServer(tb))
				})
				assert.Contains(t, message, c.message)
				assert.Equal(t, c.fatal, fatal)
			})
		})
	}
}

func TestClock_NotIdleNamesGoroutines(t *testing.T) {
	fairlocktest.SetIdleTimeout(t, time.Second)
	stop := make(chan struct{})
	defer close(stop)
	message, fatal := runFailing(func(tb testing.TB) {
		tb.Helper()
		clock := fairlocktest.NewClock(tb)
		go spin(stop)
		clock.Advance(time.Second)
	})
	assert.True(t, fatal)
	assert.Contains(t, message, "not idle within 1s")
	assert.Contains(t, message, "spin")
	assert.NotContains(t, message, "testing.tRunner")
}

func spin(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			runtime.Gosched()
		}
	}
}
