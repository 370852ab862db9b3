package fairlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Processes resume one lease at once, and the reply to one of them is lost. Never do two hold it.
//
//fairlock:promise Several resume one lease: never do two of them hold it for longer than one's next renewal, also if a reply is lost, or a request comes late
func TestResume_OneOfSeveralHasTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		handle := detach(t, hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock))
		var all []*acquisition
		for i := range 3 {
			c := s.Client(fairlock.Config{})
			if c.Link.Delay(5*time.Millisecond, 5*time.Millisecond); i == 0 {
				c.Link.DropReply()
			}
			all = append(all, begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) {
				return c.Mutex("x").Resume(ctx, handle)
			}))
		}
		pass(time.Minute)
		var held []*fairlock.Lease
		for _, q := range all {
			if <-q.done; q.err != nil {
				require.ErrorIs(t, q.err, fairlock.ErrRevoked)
			} else if q.lease.Err() == nil {
				held = append(held, q.lease)
			}
		}
		require.Len(t, held, 1)
		unlock(t, held[0])
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
