package admin_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
)

// bubble runs a test in simulated time, on a server in memory.
func bubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, fairlocktest.NewServer(t)) })
}

func named(kind fairlock.Kind, name string) fairlock.ID { return fairlock.ID{Kind: kind, Name: name} }

// Inspect reads a lock of each kind in its namespace, and lists no more than it is told, also if the waiters have to be
// read once more.
func TestClient_Inspect(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		rdb := s.Link().Redis()
		for kind, l := range map[fairlock.Kind]fairlocktest.Lock{
			fairlock.KindMutex: s.Mutex("x"), fairlock.KindSemaphore: s.Semaphore("x", 1), fairlock.KindRWMutex: s.RWMutex("x"),
			fairlock.KindKeyedSemaphore: s.KeyedSemaphore("x", 1).Key("k"),
		} {
			l = l.In("own")
			l.HoldAs("holder-" + string(kind))
			l.CrashQueued("waiter", time.Minute)
			l.CrashQueued("waiter", time.Minute)
			have, err := admin.New(rdb, "own").Inspect(t.Context(), named(kind, "x"), 2, 1)
			require.NoError(t, err)
			assert.Equal(t, "holder-"+string(kind), have.Holders[0].Client)
			assert.Equal(t, []any{named(kind, "x"), 2, 1}, []any{have.ID, have.Waiting, len(have.Waiters)})
		}
		have, err := admin.New(rdb, "").Inspect(t.Context(), named(fairlock.KindMutex, "x"), 0, 0)
		require.NoError(t, err)
		assert.Zero(t, have.Used, "the default namespace is another one")

		for i := range 3 {
			s.Semaphore("y", 3).HoldAs(fmt.Sprint("holder-", i))
		}
		for range 3 {
			s.Semaphore("y", 3).CrashQueued("waiter", time.Minute)
		}
		for _, limits := range [][2]int{{2, 1}, {1, 2}, {0, 3}, {3, 0}} {
			have, err := admin.New(rdb, "").Inspect(t.Context(), named(fairlock.KindSemaphore, "y"), limits[0], limits[1])
			require.NoError(t, err)
			assert.Len(t, have.Holders, limits[0])
			assert.Len(t, have.Waiters, limits[1])
			assert.Equal(t, []int{3, 3}, []int{have.Used, have.Waiting})
		}
	})
}

// only returns the error of a call.
func only(_ any, err error) error { return err }

// Every method refuses bad input with an error that names the field. Nothing is sent: there is no server.
//
//fairlock:fault Bad input
func TestClient_BadInputSendsNothing(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = rdb.Close() }()
	mutex, sem := named(fairlock.KindMutex, "x"), named(fairlock.KindSemaphore, "x")
	type call = func(c *admin.Client, id fairlock.ID) error
	inspect := func(holders, waiters int) call {
		return func(c *admin.Client, id fairlock.ID) error { return only(c.Inspect(t.Context(), id, holders, waiters)) }
	}
	resize := func(n int) call {
		return func(c *admin.Client, id fairlock.ID) error { return c.Resize(t.Context(), id, n) }
	}
	reset := func(c *admin.Client, id fairlock.ID) error { return c.ResetSize(t.Context(), id) }
	release := func(c *admin.Client, id fairlock.ID) error { return only(c.ReleaseHolder(t.Context(), id, 1)) }
	force := func(c *admin.Client, id fairlock.ID) error { return only(c.ForceRelease(t.Context(), id)) }
	check := func(field string, c *admin.Client, id fairlock.ID, calls ...call) {
		t.Helper()
		for _, call := range calls {
			err := call(c, id)
			var e *fairlock.FieldError
			require.ErrorAs(t, err, &e, field)
			require.ErrorIs(t, err, fairlock.ErrInvalid)
			assert.Equal(t, field, e.Field)
			var wrapped *fairlock.Error
			require.ErrorAs(t, err, &wrapped)
			assert.Equal(t, id.Name, wrapped.Name)
		}
	}
	all := []call{inspect(1, 1), resize(1), reset, release, force}
	c := admin.New(rdb, "")
	check("Namespace", admin.New(rdb, "{"), sem, all...)
	check("rdb", admin.New(nil, ""), sem, all...)
	check("rdb", admin.New((*redis.Client)(nil), ""), sem, all...)
	check("rdb", admin.New(redis.NewRing(&redis.RingOptions{}), ""), sem, all...)
	check("name", c, named(fairlock.KindSemaphore, ""), all...)
	check("name", c, named(fairlock.KindSemaphore, strings.Repeat("x", bounds.MaxName+1)), all...)
	check("Kind", c, named("rw", "x"), all...)
	check("Kind", c, mutex, resize(1), reset)
	check("Kind", c, named(fairlock.KindRWMutex, "x"), resize(1), reset)
	check("holders", c, mutex, inspect(-1, 1), inspect(1001, 1))
	check("waiters", c, mutex, inspect(1, -1), inspect(1, 1001))
	for _, n := range []int{0, -1, math.MinInt, bounds.MaxPermits + 1, math.MaxInt} {
		check("permits", c, sem, resize(n))
	}
	for _, err := range admin.New(rdb, "{").List(t.Context(), "") {
		require.ErrorIs(t, err, fairlock.ErrInvalid)
	}
}

