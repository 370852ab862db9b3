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

func TestSomebodyElseHoldsAndWaits(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		x.AssertFree()
		held := x.HoldAs("somebody")
		x.AssertHeldBy("somebody")
		_, err := client.Mutex("x").TryLock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		time.Sleep(time.Hour)
		x.AssertHeldBy("somebody") // it renews

		x.QueueGhost("ghost", 5*time.Second)
		go func() { lock(t, client) }()
		x.WaitQueued(2)
		x.AssertQueue("ghost", "client-1")
		require.NoError(t, held.Unlock(t.Context()))
		x.AssertHeldBy("ghost")
		start := time.Now()
		x.WaitHeldBy("client-1")
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(50*time.Millisecond), "a ghost's place lasts as long as it said")
		x.AssertQueue()
	})
}

func TestADeadHolderKeepsTheLockForItsTTL(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		x.DieHolding("dead", 7*time.Second)
		start := time.Now()
		x.WaitFree()
		assert.Equal(t, 7*time.Second, time.Since(start).Round(10*time.Millisecond))
	})
}

// Redis tells what is left in whole milliseconds, and a queue outlasts those who are silent in it.
func TestWaitsEndWithWhatTheyWaitFor(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(x fairlocktest.Lock)
		wait  func(x fairlocktest.Lock)
		takes time.Duration
	}{
		"a lease": {
			func(x fairlocktest.Lock) { x.DieHolding("dead", 7*time.Second) },
			fairlocktest.Lock.WaitFree, 7 * time.Second,
		},
		"a place, whose queue ends": {
			func(x fairlocktest.Lock) {
				x.DieHolding("dead", 5*time.Minute)
				x.QueueGhost("ghost", 5*time.Second)
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

func TestAnExpiredOrStolenLeaseIsLostAtItsNextRenewal(t *testing.T) {
	for name, pull := range map[string]func(fairlocktest.Lock){
		"expired":        fairlocktest.Lock.Expire,
		"stolen":         func(l fairlocktest.Lock) { l.Steal("thief") },
		"force-released": fairlocktest.Lock.ForceRelease,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
				x := server.Mutex("x")
				lease := lock(t, client)
				pull(x)
				require.NoError(t, lease.Err())
				if name == "stolen" {
					x.AssertHeldBy("thief")
				} else {
					x.AssertFree()
				}
				<-lease.Done()
				require.ErrorIs(t, lease.Err(), fairlock.ErrTaken)
			})
		})
	}
}

func TestTheNextOneGetsInAfterAnExpiry(t *testing.T) {
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

func TestSharesAreHeldAndReadAsSomebodyElse(t *testing.T) {
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
		doc.DieHolding("writer", time.Second)
		assert.True(t, doc.State().Holder.Writer)
		server.Mutex("doc").AssertFree() // another kind of the same name
		doc.WaitFree()
		server.AssertNothingLeft()
	})
}

func TestNamespacesAreOthers(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, _ *fairlocktest.Client) {
		shop := server.Client(fairlock.Config{Namespace: "shop"})
		lock(t, shop)
		server.Mutex("x").AssertFree()
		server.Mutex("x").In("shop").AssertHeldBy("client-2")
		server.Mutex("x").In("shop").QueueGhost("ghost", time.Second)
		server.Mutex("x").In("shop").AssertQueue("ghost")
	})
}

