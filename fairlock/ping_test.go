package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Ping changes nothing. One that hangs ends with its ctx, or when the client shuts down.
//
//fairlock:promise Ping: fails while Redis is away, loading, full or read-only, rights or commands are missing, which it names, or the subscription has been down for 5 s; ErrClosed from Shutdown on
func TestClient_Ping(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		before := s.Miniredis.Dump()
		require.NoError(t, client.Ping(t.Context()))
		assert.Equal(t, before, s.Miniredis.Dump())
		client.Link.Hang()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, client.Ping(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		hung := begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) { return nil, client.Ping(ctx) })
		held, cancel := lease.Context(t.Context())
		defer cancel()
		end := shutdown(t.Context(), client)
		<-hung.done
		require.ErrorIs(t, hung.err, fairlock.ErrClosed)
		client.Link.Mend()
		require.ErrorIs(t, client.Ping(held), fairlock.ErrClosed)
		unlock(t, lease)
		<-end.done
	})
}

// The subscription may be down for 5 s.
//
//fairlock:promise Ping
func TestClient_PingSeesTheSubscription(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		client.Link.DropNotifications() // also the confirmation
		lease := hold(t, client.Mutex("x").Lock)
		next := begin(t.Context(), client.Mutex("x").Lock)
		for range 2 { // it does not come up, and breaks
			pass(5*time.Second - 1)
			require.NoError(t, client.Ping(t.Context()))
			pass(1)
			require.ErrorContains(t, client.Ping(t.Context()), "subscription for notifications has been down for 5s: ")
			client.Link.Mend()
			pass(10 * time.Second)
			require.NoError(t, client.Ping(t.Context()))
			client.Link.DropNotifications()
			client.Link.Break()
		}
		unlock(t, lease)
		unlock(t, next.granted(t))
	})
}
