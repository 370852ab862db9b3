package fairlocktest_test

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

// How users test their own code. docs/testing.md contains these functions verbatim.

// job is the code under test: it works on an account until its ctx ends.
func job(ctx context.Context, client *fairlock.Client) error {
	return client.Mutex("account:42").Do(ctx, func(ctx context.Context) error {
		<-ctx.Done() // works until then
		return context.Cause(ctx)
	})
}

func TestMyJobStopsWhenItsLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in a bubble: an hour takes no time
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		account := server.Mutex("account:42")
		stopped := make(chan error, 1)
		go func() { stopped <- job(t.Context(), client.Client) }()

		time.Sleep(time.Hour)
		account.AssertHeldBy("client-1") // renewed for as long as the job works

		client.Link.Cut()
		require.ErrorIs(t, <-stopped, fairlock.ErrLost)
		account.AssertHeldBy("client-1") // the job has stopped before another client can get the lock
	})
}

func TestTheSecondWorkerWaitsItsTurn(t *testing.T) {
	server := fairlocktest.NewServer(t)
	account := server.Mutex("account:42")
	first := account.HoldAs("first")
	second := server.Client(fairlock.Config{Name: "second"})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- job(ctx, second.Client) }()

	account.WaitQueued(1)
	account.AssertQueue("second")
	require.NoError(t, first.Unlock(t.Context()))
	account.WaitHeldBy("second")

	cancel()
	require.ErrorIs(t, <-stopped, context.Canceled)
	server.AssertNothingLeft()
}

func TestRedisIsAwayForThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		account := server.Mutex("account:42")
		holder := server.Client(fairlock.Config{Name: "holder", TTL: 10 * time.Second})
		waiter := server.Client(fairlock.Config{Name: "waiter"})
		lease, err := holder.Mutex("account:42").Lock(t.Context())
		require.NoError(t, err)
		stopped := make(chan error, 1)
		go func() { stopped <- job(t.Context(), waiter.Client) }()
		account.WaitQueued(1)

		server.Stop()
		time.Sleep(3 * time.Second)
		server.Start()
		time.Sleep(time.Minute)

		require.NoError(t, lease.Err()) // the holder keeps its lease
		account.AssertQueue("waiter")   // the waiter keeps its ticket
		require.NoError(t, lease.Unlock(t.Context()))
		account.WaitHeldBy("waiter")
		waiter.Crash()
		require.ErrorIs(t, <-stopped, fairlock.ErrClosed)
	})
}

func TestTheProcessDiedWhileHolding(t *testing.T) {
	clock := fairlocktest.NewClock(t) // without a bubble: time stands still until Advance
	server := fairlocktest.NewServerWithClock(t, clock)
	account := server.Mutex("account:42")
	account.CrashHolding("crashed", 10*time.Second)
	next := server.Client(fairlock.Config{Name: "next"})
	ctx, cancel := clock.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- job(ctx, next.Client) }()

	clock.Advance(9 * time.Second)
	account.AssertHeldBy("crashed")
	account.AssertQueue("next")
	clock.Advance(1100 * time.Millisecond)
	account.AssertHeldBy("next") // as soon as the lease of the crashed client has expired

	clock.Advance(time.Minute)
	require.ErrorIs(t, <-stopped, context.DeadlineExceeded)
	assert.Empty(t, account.State().Waiters)
	server.AssertNothingLeft()
}

func TestMyJobWithAClientOfItsOwn(t *testing.T) {
	server := fairlocktest.NewServer(t)
	link := server.Link()
	client, err := fairlock.New(link.Redis(), fairlock.Config{Name: "mine"}) // the name that assertions use
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- job(ctx, client) }()

	account := server.Mutex("account:42")
	account.WaitHeldBy("mine")
	cancel()
	require.ErrorIs(t, <-stopped, context.Canceled)
	account.AssertFree()
}
