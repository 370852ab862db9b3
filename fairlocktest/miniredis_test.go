package fairlocktest_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
)

// What docs/testing.md says of plain miniredis: the mutex of a holder that has crashed is taken until FastForward, or
// for its TTL after ClockTTL. Nothing is renewed, because the holder's connections are closed.
func TestPlainMiniredis(t *testing.T) {
	t.Parallel()
	const ttl = 50 * time.Millisecond
	crashed := func(server *miniredis.Miniredis) fairlock.Mutex {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		holder, err := fairlock.New(rdb, fairlock.Config{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		_, err = holder.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, rdb.Close())
		time.Sleep(2 * ttl)
		other := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = other.Close() })
		next, err := fairlock.New(other, fairlock.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { next.Close(); holder.Close() })
		return next.Mutex("x")
	}
	server := miniredis.RunT(t)
	m := crashed(server)
	_, err := m.TryLock(t.Context())
	require.ErrorIs(t, err, fairlock.ErrBusy)
	server.FastForward(ttl)
	_, err = m.TryLock(t.Context())
	require.NoError(t, err)

	server = miniredis.RunT(t)
	server.ClockTTL(true)
	_, err = crashed(server).TryLock(t.Context())
	require.NoError(t, err)
}
