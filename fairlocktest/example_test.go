package fairlocktest_test

import (
	"context"
	"errors"
	"sync"
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
	// a client that the test makes itself
	second, err := fairlock.New(server.Link().Redis(), fairlock.Config{Name: "second"})
	require.NoError(t, err)
	defer second.Close()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- job(ctx, second) }()

	account.WaitQueued(1)
	require.NoError(t, first.Unlock(t.Context()))
	account.WaitHeldBy("second")

	cancel()
	require.ErrorIs(t, <-stopped, context.Canceled)
	account.WaitFree()
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

//fairlock:fault A holder crashes
func TestTheProcessDiedWhileHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		account := server.Mutex("account:42")
		account.CrashHolding("crashed", 10*time.Second)
		next := server.Client(fairlock.Config{Name: "next"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		stopped := make(chan error, 1)
		go func() { stopped <- job(ctx, next.Client) }()

		time.Sleep(10*time.Second - time.Millisecond)
		account.AssertHeldBy("crashed")
		account.AssertQueue("next")
		time.Sleep(2 * time.Millisecond)
		account.AssertHeldBy("next") // as soon as the lease of the crashed client has expired

		require.ErrorIs(t, <-stopped, context.DeadlineExceeded)
		server.AssertNothingLeft()
	})
}

// account is what the lock protects. It refuses a fence that is lower than one it has seen.
type account struct {
	mu       sync.Mutex
	fence    uint64 // the highest that it has seen
	balance  int
	deposits int // how many were written
}

func (a *account) read(fence uint64) (balance int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if fence < a.fence {
		return 0, errStale
	}
	a.fence = fence
	return a.balance, nil
}

func (a *account) write(fence uint64, balance int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if fence < a.fence {
		return errStale
	}
	a.fence, a.balance = fence, balance
	a.deposits++
	return nil
}

var errStale = errors.New("the account was used under a later lease")

// deposit adds 1 to the balance once the bank has approved it, which takes a while. The lease may be lost meanwhile.
func deposit(ctx context.Context, client *fairlock.Client, a *account, approve func(context.Context) error) error {
	return client.Mutex("account:42").Do(ctx, func(ctx context.Context) error {
		lease, _ := fairlock.LeaseFromContext(ctx)
		balance, err := a.read(lease.Fence())
		if err != nil {
			return err
		}
		if err := approve(ctx); err != nil {
			return err
		}
		return a.write(lease.Fence(), balance+1)
	})
}

type depositor = func(ctx context.Context, client *fairlock.Client, a *account,
	approve func(context.Context) error) error

// noDepositIsLost checks the balance after deposits of three workers under faults.
func noDepositIsLost(t *testing.T, w *fairlocktest.World, deposit depositor) {
	var a account
	w.Work(3, fairlock.Config{}, func(ctx context.Context, p *fairlocktest.Worker) error {
		return deposit(ctx, p.Client.Client, &a, p.Busy)
	})
	assert.Equal(t, a.deposits, a.balance) // as many as were written, whether or not deposit has returned nil

	w.Heal() // without faults, a deposit succeeds
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	approved := func(context.Context) error { return nil }
	assert.NoError(t, deposit(ctx, w.Client(fairlock.Config{}).Client, &a, approved))
}

func TestNoDepositIsLost(t *testing.T) {
	fairlocktest.Explore(t, fairlocktest.ExploreConfig{Seeds: 5}, func(t *testing.T, w *fairlocktest.World) {
		noDepositIsLost(t, w, deposit)
	})
}
