package fairlock_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// What Redis refuses for a while is sent again until it is accepted, and the next waiter has the lock then.
//
//fairlock:fault Redis refuses writes for a while when a lock is released (READONLY, LOADING, NOREPLICAS, …): Unlock retries with back-off, and the next waiter has the lock as soon as Redis accepts it
func TestUnlock_RetriesWhatRedisRefusesForAWhile(t *testing.T) {
	for _, refusal := range []string{
		readOnly,
		"LOADING Redis is loading the dataset in memory",
		"NOREPLICAS Not enough good replicas to write.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"ERR Error running script (call to f_0): @user_script:12: @user_script: 12: -READONLY You can't write against a read only replica.",
	} {
		t.Run(refusal[:12], func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				client := s.Client(fairlock.Config{})
				sent := record(client)
				lease := hold(t, client.Mutex("x").Lock)
				next := begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
				sent.reset()
				accepts := time.Now().Add(150 * time.Millisecond)
				s.Miniredis.SetError(refusal)
				time.AfterFunc(time.Until(accepts), func() { s.Miniredis.SetError("") })
				unlock(t, lease)
				next.granted(t)
				all := sent.requests()
				assert.Equal(t, all[len(all)-1].at, next.at)
				for i, r := range all {
					assert.Equal(t, i < len(all)-1, r.at.Before(accepts))
					if i > 0 { // 20 ms, doubled each time, less up to a half
						longest := 10 * time.Millisecond << i
						assert.LessOrEqual(t, r.at.Sub(all[i-1].at), longest)
						assert.Greater(t, r.at.Sub(all[i-1].at), longest/2)
					}
				}
			})
		})
	}
}

// What no retry cures is returned at once, and Unlock can be called again.
//
//fairlock:fault Redis refuses writes for a while when a lock is released (READONLY, LOADING, NOREPLICAS, …)
func TestUnlock_ReturnsAVerdictAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		lease, start := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock), time.Now()
		s.Miniredis.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
		err := lease.Unlock(t.Context())
		require.ErrorContains(t, err, "NOPERM")
		require.NotErrorIs(t, err, fairlock.ErrLost)
		assert.Equal(t, start, time.Now())
		s.Miniredis.SetError("")
		unlock(t, lease)
		s.AssertNothingLeft()
	})
}

// Unlock ends when the lease would have ended, and names the reason.
//
//fairlock:fault Unlock cannot reach Redis: it tries until the lease would have ended, then returns an error that is not ErrLost; an error that no retry cures is returned at once, and Unlock may be called again
func TestUnlock_EndsWithTheLease(t *testing.T) {
	type example struct {
		fail   func(*testing.T, *fairlocktest.Server, *fairlocktest.Client)
		reason string
	}
	bubbles(t, map[string]example{
		"refused": {func(_ *testing.T, s *fairlocktest.Server, _ *fairlocktest.Client) {
			s.Miniredis.SetError("READONLY for ever")
		}, "READONLY"},
		"unreachable": {func(_ *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) { c.Link.Hang() }, "redis is unreachable"},
		"cut":         {func(_ *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) { c.Link.Cut() }, "connection refused"},
		"no connection is left": {func(t *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) {
			conn := c.Redis.Conn() // takes the only one
			require.NoError(t, conn.Ping(t.Context()).Err())
			t.Cleanup(func() { _ = conn.Close() })
		}, "redis is unreachable"},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		client := clientWith(t, s, fairlock.Config{NoRenewal: true}, func(o *redis.Options) {
			sendOnce(o)
			o.PoolSize, o.PoolTimeout = 1, time.Hour
		})
		lease := hold(t, client.Mutex("x").Lock)
		c.fail(t, s, client)
		err := lease.Unlock(t.Context())
		assert.Equal(t, lease.Deadline(), time.Now())
		require.ErrorContains(t, err, c.reason)
		require.NotErrorIs(t, err, fairlock.ErrLost)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
	})
}

// Unlock retries until the network is back. Several calls at once return the same, also if the lock was taken by force.
//
//fairlock:fault Unlock cannot reach Redis
//fairlock:promise Force-release
func TestUnlock_ConcurrentCallsAgree(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var j journal
		client := s.Client(fairlock.Config{Trace: j.trace()})
		sent := record(client)
		lease := hold(t, client.Mutex("x").Lock)
		client.Link.Cut()
		errs := make(chan error)
		for range 10 {
			go func() { errs <- lease.Unlock(t.Context()) }()
		}
		pass(time.Second)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
		sent.reset()
		client.Link.Mend()
		for range 10 {
			require.NoError(t, <-errs)
		}
		assert.Len(t, sent.requests(), 1)
		s.AssertNothingLeft()

		lease = hold(t, client.Mutex("x").Lock)
		s.Mutex("x").ForceRelease()
		for range 10 {
			go func() { errs <- lease.Unlock(t.Context()) }()
		}
		for range 10 {
			require.ErrorIs(t, <-errs, fairlock.ErrTaken)
		}
		assert.Len(t, j.of("Lost"), 1)
	})
}

// If the reply to a release is lost, Unlock asks again, and finds that it does not hold the lock: it released it itself.
// Then another client has the lock, and keeps it.
//
//fairlock:fault The reply to a release is lost, and another client has the lock meanwhile: released; the lock of the other client is untouched
func TestUnlock_LostReplyIsNoLoss(t *testing.T) {
	for name, options := range map[string]func(*redis.Options){
		"go-redis sends it again":    func(*redis.Options) {},
		"the library sends it again": sendOnce,
	} {
		for _, lost := range []int{1, 5} {
			t.Run(fmt.Sprint(name, ", lost replies: ", lost), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *fairlocktest.Server) {
					var j journal
					client := clientWith(t, s, fairlock.Config{Trace: j.trace()}, options)
					lease := hold(t, client.Mutex("x").Lock)
					next := begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
					for range lost {
						client.Link.DropReply()
					}
					start := time.Now()
					unlock(t, lease)
					owner := next.granted(t)
					assert.Equal(t, start, next.at)
					assert.Len(t, j.of("Released"), 1)
					assert.Empty(t, j.of("Lost"))
					assert.Equal(t, owner.Fence(), s.Mutex("x").State().Fence, "a second step of the fence")
					require.NoError(t, owner.Renew(t.Context()))
					unlock(t, owner)
					s.AssertNothingLeft()
				})
			})
		}
	}
}

