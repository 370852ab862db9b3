package fairlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

func TestLease_WhatIsDue(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const s = time.Second
	for name, c := range map[string]struct {
		renew, deadline, next time.Duration // from now
		want                  any
	}{
		"nothing, then a renewal":              {1 * s, 2 * s, 1 * s, fairlock.Nothing},
		"nothing, then the end":                {3 * s, 2 * s, 2 * s, fairlock.Nothing},
		"without renewal":                      {2 * s, 2 * s, 2 * s, fairlock.Nothing},
		"a renewal":                            {0, 1 * s, 0, fairlock.Renewal},
		"a renewal that is late":               {-1 * s, 1, 0, fairlock.Renewal},
		"the end":                              {-1 * s, 0, 0, fairlock.Expiry},
		"the end, though a renewal is to come": {1 * s, -1, 0, fairlock.Expiry},
	} {
		what, next := fairlock.Due(now, now.Add(c.renew), now.Add(c.deadline))
		assert.Equal(t, c.want, what, name)
		assert.Equal(t, now.Add(c.next), next, name)
	}
	assert.Equal(t, now.Add(2*s), fairlock.NextRenewal(now, now.Add(6*s), 6*s), "a third of what is left")
	assert.Equal(t, now.Add(s/5), fairlock.NextRenewal(now, now.Add(s/10), 6*s), "at the least a thirtieth of TTL")
}

// What Redis refuses for a while, Unlock asks for until it is done: the next waiter has the lock as soon as Redis can.
func TestUnlock_RetriesWhatRedisRefusesForAWhile(t *testing.T) {
	for _, refusal := range []string{
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"NOREPLICAS Not enough good replicas to write.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"ERR Error running script (call to f_0): @user_script:12: @user_script: 12: -READONLY You can't write against a read only replica.",
	} {
		t.Run(refusal[:12], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fairlocktest.NewServer(t)
				m := server.Client(fairlock.Config{}).Mutex("x")
				lease, err := m.Lock(t.Context())
				require.NoError(t, err)
				next := make(chan error)
				other := server.Client(fairlock.Config{}).Mutex("x")
				go func() {
					lease, err := other.Lock(t.Context())
					next <- errors.Join(err, lease.Unlock(t.Context()))
				}()
				server.Mutex("x").WaitQueued(1)
				start := time.Now()
				server.Miniredis.SetError(refusal)
				time.AfterFunc(150*time.Millisecond, func() { server.Miniredis.SetError("") })
				require.NoError(t, lease.Unlock(t.Context()))
				require.NoError(t, <-next)
				assert.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond)
				assert.LessOrEqual(t, time.Since(start), 500*time.Millisecond)
			})
		})
	}
}

// What no retry cures is told at once, and Unlock can be called again.
func TestUnlock_ReturnsAVerdictAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		lease, err := server.Client(fairlock.Config{}).Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		start := time.Now()
		server.Miniredis.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
		err = lease.Unlock(t.Context())
		require.ErrorContains(t, err, "NOPERM")
		require.NotErrorIs(t, err, fairlock.ErrLost)
		assert.Zero(t, time.Since(start))
		server.Miniredis.SetError("")
		require.NoError(t, lease.Unlock(t.Context()))
		server.AssertNothingLeft()
	})
}

// It ends when the lease would have ended, also if Redis never answers, and names the reason.
func TestUnlock_EndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		for name, fail := range map[string]func(){
			"READONLY":                func() { server.Miniredis.SetError("READONLY for ever") },
			"redis is unreachable":    client.Link.Hang,
			"connect: connection ref": client.Link.Cut,
		} {
			lease, err := client.Mutex(name).Lock(t.Context())
			require.NoError(t, err)
			fail()
			err = lease.Unlock(t.Context())
			require.ErrorContains(t, err, name[:7])
			require.NotErrorIs(t, err, fairlock.ErrLost)
			assert.False(t, time.Now().After(lease.Deadline()))
			assert.Less(t, time.Until(lease.Deadline()), 2*time.Second, "it gave up early")
			server.Miniredis.SetError("")
			client.Link.Mend()
		}
	})
}

// Several calls of Unlock at the same time agree, and the lock is released once.
func TestUnlock_ConcurrentCallsAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		lease, err := client.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		client.Link.Cut()
		errs := make(chan error)
		for range 10 {
			go func() { errs <- lease.Unlock(t.Context()) }()
		}
		time.Sleep(time.Second)
		client.Link.Mend()
		for range 10 {
			require.NoError(t, <-errs)
		}
		server.AssertNothingLeft()
	})
}

// A loss of the lock stands in the error of Do once, and the operation is do.
func TestDo_TellsOfALossOnce(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(ctx context.Context) error
		want string
	}{
		"f returns nil":            {func(ctx context.Context) error { <-ctx.Done(); return nil }, "fairlock: do x: lock is lost: no longer the owner"},
		"f returns the cause":      {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, "fairlock: do x: lock is lost: no longer the owner"},
		"f returns its own error":  {func(ctx context.Context) error { <-ctx.Done(); return errors.New("mine") }, "mine\nfairlock: do x: lock is lost: no longer the owner"},
		"f returns ctx's error":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "context canceled\nfairlock: do x: lock is lost: no longer the owner"},
		"f does not wait, no loss": {func(context.Context) error { return errors.New("mine") }, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fairlocktest.NewServer(t)
				m := server.Client(fairlock.Config{}).Mutex("x")
				err := m.Do(t.Context(), func(ctx context.Context) error {
					time.AfterFunc(time.Second, func() { _, _ = m.ForceRelease(context.WithoutCancel(ctx)) })
					return c.f(ctx)
				})
				require.EqualError(t, err, c.want)
				time.Sleep(2 * time.Second)
			})
		})
	}
	t.Run("the lock is not granted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := fairlocktest.NewServer(t).Client(fairlock.Config{})
			client.Link.Cut()
			var failed *fairlock.Error
			require.ErrorAs(t, client.RWMutex("x").RDo(t.Context(), nil), &failed)
			assert.Equal(t, "rdo", failed.Op)
		})
	})
}

// Outside a lock there is no lease, and the fence of none is refused by every resource that checks fences.
func TestLeaseFromContext_OutsideALock(t *testing.T) {
	lease := fairlock.LeaseFromContext(t.Context())
	assert.Nil(t, lease)
	assert.Zero(t, lease.Fence())
}