func TestACrashSaysNoGoodbye(t *testing.T) {
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

func TestCodeThatMakesItsOwnClient(t *testing.T) {
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

func TestWaitForSeesWhatLastsAMomentOnly(t *testing.T) {
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

// judged is what a test says to its testing.TB.
type judged struct {
	testing.TB

	mu    sync.Mutex
	said  string // guarded by mu
	fatal bool   // guarded by mu
	later []func()
}

func (j *judged) say(fatal bool, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.said, j.fatal = fmt.Sprintf(format, args...), fatal
}

func (j *judged) Helper()                           {}
func (j *judged) Cleanup(f func())                  { j.later = append(j.later, f) }
func (j *judged) Errorf(format string, args ...any) { j.say(false, format, args...) }
func (j *judged) Fatalf(format string, args ...any) {
	j.say(true, format, args...)
	runtime.Goexit()
}

// judge runs a test that should fail, and returns what it says and whether it goes on.
func judge(test func(testing.TB)) (said string, fatal bool) {
	j := &judged{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(j.later) {
				f()
			}
		}()
		test(j)
	}()
	<-done
	return j.said, j.fatal
}

func TestFailuresSayWhatThereIs(t *testing.T) {
	held := func(s *fairlocktest.Server) fairlocktest.Lock {
		x := s.Mutex("billing")
		x.HoldAs("a")
		x.QueueGhost("b", time.Minute)
		x.QueueGhost("c", time.Minute)
		return x
	}
	const there = "mutex billing is held by a, and in the queue: b, c"
	const free = "mutex billing is held by nobody, and nobody waits"
	for name, c := range map[string]struct {
		test  func(s *fairlocktest.Server)
		said  string
		fatal bool
	}{
		"free":             {func(s *fairlocktest.Server) { held(s).AssertFree() }, "want the lock free; " + there, false},
		"held":             {func(s *fairlocktest.Server) { held(s).AssertHeldBy("b") }, "want the lock held by b; " + there, false},
		"held twice":       {func(s *fairlocktest.Server) { held(s).AssertHeldBy("a", "a") }, "want the lock held by a, a; " + there, false},
		"held by nobody":   {func(s *fairlocktest.Server) { s.Mutex("billing").AssertHeldBy("a") }, "want the lock held by a; " + free, false},
		"queue":            {func(s *fairlocktest.Server) { held(s).AssertQueue("c", "b") }, "want c, b to wait, in that order; " + there, false},
		"hold":             {func(s *fairlocktest.Server) { held(s).HoldAs("z") }, "hold as z: fairlock: trylock billing: lock is busy; " + there, true},
		"die":              {func(s *fairlocktest.Server) { held(s).DieHolding("z", time.Second) }, "die holding as z: the lock is not free; " + there, true},
		"steal":            {func(s *fairlocktest.Server) { held(s).Steal("z") }, "steal as z: others wait, who would get the lock; " + there, true},
		"ghost":            {func(s *fairlocktest.Server) { s.Mutex("billing").QueueGhost("z", time.Second) }, "the lock was free, and it has it now", true},
		"bad name":         {func(s *fairlocktest.Server) { s.Mutex("billing").QueueGhost("z z", time.Second) }, "token", true},
		"left: mutex":      {func(s *fairlocktest.Server) { s.Mutex("m").HoldAs("a"); s.AssertNothingLeft() }, "left behind in fairlock:{m}:lock: a", false},
		"left: queue":      {func(s *fairlocktest.Server) { held(s); s.Mutex("billing").Expire(); s.AssertNothingLeft() }, "left behind in fairlock:{billing}:queue: b, c", false},
		"left: semaphore":  {func(s *fairlocktest.Server) { s.Semaphore("s", 2).HoldAs("a"); s.AssertNothingLeft() }, "left behind in fairlock:{s}:sem:permits: a", false},
		"left: rwmutex":    {func(s *fairlocktest.Server) { s.RWMutex("r").ReadAs("a"); s.AssertNothingLeft() }, "left behind in fairlock:{r}:rw:permits: a", false},
		"client's config":  {func(s *fairlocktest.Server) { s.Client(fairlock.Config{TTL: -1}) }, "TTL", true},
		"wait":             {func(s *fairlocktest.Server) { held(s).WaitFree() }, "waited 1m0s for the lock to be free; " + there, true},
		"wait for a queue": {func(s *fairlocktest.Server) { held(s).WaitQueued(3) }, "waited 1m0s for the lock to have 3 waiting; " + there, true},
		"reader":           {func(s *fairlocktest.Server) { s.Mutex("m").ReadAs("a") }, "read as a: nobody reads under a mutex", true},
		"permits":          {func(s *fairlocktest.Server) { s.RWMutex("m").HoldPermitsAs("a", 2) }, "a rwmutex has none", true},
		"nobody":           {func(s *fairlocktest.Server) { s.Mutex("m").HoldAs("") }, "The name is empty", true},
		"no patience":      {func(s *fairlocktest.Server) { held(s).QueueGhost("z", 0) }, "must be above 0", true},
		"no TTL":           {func(s *fairlocktest.Server) { s.Mutex("m").DieHolding("z", 0) }, "must be above 0", true},
		"other capacity": {func(s *fairlocktest.Server) { s.Semaphore("s", 2).HoldAs("a"); s.Semaphore("s", 5).AssertHeldBy("a") },
			"s is in use with 2 permits, not 5", true},
		"rate":          {func(s *fairlocktest.Server) { s.LocalClock().SetRate(math.NaN()) }, "a number that is not negative", true},
		"clock back":    {func(s *fairlocktest.Server) { s.LocalClock().Step(-1) }, "a monotonic clock is not set back", true},
		"negative rate": {func(s *fairlocktest.Server) { s.LocalClock().SetRate(-1) }, "a number that is not negative", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said, fatal := judge(func(tb testing.TB) {
					tb.Helper()
					c.test(fairlocktest.NewServer(tb))
				})
				assert.Contains(t, said, c.said)
				assert.Equal(t, c.fatal, fatal)
			})
		})
	}
}

func TestAClockThatFindsNoRestSaysWhoIsBusy(t *testing.T) {
	fairlocktest.SetRestless(t, time.Second)
	stop := make(chan struct{})
	defer close(stop)
	said, fatal := judge(func(tb testing.TB) {
		tb.Helper()
		clock := fairlocktest.NewClock(tb)
		go restlessly(stop)
		clock.Advance(time.Second)
	})
	assert.True(t, fatal)
	assert.Contains(t, said, "no rest within 1s")
	assert.Contains(t, said, "restlessly")
	assert.NotContains(t, said, "testing.tRunner")
}

func restlessly(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			runtime.Gosched()
		}
	}
}
