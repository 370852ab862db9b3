package fairlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A connection that is silent is pinged after 3 s, and replaced if it stays silent for 3 s more, even without waiters.
//
//fairlock:fault The connection of a subscription is half-open, and shows no error: replaced within 6 s, also while the client waits for no lock
func TestSubscriber_Silent(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, _, j := listening(t, s, fairlock.Config{})
		pass(time.Minute)
		require.Empty(t, j.of("subscription broke"))
		client.Link.DropNotifications()
		start := time.Now()
		pass(6 * time.Second)
		client.Link.Mend()
		pass(6 * time.Second)
		require.Len(t, j.of("subscription broke"), 1)
		assert.Equal(t, 6*time.Second, j.of("subscription broke")[0].at.Sub(start))
		require.Len(t, j.of("subscribed"), 2)
	})
}
