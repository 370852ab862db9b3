package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A loss of the lock stands in the error of Do once, and the operation is do.
//
//fairlock:promise Do
func TestDo_ReportsALossOnce(t *testing.T) {
	const lost = "fairlock: do x: lock is lost: no longer the owner"
	ended := func(ctx context.Context) { <-ctx.Done() }
	for name, c := range map[string]struct {
		f    func(ctx context.Context) error
		want string
	}{
		"f returns nil":            {func(ctx context.Context) error { ended(ctx); return nil }, lost},
		"f returns the cause":      {func(ctx context.Context) error { ended(ctx); return context.Cause(ctx) }, lost},
		"f returns its own error":  {func(ctx context.Context) error { ended(ctx); return errors.New("mine") }, "mine\n" + lost},
		"f returns ctx's error":    {func(ctx context.Context) error { ended(ctx); return ctx.Err() }, "context canceled\n" + lost},
		"f does not wait, no loss": {func(context.Context) error { return errors.New("mine") }, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				m := s.Client(fairlock.Config{}).Mutex("x")
				err := m.Do(t.Context(), func(ctx context.Context) error {
					time.AfterFunc(time.Second, func() { _, _ = m.ForceRelease(context.WithoutCancel(ctx)) })
					return c.f(ctx)
				})
				require.EqualError(t, err, c.want)
				pass(2 * time.Second)
			})
		})
	}
	t.Run("the lock is not granted", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *fairlocktest.Server) {
			client := s.Client(fairlock.Config{})
			client.Link.Cut()
			var failed *fairlock.Error
			require.ErrorAs(t, client.RWMutex("x").RDo(t.Context(), nil), &failed)
			assert.Equal(t, "rdo", failed.Op)
		})
	})
}

// If the reply to a force-release is lost, it is sent again. By then the next waiter has the lock, and keeps it.
//
//fairlock:promise Force-release
func TestForceRelease_LostReplyTakesFromOneHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, operator := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		operator.Redis.AddHook(&recorder{before: func(n int, _ redis.Cmder) error {
			if n == 1 { // it has looked at the holder, and takes the lock from it now
				operator.Link.DropReply()
			}
			return nil
		}})
		first := hold(t, client.Mutex("x").Lock)
		next := begin(t.Context(), client.Mutex("x").Lock)
		behind := begin(t.Context(), client.Mutex("x").Lock)
		released, err := operator.Mutex("x").ForceRelease(t.Context())
		require.NoError(t, err)
		assert.True(t, released)
		lease := next.granted(t)
		require.NoError(t, lease.Renew(t.Context()))
		require.ErrorIs(t, first.Renew(t.Context()), fairlock.ErrTaken)
		assert.True(t, behind.pending())
		unlock(t, lease)
		unlock(t, behind.granted(t))
	})
}

// Whichever reply is lost, each request takes effect once: no loss is reported that is none, no lock is held by nobody,
// and the fence makes one step for each grant.
//
//fairlock:fault The reply to a script is lost: it takes effect once: no false loss, no lock that nobody holds, one step of the fence
func TestLock_LostReplyChangesNothing(t *testing.T) {
	const n = 3 // permits
	for resent, options := range map[string]func(*redis.Options){"by go-redis": func(*redis.Options) {}, "by the library": sendOnce} {
		for name, kind := range map[string]struct {
			acquire func(c *fairlocktest.Client) acquire // all there is
			lock    func(s *fairlocktest.Server) fairlocktest.Lock
		}{
			"mutex":     {func(c *fairlocktest.Client) acquire { return c.Mutex("x").Lock }, func(s *fairlocktest.Server) fairlocktest.Lock { return s.Mutex("x") }},
			"semaphore": {func(c *fairlocktest.Client) acquire { return permits(c.Semaphore("x", n), n) }, func(s *fairlocktest.Server) fairlocktest.Lock { return s.Semaphore("x", n) }},
			"rwmutex":   {func(c *fairlocktest.Client) acquire { return c.RWMutex("x").Lock }, func(s *fairlocktest.Server) fairlocktest.Lock { return s.RWMutex("x") }},
		} {
			t.Run(fmt.Sprint(name, ", sent again ", resent), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *fairlocktest.Server) {
					var j journal
					client := clientWith(t, s, fairlock.Config{Name: "client", Trace: j.trace()}, options)
					listen(t, client)
					l, acquire := kind.lock(s), kind.acquire(client)
					drop := client.Link.DropReply

					held := l.HoldAs("holder")
					if resent == "by go-redis" { // an error of a first request is its caller's
						drop() // of "queued"
					}
					q := begin(t.Context(), acquire)
					l.AssertQueue("client")
					drop() // of a heartbeat
					pass(2 * time.Second)
					l.AssertQueue("client")
					unlock(t, held)
					lease := q.granted(t)
					assert.Equal(t, lease.Fence(), l.State().Fence)
					drop() // of a renewal
					pass(ttl)
					require.NoError(t, lease.Err())
					drop() // of a release
					unlock(t, lease)
					l.AssertFree()

					held = l.HoldAs("holder")
					ctx, cancel := context.WithCancel(t.Context())
					q = begin(ctx, acquire)
					drop() // of a leave
					cancel()
					<-q.done
					require.ErrorIs(t, q.err, context.Canceled)
					pass(time.Second)
					l.AssertQueue()
					unlock(t, held)
					if resent == "by go-redis" {
						drop() // of "granted"
						lease = hold(t, acquire)
						assert.Equal(t, lease.Fence(), l.State().Fence)
						unlock(t, lease)
					}
					assert.Empty(t, j.of("lost"))
					l.AssertFree()
					s.AssertNothingLeft()
				})
			})
		}
	}
}

// A key of ours that has another type is named, and stays as it is.
//
//fairlock:fault A key belongs to another application: an error that names it; it is untouched
func TestLock_ForeignKey(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		for key, acquire := range map[string]acquire{
			"fairlock:{x}:queue":       client.Mutex("x").Lock,
			"fairlock:{x}:sem:holders": permits(client.Semaphore("x", 3), 1),
			"fairlock:{x}:rw:permits":  client.RWMutex("x").RLock,
		} {
			require.NoError(t, s.Miniredis.Set(key, "theirs"))
			_, err := acquire(t.Context())
			require.ErrorContains(t, err, strconv.Quote(key))
			require.ErrorContains(t, err, "WRONGTYPE")
			s.Miniredis.CheckGet(t, key, "theirs")
			s.Miniredis.Del(key)
			unlock(t, hold(t, acquire))
		}
	})
}

// Tickets of one microsecond differ, so a ticket can be later than the clock. The waiter's age is 0 then.
func TestInspect_AgeIsNotNegative(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		s.Mutex("x").HoldAs("holder")
		for range 3 {
			s.Mutex("x").CrashQueued("waiter", ttl)
		}
		for _, w := range s.Mutex("x").State().Waiters {
			assert.Zero(t, w.Age)
		}
		pass(time.Second)
		assert.Equal(t, time.Second, s.Mutex("x").State().Waiters[0].Age.Round(time.Millisecond))
	})
}
