package fairlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/machine"
	"github.com/fairlock/fairlock-go/token"
)

// later is how long after an expiry in Redis a waiter asks: Redis rounds to milliseconds.
const later = time.Millisecond

// kind is a lock of some kind, as a client and as the test see it.
type kind struct {
	one, all acquire // one permit of a lock, and all of them
	lock     fairlocktest.Lock
	several  bool // can hold it
}

// locksOfThree are the locks named x; the semaphore has three permits.
func locksOfThree(s *fairlocktest.Server, c *fairlocktest.Client) map[string]kind {
	sem, rw := c.Semaphore("x", 3), c.RWMutex("x")
	return map[string]kind{
		"mutex":     {c.Mutex("x").Lock, c.Mutex("x").Lock, s.Mutex("x"), false},
		"semaphore": {permits(sem, 1), permits(sem, 3), s.Semaphore("x", 3), true},
		"rwmutex":   {rw.RLock, rw.Lock, s.RWMutex("x"), true},
	}
}

// bubbleForKinds runs a test for some kinds of locks. of is the lock of a client.
func bubbleForKinds(
	t *testing.T, kinds []string, test func(t *testing.T, s *fairlocktest.Server, of func(*fairlocktest.Client) kind),
) {
	t.Helper()
	for _, name := range kinds {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				test(t, s, func(c *fairlocktest.Client) kind { return locksOfThree(s, c)[name] })
			})
		})
	}
}

// shared are the kinds of locks that can have several holders.
var shared = []string{"semaphore", "rwmutex"}

// The waiter behind a holder that has crashed has the lock as soon as the holder's TTL has ended, by one acquire.
//
//fairlock:fault A holder crashes: the next one is in when the rest of its TTL has passed, and not before
func TestCrash_HolderCostsTheRestOfItsTTL(t *testing.T) {
	bubbles(t, map[string]time.Duration{
		"no heartbeat meets the end":       time.Second / 2,
		"the end comes before a heartbeat": ttl - 100*time.Millisecond,
	}, func(t *testing.T, s *fairlocktest.Server, _ string, before time.Duration) {
		crashing, client := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		sent := record(client)
		listen(t, client)
		lease := hold(t, crashing.Mutex("x").Lock)
		end := time.Now().Add(ttl)
		crashing.Crash()
		require.ErrorIs(t, lease.Err(), fairlock.ErrClosed)
		pass(before)
		next := begin(t.Context(), client.Mutex("x").Lock)
		sent.reset()
		assert.Greater(t, next.granted(t).Fence(), lease.Fence())
		assert.Equal(t, end.Add(later), next.at)
		assert.Len(t, sent.times("acquire", end), 1)
	})
}

// A row of waiters that have crashed costs one WaiterTTL in all, also if the first of them has just been granted the
// lock.
//
//fairlock:fault Waiters crash, a hundred in a row: one WaiterTTL in all, and at most one interval between heartbeats
func TestCrash_RowOfWaitersCostsOneWaiterTTL(t *testing.T) {
	const waiterTTL = 3500 * time.Millisecond // half an interval after a heartbeat
	bubbles(t, map[string]time.Duration{
		"expired at the release": waiterTTL, "granted at the release": time.Second,
	}, func(t *testing.T, s *fairlocktest.Server, _ string, release time.Duration) {
		client := s.Client(fairlock.Config{})
		listen(t, client)
		x, start := s.Mutex("x"), time.Now()
		held := x.HoldAs("holder")
		for range 100 {
			x.CrashQueued("crashed", waiterTTL)
		}
		survivor := begin(t.Context(), client.Mutex("x").Lock)
		pass(release)
		unlock(t, held)
		survivor.granted(t)
		want := waiterTTL
		if release < waiterTTL {
			want += interval / 2 // until the next heartbeat: the survivor is not told when they expire
		}
		assert.Equal(t, want, survivor.at.Sub(start))
	})
}

// Many holders have crashed, and nobody waits: TryLock gets in at once after their leases, or after ForceRelease,
// though one call of the script takes back some of the leases only.
//
//fairlock:fault Many holders crash: TryLock gets in at once after their leases, however many they were
func TestCrash_ManyHolders(t *testing.T) {
	bubbles(t, map[string]bool{"crashed": false, "force-released": true},
		func(t *testing.T, s *fairlocktest.Server, _ string, force bool) {
			client := s.Client(fairlock.Config{})
			first, keys := hold(t, client.RWMutex("x").RLock), script.KeysOf("rwmutex", bounds.DefaultNamespace, "x")
			for range 1000 { // as the script records them
				reader, err := token.Parse(tokens.New("crashed", tokens.Terms{TTL: ttl, Weight: 1, Permits: tokens.WriterWeight}))
				require.NoError(t, err)
				_, err = s.Miniredis.ZAdd(keys.Part("permits"), float64(s.Now().Add(ttl).UnixMicro()), reader.Text())
				require.NoError(t, err)
				s.Miniredis.HSet(keys.Part("holders"), reader.Text(), fmt.Sprint(first.Fence()))
			}
			_, err := s.Miniredis.HIncr(keys.Part("holders"), "used", 1000)
			require.NoError(t, err)
			client.Crash()
			assert.Equal(t, 1001, s.RWMutex("x").State().Used)
			if force {
				_, err = operator(s).ForceRelease(t.Context(), idX(fairlock.KindRWMutex))
				require.NoError(t, err)
			} else {
				pass(ttl)
				require.True(t, s.Miniredis.Exists(keys.Part("permits")))
			}
			unlock(t, hold(t, s.Client(fairlock.Config{}).RWMutex("x").TryLock))
		})
}

