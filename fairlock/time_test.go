package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/clock"
)

// These tests own both times: the server's stands still until FastForward, ours until Advance. So they can say to the
// millisecond what happens when, also for clocks that disagree.

const ttl = 10 * time.Second

// margin is by how much a lease of ttl ends earlier here than in Redis: a hundredth and 2 ms.
const margin = ttl/100 + 2*time.Millisecond

type world struct {
	granted    chan fairlock.GrantedInfo
	queued     chan fairlock.QueuedInfo
	subscribed chan fairlock.SubscriptionInfo
	server     *miniredis.Miniredis
	clock      *clock.Fake
	client     *fairlock.Client
	lost       []fairlock.LostInfo
	tries      int
}

func newWorld(t *testing.T, cfg fairlock.Config) *world {
	w := &world{server: miniredis.RunT(t), clock: clock.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	rdb := redis.NewClient(&redis.Options{Addr: w.server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	cfg.TTL, cfg.Clock = ttl, w.clock
	w.granted = make(chan fairlock.GrantedInfo, 1000)
	w.queued = make(chan fairlock.QueuedInfo, 1000)
	w.subscribed = make(chan fairlock.SubscriptionInfo, 1000)
	cfg.Trace = &fairlock.Trace{
		Granted:      func(i fairlock.GrantedInfo) { w.granted <- i },
		Queued:       func(i fairlock.QueuedInfo) { w.queued <- i },
		Subscription: func(i fairlock.SubscriptionInfo) { w.subscribed <- i },
		Lost:         func(i fairlock.LostInfo) { w.lost = append(w.lost, i) },
		Renewed:      func(fairlock.RenewedInfo) { w.tries++ },
	}
	c, err := fairlock.New(rdb, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	w.client = c
	return w
}

// pass lets time pass for both.
func (w *world) pass(d time.Duration) {
	w.server.FastForward(d)
	w.clock.Advance(d)
}

func (w *world) lock(t *testing.T) *fairlock.Lease {
	t.Helper()
	lease, err := w.client.Mutex("x").Lock(context.Background())
	require.NoError(t, err)
	return lease
}

func TestALeaseEndsOneMarginBeforeItsTTL(t *testing.T) {
	w := newWorld(t, fairlock.Config{NoRenewal: true})
	lease := w.lock(t)
	assert.Equal(t, w.clock.Now().Add(ttl-margin), lease.Deadline())
	w.pass(ttl - margin - 1)
	require.NoError(t, lease.Err())
	assert.True(t, w.server.Exists("fairlock:{x}:lock"))
	w.pass(1)
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), fairlock.ErrExpired)
	assert.True(t, w.server.Exists("fairlock:{x}:lock"), "told before the server's end, not after")
	require.Len(t, w.lost, 1)
	assert.Equal(t, ttl-margin, w.lost[0].Held)
}

func TestALeaseIsRenewedAtAThird(t *testing.T) {
	w := newWorld(t, fairlock.Config{})
	lease := w.lock(t)
	third := (ttl - margin) / 3
	for range 30 {
		w.pass(third - 1)
		before := w.tries
		w.pass(1)
		require.Equal(t, before+1, w.tries)
		require.Equal(t, w.clock.Now().Add(ttl-margin), lease.Deadline())
		require.Equal(t, ttl, w.server.TTL("fairlock:{x}:lock"))
	}
	require.NoError(t, lease.Unlock(context.Background()))
	tries := w.tries
	w.pass(time.Minute)
	assert.Equal(t, tries, w.tries, "a released lock is renewed")
}

func TestRenewalIsTriedUntilTheDeadline(t *testing.T) {
	w := newWorld(t, fairlock.Config{})
	lease := w.lock(t)
	w.server.SetError("LOADING for a while")
	w.pass(ttl - margin - time.Second)
	require.NoError(t, lease.Err())
	assert.Greater(t, w.tries, 3)
	w.server.SetError("")
	w.pass(time.Second - 1) // one more try comes in time
	require.NoError(t, lease.Err())
	assert.True(t, lease.Deadline().After(w.clock.Now().Add(ttl/2)))

	w.server.SetError("LOADING for ever")
	tries := w.tries
	w.clock.Advance(ttl) // for us only: the server's clock is slow
	require.ErrorIs(t, lease.Err(), fairlock.ErrUnreachable)
	require.ErrorContains(t, lease.Err(), "LOADING for ever")
	assert.Less(t, w.tries-tries, 40, "retries are spaced")
}

func TestAFastServerClockIsNoticedAtTheNextRenewal(t *testing.T) {
	w := newWorld(t, fairlock.Config{})
	lease := w.lock(t)
	w.server.FastForward(ttl + time.Second) // the server believes that the lease is over
	w.clock.Advance(ttl / 3)
	require.ErrorIs(t, lease.Err(), fairlock.ErrTaken)
}

func TestAPausedProcessFindsItsLeaseOverAtOnce(t *testing.T) {
	w := newWorld(t, fairlock.Config{})
	lease := w.lock(t)
	w.clock.Jump(ttl) // time has passed, no timer has run yet
	select {
	case <-lease.Done():
	default:
		t.Fatal("Done is open")
	}
	require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
	require.ErrorIs(t, lease.Unlock(context.Background()), fairlock.ErrLost)
}

func TestUnlockOfAPausedProcessDoesNotAsk(t *testing.T) {
	w := newWorld(t, fairlock.Config{})
	lease := w.lock(t)
	w.clock.Jump(ttl - margin)
	require.ErrorIs(t, lease.Unlock(context.Background()), fairlock.ErrLost)
	assert.True(t, w.server.Exists("fairlock:{x}:lock"))
}

func TestTheFenceGrowsWhenTheServersClockStepsBack(t *testing.T) {
	w := newWorld(t, fairlock.Config{})
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	var last uint64
	for i := range 50 {
		w.server.SetTime(now.Add(-time.Duration(i) * time.Hour))
		lease := w.lock(t)
		require.Greater(t, lease.Fence(), last)
		require.Less(t, lease.Fence(), uint64(1)<<53)
		last = lease.Fence()
		require.NoError(t, lease.Unlock(context.Background()))
	}
}

func TestAHandoverIsUsedOnlyWhileTheReckoningAllowsIt(t *testing.T) {
	for name, c := range map[string]struct {
		patience, wait time.Duration
		handed         bool
	}{
		"at once":                   {6 * time.Second, 0, true},
		"just before the next beat": {6 * time.Second, 1999 * time.Millisecond, true},
		"little patience":           {4 * time.Second, 1300 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fairlock.Config{WaiterTTL: c.patience})
			start := w.clock.Now()
			w.server.SetTime(start)
			contend := func(wait time.Duration) (fairlock.GrantedInfo, *fairlock.Lease) {
				first := w.lock(t)
				<-w.granted
				leases := make(chan *fairlock.Lease, 1)
				go func() {
					lease, err := w.client.Mutex("x").Lock(context.Background())
					assert.NoError(t, err)
					leases <- lease
				}()
				<-w.queued
				w.server.SetTime(start.Add(wait))
				w.pass(wait)
				require.NoError(t, first.Unlock(context.Background()))
				return <-w.granted, <-leases
			}
			_, lease := contend(0) // the subscription comes up, which has every waiter look again
			<-w.subscribed
			require.NoError(t, lease.Unlock(context.Background()))
			grant, lease := contend(c.wait)
			assert.Equal(t, c.handed, grant.Handoff)
			want := w.clock.Now().Add(ttl - margin)
			if c.handed { // from the question on, not from the message
				want = start.Add(c.patience - c.wait - margin)
			}
			assert.Equal(t, want, lease.Deadline())
			require.NoError(t, lease.Unlock(context.Background()))
		})
	}
}
