package inspect

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A silence begins with the first request that has no reply, lasts over all attempts, and ends with a reply, also one
// about a lock that is not ours. One of long ago is not part of the next.
func TestServer_Silent(t *testing.T) {
	inBubble(t, func(t *testing.T, m *fairlocktest.Server, s *Server, link *fairlocktest.Link) {
		id := ID{Kind: fairlock.KindMutex, Name: "m"}
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := s.Read(ctx, 1, id)
			return err
		}
		require.NoError(t, ask())
		time.Sleep(time.Minute)
		require.Zero(t, s.Silent())
		link.Hang()
		for i := range 3 {
			require.Error(t, ask())
			require.Equal(t, time.Duration(7*i+2)*time.Second, s.Silent())
			time.Sleep(5 * time.Second)
		}
		time.Sleep(time.Minute)
		require.Zero(t, s.Silent(), "nobody asks")
		require.Error(t, ask())
		require.Equal(t, 2*time.Second, s.Silent())
		link.Mend()
		time.Sleep(time.Second)
		m.Miniredis.HSet("fairlock:{m}:queue", "x", "y")
		require.NoError(t, ask())
		require.Zero(t, s.Silent())
	})
}
