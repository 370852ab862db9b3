package fairlocktest_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlocktest"
)

// TestWorld_FaultsOfConnections has the rest of what a Link does.

func dial(t *testing.T, link *fairlocktest.Link) net.Conn {
	t.Helper()
	conn, err := link.Dial(t.Context())
	require.NoError(t, err)
	return conn
}

// incr increments n over a connection.
func incr(t *testing.T, conn net.Conn) error {
	t.Helper()
	_, err := conn.Write([]byte("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 100))
	return err
}

func TestLink_DropRequestDropReplyBreak(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		conn := dial(t, client.Link)
		require.NoError(t, incr(t, conn))
		n := func() string { n, _ := server.Miniredis.Get("n"); return n }
		client.Link.DropRequest()
		require.ErrorContains(t, incr(t, conn), "connection reset")
		synctest.Wait()
		assert.Equal(t, "1", n())
		client.Link.DropReply()
		require.ErrorContains(t, incr(t, dial(t, client.Link)), "connection reset")
		assert.Equal(t, "2", n())

		conn = dial(t, client.Link)
		client.Link.Break()
		_, err := conn.Read(make([]byte, 1))
		require.ErrorContains(t, err, "connection reset")
		require.NoError(t, incr(t, dial(t, client.Link)))
	})
}

// A request of more than one packet is dropped as a whole, and so is its reply.
func TestLink_DropReplyOfLargeRequest(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fairlocktest.Server, client *fairlocktest.Client) {
		const many = 5000
		client.Link.DropReply()
		_, err := client.Redis.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range many {
				p.Incr(t.Context(), "n")
			}
			return nil
		})
		require.NoError(t, err)
		n, err := client.Redis.Get(t.Context(), "n").Int()
		require.NoError(t, err)
		assert.Equal(t, 2*many, n, "go-redis sends it again")
		client.Link.DropRequest()
		require.NoError(t, client.Redis.Set(t.Context(), "big", bytes.Repeat([]byte("x"), 300<<10), 0).Err())
		assert.Equal(t, int64(300<<10), client.Redis.StrLen(t.Context(), "big").Val())
	})
}

func TestLink_Hang(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		conn := dial(t, client.Link)
		client.Link.Hang()
		start := time.Now()
		require.NoError(t, conn.SetReadDeadline(start.Add(3*time.Second)))
		var timeout net.Error
		require.ErrorAs(t, incr(t, conn), &timeout)
		assert.True(t, timeout.Timeout())
		assert.Equal(t, 3*time.Second, time.Since(start))
		_, err := client.Link.Dial(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 8*time.Second, time.Since(start))

		require.NoError(t, conn.Close())
		assert.False(t, server.Miniredis.Exists("n"))
		client.Link.Mend()
		synctest.Wait()
		assert.True(t, server.Miniredis.Exists("n"), "data was lost")
	})
}

// Scripts are loaded, so the first release is one request. It arrives although its client has been closed.
func TestServer_ScriptsAreLoaded(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		lease := lock(t, client)
		client.Link.Hang()
		go func() { _ = lease.Unlock(context.Background()) }()
		synctest.Wait()
		client.Close()
		server.Mutex("x").AssertHeldBy("client-1")
		client.Link.Mend()
		server.Mutex("x").AssertFree()
	})
}
