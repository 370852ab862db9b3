package fairlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
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
					return c.Mutex("x").Resume(ctx, lease.Handle())
				}))
			}
			for _, q := range both {
				if <-q.done; q.err == nil {
					held(q.lease)
				} else {
					require.ErrorIs(t, q.err, fairlock.ErrRevoked)
				}
			}
		},
		"a reply is lost, and another one resumes before the copy": func(t *testing.T, s *fairlocktest.Server,
			lease *fairlock.Lease, held func(*fairlock.Lease)) {
			c, other := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
			sent, first := record(c), true
			sent.setAfter(func(cmd redis.Cmder) {
				if verbOf(cmd) == "resume" && first {
					first = false
					_, err := other.Mutex("x").Resume(context.Background(), lease.Handle())
					assert.ErrorIs(t, err, fairlock.ErrRevoked)
					cmd.SetErr(errSentAgain)
				}
			})
			lease, err := c.Mutex("x").Resume(t.Context(), lease.Handle())
			require.NoError(t, err)
			held(lease)
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string,
		resume func(*testing.T, *fairlocktest.Server, *fairlock.Lease, func(*fairlock.Lease)),
	) {
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		detach(t, lease)
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
		detach(t, lease)
		resumed, err := s.Client(fairlock.Config{}).Mutex("x").Resume(t.Context(), lease.Handle())
		require.NoError(t, err)
		unlock(t, resumed)
		lock, _ := script.Of(dispatch.NewDirect(client.Redis), "mutex", bounds.DefaultNamespace, "x")
		reply, err := lock.Acquire(t.Context(),
			script.Request{Token: lease.Token(), WaiterTTL: 6 * time.Second})
		require.NoError(t, err)
		assert.Equal(t, script.Busy, reply.Outcome)
		s.Mutex("x").AssertFree()
	})
}

// A Resume that gives up leaves nothing behind: also when its request was served, the lock is free as soon as Redis
// answers.
func TestResume_GivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		handle := detach(t, hold(t, s.Client(fairlock.Config{TTL: time.Hour}).Mutex("x").Lock))
		client := s.Client(fairlock.Config{})
		require.NoError(t, client.Ping(t.Context()))
		client.Link.Delay(0, time.Hour)
		_, err := client.Mutex("x").Resume(t.Context(), handle)
		require.ErrorIs(t, err, fairlock.ErrUnreachable)
		s.Mutex("x").AssertHeldBy(client.Name())
		client.Link.Mend()
		pass(ttl)
		s.Mutex("x").AssertFree()
		_, err = client.Mutex("x").Resume(t.Context(), handle)
		require.ErrorIs(t, err, fairlock.ErrRevoked)
	})
}

// A request of a Resume that has given up is refused, also if Redis could not be reached for longer than the lease
// would have lasted.
func TestResume_RefusesItsLateRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		client := s.Client(fairlock.Config{})
		require.NoError(t, client.Ping(t.Context()))
		client.Link.Delay(10*ttl, 0)
		_, err := client.Mutex("x").Resume(t.Context(), lease.Handle())
		require.ErrorIs(t, err, fairlock.ErrUnreachable)
		pass(2 * ttl)
		client.Link.Mend()
		pass(10 * ttl)
		require.NoError(t, lease.Err())
		unlock(t, lease)
	})
}

// A handle of another kind of lock, or of nothing, is bad input.
func TestResume_Handles(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{Name: "c"})
		mutex, sem := hold(t, client.Mutex("x").Lock), hold(t, permits(client.Semaphore("x", 2), 1))
		sent := record(client)
		for _, handle := range []fairlock.Handle{"", "x", fairlock.Handle(mutex.Token().Text()), sem.Handle(),
			mutex.Handle() + "x", "c:1.2/3"} {
			_, err := client.Mutex("x").Resume(t.Context(), handle)
			require.ErrorIs(t, err, fairlock.ErrInvalid, "%v", handle)
			require.NotContains(t, err.Error(), mutex.Token().Text()[20:])
		}
		_, err := client.Semaphore("x", 2).Resume(t.Context(), mutex.Handle())
		require.ErrorIs(t, err, fairlock.ErrInvalid)
		assert.Empty(t, sent.requests())
		assert.Equal(t, mutex.Handle(), handleOf(s.Mutex("x").State().Holders[0]))

		secret := string(mutex.Handle())[8:30]
		for _, text := range []string{fmt.Sprint(mutex.Handle()), fmt.Sprintf("%v %s %q %x %#v", mutex.Handle(),
			mutex.Handle(), mutex.Handle(), mutex.Handle(), mutex.Handle())} {
			assert.NotContains(t, text, secret)
			assert.Contains(t, text, "c:")
		}
	})
}

// The rest of a minimum hold is nobody's: what its holder sends with the lease's handle changes nothing. With the
// handle that Inspect shows, an operator ends it.
func TestResume_OfARest(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		sem := s.Client(fairlock.Config{}).Semaphore("x", 2, fairlock.WithMinHold(time.Minute))
		lease := hold(t, permits(sem, 1))
		unlock(t, lease)
		_, err := sem.Resume(t.Context(), lease.Handle())
		require.ErrorIs(t, err, fairlock.ErrRevoked)
		assert.True(t, s.Semaphore("x", 2).State().Holders[0].Released)
		rest, err := s.Client(fairlock.Config{}).Semaphore("x", 2).Resume(t.Context(),
			handleOf(s.Semaphore("x", 2).State().Holders[0]))
		require.NoError(t, err)
		unlock(t, rest)
		s.Semaphore("x", 2).AssertFree()
	})
}
