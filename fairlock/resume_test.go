package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/lua"
)

// Two processes resume one lease. Never do both hold it, whatever becomes of their requests.
//
//fairlock:promise Several resume one lease: never do two of them hold it for longer than one's next renewal, also if a reply is lost, or a request comes late
func TestResume_OneOfSeveralHasTheLease(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T, s *fairlocktest.Server, lease *fairlock.Lease, held func(*fairlock.Lease)){
		"at once": func(t *testing.T, s *fairlocktest.Server, lease *fairlock.Lease, held func(*fairlock.Lease)) {
			var both []*acquisition
			for range 2 {
				c := s.Client(fairlock.Config{})
				c.Link.Delay(5*time.Millisecond, 5*time.Millisecond)
				both = append(both, begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) {
					return c.Mutex("x").Resume(ctx, lease.Token())
				}))
			}
			for _, q := range both {
				if <-q.done; q.err == nil {
					held(q.lease)
				} else {
					require.ErrorIs(t, q.err, fairlock.ErrTaken)
				}
			}
		},
		"a reply is lost, and another resumes before the copy": func(t *testing.T, s *fairlocktest.Server, lease *fairlock.Lease, held func(*fairlock.Lease)) {
			c, other := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
			sent, first := record(c), true
			sent.setAfter(func(cmd redis.Cmder) {
				if verbOf(cmd) == "resume" && first {
					first = false
					lease, err := other.Mutex("x").Resume(context.Background(), lease.Token())
					assert.NoError(t, err)
					held(lease)
					cmd.SetErr(errSentAgain)
				}
			})
			_, err := c.Mutex("x").Resume(t.Context(), lease.Token())
			require.ErrorIs(t, err, fairlock.ErrTaken)
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string,
		resume func(*testing.T, *fairlocktest.Server, *fairlock.Lease, func(*fairlock.Lease)),
	) {
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		require.NoError(t, lease.Detach())
		var all []*fairlock.Lease
		resume(t, s, lease, func(l *fairlock.Lease) { all = append(all, l) })
		pass(time.Minute)
		require.Len(t, all, 1)
		require.NoError(t, all[0].Err())
		unlock(t, all[0])
		s.Mutex("x").AssertFree()
	})
}

// A copy of an acquire that arrives after its lease was resumed elsewhere, and released, acquires nothing.
func TestResume_RefusesALateAcquire(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		require.NoError(t, lease.Detach())
		resumed, err := s.Client(fairlock.Config{}).Mutex("x").Resume(t.Context(), lease.Token())
		require.NoError(t, err)
		unlock(t, resumed)
		reply, err := lua.Mutex(client.Redis, lua.DefaultNamespace, "x").Acquire(t.Context(), lua.Request{Token: lease.Token(), WaiterTTL: 6 * time.Second})
		require.NoError(t, err)
		assert.Equal(t, lua.Busy, reply.Outcome)
		s.Mutex("x").AssertFree()
	})
}

// A lease that was released and is kept is nobody's: Resume of the token that Inspect shows fails.
func TestResume_NotOfAReleasedLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		sem := s.Client(fairlock.Config{}).Semaphore("x", 2).WithMinHold(time.Minute)
		unlock(t, hold(t, permits(sem, 1)))
		_, err := sem.Resume(t.Context(), s.Semaphore("x", 2).State().Holder.Token)
		require.ErrorIs(t, err, fairlock.ErrTaken)
		assert.True(t, s.Semaphore("x", 2).State().Holder.Released)
		pass(time.Minute)
		unlock(t, hold(t, permits(sem, 2)))
	})
}
