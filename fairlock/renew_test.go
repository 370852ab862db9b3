package fairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A renewal that fails after a later one has succeeded says nothing about the lease: when it ends, the reason is not that
// failure.
func TestRenew_OlderFailureIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{NoRenewal: true})
		lease, err := client.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		client.Link.Delay(0, time.Minute) // of the reply to this one
		go func() { assert.ErrorIs(t, lease.Renew(ctx), context.DeadlineExceeded) }()
		time.Sleep(time.Second)
		client.Link.Delay(0, 0)
		require.NoError(t, lease.Renew(t.Context()))
		deadline := lease.Deadline()
		<-lease.Done()
		assert.Equal(t, deadline, time.Now())
		require.ErrorIs(t, lease.Err(), fairlock.ErrExpired)
		require.NotErrorIs(t, lease.Err(), fairlock.ErrUnreachable)
	})
}