// More readers than one call of a script admits are in as soon as the TTL of the writer has ended that has crashed.
//
//fairlock:promise Readers and writers
//fairlock:fault A holder crashes
func TestCrash_ManyReadersBehindAWriter(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		clients := []*fairlocktest.Client{s.Client(fairlock.Config{}), s.Client(fairlock.Config{})}
		for _, c := range clients {
			listen(t, c)
		}
		start := time.Now()
		s.RWMutex("x").CrashHolding("crashed", 3500*time.Millisecond) // no heartbeat meets the end
		var readers []*acquisition
		for i := range 150 {
			readers = append(readers, begin(t.Context(), clients[i%2].RWMutex("x").RLock))
		}
		for _, q := range readers {
			q.granted(t)
			assert.Equal(t, 3500*time.Millisecond+later, q.at.Sub(start))
		}
	})
}

// One of several holders is cut off: it is told of its loss before its permits come back in Redis, and the others go
// on.
//
//fairlock:promise Every holder has its own lease
func TestCrash_OneHolderIsCutOff(t *testing.T) {
	bubbleForKinds(t, shared, func(t *testing.T, s *fairlocktest.Server, of func(*fairlocktest.Client) kind) {
		cut, client := s.Client(fairlock.Config{Name: "cut"}), s.Client(fairlock.Config{Name: "client"})
		l := of(client)
		first, lost, second := hold(t, l.one), hold(t, of(cut).one), hold(t, l.one)
		all := begin(t.Context(), l.all)
		cut.Link.Cut()
		deadline := lost.Deadline()
		<-lost.Done()
		assert.Equal(t, deadline, time.Now())
		require.ErrorIs(t, lost.Err(), fairlock.ErrUnreachable)
		l.lock.AssertHeldBy("client", "cut", "client")
		pass(safetyMargin(ttl))
		l.lock.AssertHeldBy("client", "client")
		assert.True(t, all.pending())
		unlock(t, first)
		unlock(t, second)
		all.granted(t)
	})
}

// Waiters that want more than is free and have crashed are passed at the first heartbeat after their WaiterTTL has
// ended, though nothing is released: those behind them that fit get in.
//
//fairlock:fault The head of the queue has expired and wants more than is free: one WaiterTTL, then those behind it that fit get in, though nothing is released
func TestCrash_HeadThatWantsMoreThanIsFree(t *testing.T) {
	bubbleForKinds(t, shared, func(t *testing.T, s *fairlocktest.Server, of func(*fairlocktest.Client) kind) {
		const waiterTTL = 3500 * time.Millisecond // the next heartbeat comes half a second later
		crashing := clientWith(t, s, fairlock.Config{WaiterTTL: waiterTTL}, sendOnce)
		l, other := of(s.Client(fairlock.Config{})), of(s.Client(fairlock.Config{}))
		hold(t, l.one)
		start := time.Now()
		begin(t.Context(), of(crashing).all)
		begin(t.Context(), of(crashing).all)
		crashing.Crash()
		ones := []*acquisition{begin(t.Context(), l.one), begin(t.Context(), other.one)}
		all := begin(t.Context(), other.all)
		for _, q := range ones {
			q.granted(t)
			assert.Equal(t, waiterTTL+interval/2, q.at.Sub(start))
		}
		synctest.Wait()
		assert.True(t, all.pending())
	})
}

// suspendWaiter has a waiter granted the lock while its machine is suspended. wake ends that.
func suspendWaiter(t *testing.T, s *fairlocktest.Server) (q *acquisition, other *fairlocktest.Client,
	wake func() time.Time) {
	t.Helper()
	c := machine.Clock{LocalClock: s.LocalClock()}
	asleep, other := s.Client(fairlock.Config{Clock: c}), s.Client(fairlock.Config{})
	listen(t, asleep)
	first := hold(t, other.Mutex("x").Lock)
	q = begin(t.Context(), asleep.Mutex("x").Lock)
	asleep.Link.Hang()
	c.SetRate(0)
	unlock(t, first)
	return q, other, func() time.Time {
		asleep.Link.Mend()
		c.SetRate(1)
		return c.Now()
	}
}

// The machine of a waiter sleeps for less than what the lease has left when it is notified: the lease is trusted for
// less.
func TestWaiter_SuspendedMachineTrustsNotificationForLess(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		q, _, wake := suspendWaiter(t, s)
		ends := time.Now().Add(bounds.DefaultWaiterTTL)
		pass(bounds.DefaultWaiterTTL / 2)
		now := wake()
		left := q.granted(t).Deadline().Sub(now)
		assert.Less(t, left, time.Until(ends), "it is trusted for longer than Redis lets it last")
	})
}

// The machine of a waiter sleeps while it is notified: the old notification is not trusted.
func TestWaiter_SuspendedMachineTrustsNoOldNotification(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		q, other, wake := suspendWaiter(t, s)
		pass(time.Minute)
		second := hold(t, other.Mutex("x").Lock)
		wake()
		pass(10 * time.Millisecond)
		require.NoError(t, second.Err())
		assert.True(t, q.pending(), "two hold the lock")
	})
}
