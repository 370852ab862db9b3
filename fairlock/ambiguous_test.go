package fairlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// The time of the request to leave begins when the abandoned acquire has ended, which can be after TTL and WaiterTTL.
//
//fairlock:fault Redis hangs for longer than TTL and WaiterTTL, and ctx ends: the lock is free as soon as Redis answers
func TestLock_LeavesAfterALongHang(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			server := fairlocktest.NewServer(t)
			client := server.Client(fairlock.Config{TTL: ttl, WaiterTTL: min(ttl, fairlock.DefaultWaiterTTL)})
			warm, err := client.Mutex("x").Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, warm.Unlock(t.Context()))
			client.Link.Hang()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err = client.Mutex("x").Lock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, 125*time.Millisecond, time.Since(start))
			time.Sleep(ttl + 500*time.Millisecond)
			client.Link.Mend()
			time.Sleep(time.Second) // the longest back-off
			server.Mutex("x").AssertFree()
		})
	}
}

// An acquire that was never sent needs no request to leave.
func TestLock_LeavesNothingThatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inFlight = 18 // pipelines
		client := fairlocktest.NewServer(t).Client(fairlock.Config{})
		var seen recorder
		client.Redis.AddHook(&seen)
		client.Link.Hang()
		var all sync.WaitGroup
		lock := func(name string, timeout time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := client.Mutex(name).Lock(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}
		for range inFlight {
			all.Go(func() { lock("sent", 2*time.Second) })
			time.Sleep(60 * time.Millisecond) // the sender before is overdue
		}
		all.Go(func() { lock("waiting", 500*time.Millisecond) })
		all.Wait()
		client.Link.Mend()
		time.Sleep(time.Minute)
		assert.Contains(t, seen.locks(), "sent")
		assert.NotContains(t, seen.locks(), "waiting")
	})
}
