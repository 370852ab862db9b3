package fairlock_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

const readOnly = "READONLY You can't write against a read only replica."

// go-redis resends what a replica refuses. No copy has released the lock then: if another client has it meanwhile, it was
// lost.
//
//fairlock:fault Redis refuses writes when a lock is released, and has lost the grant when it accepts them: Unlock returns ErrLost
func TestUnlock_RefusedReleaseReleasesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		lease, err := server.Client(fairlock.Config{}).Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		server.Miniredis.SetError(readOnly)
		time.AfterFunc(time.Second, func() {
			server.Miniredis.SetError("")
			server.LoseData() // the new primary has missed the grant
		})
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrTaken)
	})
}

// A release that worked is not undone by Close: Unlock returns the same again.
//
//fairlock:promise Unlock
func TestUnlock_AgainAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		released, err := client.Mutex("released").Lock(t.Context())
		require.NoError(t, err)
		taken, err := client.Mutex("taken").Lock(t.Context())
		require.NoError(t, err)
		held, err := client.Mutex("held").Lock(t.Context())
		require.NoError(t, err)
		server.Miniredis.Del("fairlock:{taken}:lock")
		for range 2 {
			require.NoError(t, released.Unlock(t.Context()))
			require.ErrorIs(t, taken.Unlock(t.Context()), fairlock.ErrTaken)
			require.NoError(t, client.Close())
		}
		require.ErrorIs(t, held.Unlock(t.Context()), fairlock.ErrClosed)
	})
}

// Close waits for the release that is in flight.
//
//fairlock:promise Close
func TestClose_LetsAReleaseFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		lease, err := client.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		client.Link.Delay(50*time.Millisecond, 50*time.Millisecond)
		start := time.Now()
		closed := make(chan time.Duration, 1)
		time.AfterFunc(20*time.Millisecond, func() {
			_ = client.Close()
			closed <- time.Since(start)
		})
		require.NoError(t, lease.Unlock(t.Context()))
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, 100*time.Millisecond, <-closed)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
		server.AssertNothingLeft()
	})
}

// If Redis refuses the release, or does not answer, Close ends Unlock: at once between two attempts, else when go-redis
// gives up on the one that is under way.
func TestClose_EndsAnUnlockThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		reply error
		takes time.Duration
		ends  time.Duration // after Unlock was called
	}{
		"refused":   {refusal(readOnly), 0, 3 * time.Second},
		"no answer": {io.EOF, 9 * time.Second, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fairlocktest.NewServer(t)
				client := server.Client(fairlock.Config{TTL: time.Hour})
				lease, err := client.Mutex("x").Lock(t.Context())
				require.NoError(t, err)
				client.Redis.AddHook(&commandHook{change: func(cmd redis.Cmder) {
					time.Sleep(c.takes)
					cmd.SetErr(c.reply)
				}})
				start := time.Now()
				time.AfterFunc(3*time.Second, func() { assert.NoError(t, client.Close()) })
				err = lease.Unlock(t.Context())
				require.ErrorIs(t, err, fairlock.ErrClosed)
				require.ErrorIs(t, err, c.reply)
				assert.Equal(t, c.ends, time.Since(start))
			})
		})
	}
}

// No callback is called while the lease is locked: it may call Unlock.
func TestTrace_CallbacksMayUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		var lease *fairlock.Lease
		var lost, released int
		client := server.Client(fairlock.Config{Trace: &fairlock.Trace{
			Lost: func(fairlock.LostInfo) {
				lost++
				assert.ErrorIs(t, lease.Unlock(context.Background()), fairlock.ErrTaken)
			},
			Released: func(fairlock.ReleasedInfo) {
				released++
				assert.NoError(t, lease.Unlock(context.Background()))
			},
		}})
		var err error
		for _, taken := range []bool{false, true} {
			lease, err = client.Mutex("x").Lock(t.Context())
			require.NoError(t, err)
			if taken {
				server.Miniredis.Del("fairlock:{x}:lock")
			}
			err = lease.Unlock(t.Context())
			assert.Equal(t, taken, err != nil)
		}
		assert.Equal(t, 1, lost)
		assert.Equal(t, 1, released)
	})
}