// ReleaseHolder takes the permits of one holder and hands them to the first waiter. Another fence is nobody's.
//
//fairlock:promise Force-release
func TestClient_ReleaseHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		sem, operator, id := s.Semaphore("x", 2), admin.New(s.Link().Redis(), ""), named(fairlock.KindSemaphore, "x")
		first, second := sem.HoldAs("web-1"), sem.HoldAs("web-2")
		sem.CrashQueued("web-3", time.Minute)
		released, err := operator.ReleaseHolder(t.Context(), id, second.Fence())
		require.NoError(t, err)
		assert.True(t, released)
		sem.AssertHeldBy("web-1", "web-3")
		require.NoError(t, first.Renew(t.Context()))
		require.ErrorIs(t, second.Renew(t.Context()), fairlock.ErrRevoked)
		released, err = operator.ReleaseHolder(t.Context(), id, second.Fence())
		require.NoError(t, err)
		assert.False(t, released)
	})
}

// List finds the locks whose names begin with a prefix. An error about one lock does not hide the others.
func TestClient_List(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		s.Mutex("a1").HoldAs("web-1")
		s.Semaphore("a2", 2).HoldAs("web-1")
		s.RWMutex("a3").ReadAs("web-1")
		s.KeyedSemaphore("b", 2).Key("k").HoldAs("web-1")
		s.Mutex("other").In("elsewhere").HoldAs("web-1")
		require.NoError(t, s.Miniredis.Set("fairlock:{a4}:queue", "of another program"))
		require.NoError(t, admin.New(s.Link().Redis(), "").Resize(t.Context(), named(fairlock.KindSemaphore, "a5"), 3))
		list := func(prefix string) (found, failed []string) {
			for state, err := range admin.New(s.Link().Redis(), "").List(t.Context(), prefix) {
				if err != nil {
					failed = append(failed, state.ID.Name)
				} else {
					found = append(found, string(state.ID.Kind)+" "+state.ID.Name)
				}
			}
			return found, failed
		}
		found, failed := list("a")
		assert.ElementsMatch(t, []string{"mutex a1", "semaphore a2", "rwmutex a3", "semaphore a5"}, found)
		assert.Equal(t, []string{"a4"}, failed)
		found, failed = list("b")
		assert.Equal(t, []string{"keyed b"}, found)
		assert.Empty(t, failed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range admin.New(s.Link().Redis(), "").List(ctx, "b") {
			require.ErrorIs(t, err, context.Canceled)
			require.EqualError(t, err, `fairlock: list "b": context canceled`)
		}
	})
}

// Redis does not serve an operator: each call that changes a lock tries for 3 s. It does not wait for a request that
// hangs.
//
//fairlock:fault Redis does not serve a call of package admin that changes a lock: it tries for 3 s
func TestClient_TriesGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		for _, fault := range []func(*fairlocktest.Link){(*fairlocktest.Link).Cut, (*fairlocktest.Link).Hang} {
			link := s.Link()
			operator, sem := admin.New(link.Redis(), ""), named(fairlock.KindSemaphore, "x")
			fault(link)
			for _, call := range []func() error{
				func() error { return only(operator.ForceRelease(t.Context(), sem)) },
				func() error { return only(operator.ReleaseHolder(t.Context(), sem, 1)) },
				func() error { return operator.Resize(t.Context(), sem, 3) },
				func() error { return operator.ResetSize(t.Context(), sem) },
			} {
				start := time.Now()
				err := call()
				require.ErrorIs(t, err, fairlock.ErrUnreachable)
				require.ErrorContains(t, err, ": redis is unreachable: tried for 3s: ")
				assert.InDelta(t, 3*time.Second, time.Since(start), float64(25*time.Millisecond))
			}
			link.Mend()
		}
	})
}
