package inspect

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A silence begins with the first request that has no reply, lasts over all attempts, whether or not somebody asks
// meanwhile, and ends with a reply, also one about a lock that is not ours. When the last reply came stays known.
func TestServer_Silent(t *testing.T) {
	inBubble(t, func(t *testing.T, m *fairlocktest.Server, s *Server, link *fairlocktest.Link) {
		id := ID{Kind: fairlock.KindMutex, Name: "m"}
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := s.Read(ctx, 1, id)
			return err
		}
		require.Zero(t, s.Replied())
		require.NoError(t, ask())
		replied := time.Now()
		time.Sleep(time.Minute)
		require.Zero(t, s.Silent())
		link.Hang()
		began := time.Now()
		for range 3 {
			require.Error(t, ask())
			require.Equal(t, time.Since(began), s.Silent())
			require.Equal(t, replied, s.Replied())
			time.Sleep(time.Minute)
		}
		require.Equal(t, time.Since(began), s.Silent(), "nobody asks, and nothing has come")
		link.Mend()
		m.Miniredis.HSet("fairlock:{m}:queue", "x", "y")
		require.NoError(t, ask())
		require.Zero(t, s.Silent())
		require.Equal(t, time.Now(), s.Replied())
	})
}
