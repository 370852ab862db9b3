package fairlocktest_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// bubble runs a test in a bubble, on a server with one client.
func bubble(t *testing.T, test func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		test(t, server, server.Client(fairlock.Config{}))
	})
}

func lock(t *testing.T, client *fairlocktest.Client) *fairlock.Lease {
	t.Helper()
	lease, err := client.Mutex("x").Lock(t.Context())
	if err != nil { // in goroutines, too
		t.Error(err)
	}
	return lease
}

func TestLink_Delay(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		require.NoError(t, client.Redis.Ping(t.Context()).Err())
		client.Link.Delay(30*time.Millisecond, 10*time.Millisecond)
		start := time.Now()
		at := server.Now()
		then, err := client.Redis.Time(t.Context()).Result()
		require.NoError(t, err)
		assert.Equal(t, 40*time.Millisecond, time.Since(start))
		assert.Equal(t, 30*time.Millisecond, then.Sub(at))
		client.Link.Mend()
		start = time.Now()
		require.NoError(t, client.Redis.Ping(t.Context()).Err())
		assert.Zero(t, time.Since(start))
	})
}

func TestLink_Cut(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		lease := lock(t, client)
		client.Link.Cut()
		require.ErrorContains(t, client.Redis.Ping(t.Context()).Err(), "connection refused")
		_, err := client.Link.Dial(t.Context())
		var failed *net.OpError
		require.ErrorAs(t, err, &failed)
		time.Sleep(5 * time.Second)
		require.NoError(t, server.Link().Redis().Ping(t.Context()).Err(), "another link was cut, too")
		client.Link.Mend()
		require.NoError(t, lease.Unlock(t.Context()))
		server.AssertNothingLeft()
	})
}

func TestLink_Break(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		conn, err := client.Link.Dial(t.Context())
		require.NoError(t, err)
		lease := lock(t, client)
		client.Link.Break()
		_, err = conn.Read(make([]byte, 1))
		require.ErrorContains(t, err, "connection reset")
		require.NoError(t, lease.Unlock(t.Context()))
		server.AssertNothingLeft()
	})
}

func TestLink_DropRequestAndDropReply(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		conn, err := client.Link.Dial(t.Context())
		require.NoError(t, err)
		incr := func() error {
			_, err := conn.Write([]byte("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"))
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 100))
			return err
		}
		require.NoError(t, incr())
		n := func() string { n, _ := server.Miniredis.Get("n"); return n }
		assert.Equal(t, "1", n())

		client.Link.DropRequest()
		require.ErrorContains(t, incr(), "connection reset")
		synctest.Wait()
		assert.Equal(t, "1", n())

		conn, err = client.Link.Dial(t.Context())
		require.NoError(t, err)
		client.Link.DropReply()
		require.ErrorContains(t, incr(), "connection reset")
		assert.Equal(t, "2", n())

		// The library executes each request once.
		lease := lock(t, client)
		fence := lease.Fence()
		client.Link.DropReply()
		require.NoError(t, lease.Unlock(t.Context()))
		server.Mutex("x").AssertFree()
		client.Link.DropReply()
		lease = lock(t, client)
		assert.Greater(t, lease.Fence(), fence)
		assert.Equal(t, lease.Fence(), server.Mutex("x").State().Holder.Fence)
		require.NoError(t, lease.Unlock(t.Context()))
		server.AssertNothingLeft()
	})
}

func TestLink_Hang(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		conn, err := client.Link.Dial(t.Context())
		require.NoError(t, err)
		client.Link.Hang()
		_, err = conn.Write([]byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"))
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, conn.SetReadDeadline(start.Add(3*time.Second)))
		_, err = conn.Read(make([]byte, 1))
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		assert.Equal(t, 3*time.Second, time.Since(start))
		start = time.Now()
		_, err = client.Link.Dial(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(start))

		require.NoError(t, conn.Close())
		assert.False(t, server.Miniredis.Exists("a"))
		client.Link.Mend()
		synctest.Wait()
		assert.True(t, server.Miniredis.Exists("a"), "data was lost")
	})
}

func TestLink_DropNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		lost := make(chan time.Time, 1)
		waiter := server.Client(fairlock.Config{Name: "waiter", Trace: &fairlock.Trace{
			NotificationLost: func(fairlock.Event) { lost <- time.Now() },
		}})
		x := server.Mutex("x")
		held := x.HoldAs("holder")
		granted := make(chan *fairlock.Lease)
		go func() { granted <- lock(t, waiter) }()
		x.WaitQueued(1)
		time.Sleep(3 * time.Second)
		waiter.Link.DropNotifications()
		start := time.Now()
		require.NoError(t, held.Unlock(t.Context()))
		lease := <-granted
		assert.Equal(t, (<-lost), time.Now())
		assert.Positive(t, time.Since(start))
		assert.LessOrEqual(t, time.Since(start), fairlock.DefaultWaiterTTL/3)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

func TestServer_Stop(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		x.CrashHolding("crashed", 10*time.Second)
		server.Stop()
		require.ErrorContains(t, client.Redis.Ping(t.Context()).Err(), "connection refused")
		x.AssertHeldBy("crashed") // assertions still work
		time.Sleep(9 * time.Second)
		server.Start()
		_, err := client.Mutex("x").TryLock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		time.Sleep(time.Second)
		require.NoError(t, lock(t, client).Unlock(t.Context()))
	})
}

func TestServer_LoseDataQuarantinesLock(t *testing.T) {
	bubble(t, func(t *testing.T, server *fairlocktest.Server, client *fairlocktest.Client) {
		x := server.Mutex("x")
		held := x.HoldAs("holder")
		granted := make(chan *fairlock.Lease)
		go func() { granted <- lock(t, client) }()
		x.WaitQueued(1)
		server.LoseData()
		x.AssertFree()
		lease := <-granted
		require.ErrorIs(t, held.Err(), fairlock.ErrLost, "two clients hold the lock")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}
