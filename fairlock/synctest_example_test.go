package fairlock_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
)

// How users test their own code. The function stands in the README, word for word.

func TestTheNextOneGetsInAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in a bubble: a minute of waiting takes no time
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // keys expire by the bubble's clock
		defer server.Close()
		rdb := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:6379", // an address, not a host name; it is never dialled
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		defer rdb.Close()
		newClient := func() *fairlock.Client {
			client, err := fairlock.New(rdb, fairlock.Config{TTL: time.Minute})
			require.NoError(t, err)
			return client
		}

		crashed, next := newClient(), newClient()
		_, err := crashed.Mutex("billing").Lock(t.Context())
		require.NoError(t, err)
		crashed.Close() // does not unlock: for Redis the same as a crash
		start := time.Now()

		lease, err := next.Mutex("billing").Lock(t.Context())
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(start).Round(100*time.Millisecond))
		require.NoError(t, lease.Unlock(t.Context()))
		next.Close()
	})
}