// On a machine whose clock stood still, a holder trusts a lease that is over, and sends its release. That one changes
// nothing.
//
//fairlock:fault A holder is stopped (SIGSTOP) beyond its lease
//fairlock:fault A holder of permits crashes
func TestUnlock_LateSparesTheNextOwner(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		clock := s.LocalClock()
		client, other := s.Client(fairlock.Config{Clock: clock}), s.Client(fairlock.Config{})
		x, sem := client.Mutex("x"), client.Semaphore("s", 3)
		late := []*fairlock.Lease{hold(t, x.Lock), hold(t, permits(sem, 1)), hold(t, permits(sem, 1))}
		clock.SetRate(0)
		next := begin(t.Context(), other.Mutex("x").Lock)
		heir := begin(t.Context(), permits(other.Semaphore("s", 3), 3))
		owner, all := next.granted(t), heir.granted(t)
		behind := begin(t.Context(), permits(other.Semaphore("s", 3), 1))
		for _, lease := range late {
			require.NoError(t, lease.Err())
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrTaken)
		}
		synctest.Wait()
		assert.True(t, behind.pending(), "permits came back twice")
		assert.Equal(t, 3, s.Semaphore("s", 3).State().Used)
		require.NoError(t, owner.Renew(t.Context()))
		require.NoError(t, all.Renew(t.Context()))
		unlock(t, owner)
		unlock(t, all)
		unlock(t, behind.granted(t))
	})
}

// go-redis resends what a replica refuses. No copy has released the lock then: if another client has it meanwhile, it was
// lost.
//
//fairlock:fault Redis refuses writes when a lock is released, and has lost the grant when it accepts them: Unlock returns ErrLost
func TestUnlock_RefusedReleaseReleasesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		s.Miniredis.SetError(readOnly)
		time.AfterFunc(time.Second, func() {
			s.Miniredis.SetError("")
			s.LoseData() // the new primary has missed the grant
		})
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrTaken)
	})
}

// A release that worked is not undone by Close: Unlock returns the same again.
//
//fairlock:promise Unlock
func TestUnlock_AgainAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		released := hold(t, client.Mutex("released").Lock)
		taken := hold(t, client.Mutex("taken").Lock)
		held := hold(t, client.Mutex("held").Lock)
		s.Miniredis.Del("fairlock:{taken}:lock")
		for range 2 {
			unlock(t, released)
			require.ErrorIs(t, taken.Unlock(t.Context()), fairlock.ErrTaken)
			require.NoError(t, client.Close())
		}
		require.ErrorIs(t, held.Unlock(t.Context()), fairlock.ErrClosed)
	})
}

// Close waits for the release that is in flight.
//
//fairlock:promise Close
func TestClose_LetsAReleaseFinish(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		client.Link.Delay(50*time.Millisecond, 50*time.Millisecond)
		start := time.Now()
		closed := make(chan time.Duration, 1)
		time.AfterFunc(20*time.Millisecond, func() {
			_ = client.Close()
			closed <- time.Since(start)
		})
		unlock(t, lease)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, 100*time.Millisecond, <-closed)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
		s.AssertNothingLeft()
	})
}

// If Redis refuses the release, or does not answer, Close ends Unlock: at once between two attempts, else when go-redis
// gives up on the one that is under way.
func TestClose_EndsAnUnlockThatFails(t *testing.T) {
	type example struct {
		reply error
		takes time.Duration
		ends  time.Duration // after Unlock was called
	}
	bubbles(t, map[string]example{
		"refused":   {refusal(readOnly), 0, 3 * time.Second},
		"no answer": {io.EOF, 9 * time.Second, 9 * time.Second},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		client := s.Client(fairlock.Config{TTL: time.Hour})
		lease := hold(t, client.Mutex("x").Lock)
		record(client).after = func(cmd redis.Cmder) {
			time.Sleep(c.takes)
			cmd.SetErr(c.reply)
		}
		start := time.Now()
		time.AfterFunc(3*time.Second, func() { assert.NoError(t, client.Close()) })
		err := lease.Unlock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrClosed)
		require.ErrorIs(t, err, c.reply)
		assert.Equal(t, c.ends, time.Since(start))
	})
}

// No callback is called while the lease is locked: it may call Unlock.
func TestTrace_CallbacksMayUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var lease *fairlock.Lease
		var lost, released int
		client := s.Client(fairlock.Config{Trace: &fairlock.Trace{
			Lost: func(fairlock.LostInfo) {
				lost++
				assert.ErrorIs(t, lease.Unlock(context.Background()), fairlock.ErrTaken)
			},
			Released: func(fairlock.ReleasedInfo) {
				released++
				assert.NoError(t, lease.Unlock(context.Background()))
			},
		}})
		for _, taken := range []bool{false, true} {
			lease = hold(t, client.Mutex("x").Lock)
			if taken {
				s.Miniredis.Del("fairlock:{x}:lock")
			}
			err := lease.Unlock(t.Context())
			assert.Equal(t, taken, err != nil)
		}
		assert.Equal(t, 1, lost)
		assert.Equal(t, 1, released)
	})
}
