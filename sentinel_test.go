package fairlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// contended is a lock that one client holds and two others wait for.
type contended struct {
	lockUnderTest

	held          *fairlock.Lease
	second, third *acquisition
}

// contendedThroughSentinels has three clients contend for a lock of each kind. The replicas know of it.
func contendedThroughSentinels(
	t *testing.T, s *redistest.Sentinels, trace *fairlock.Trace,
) (clients []*fairlock.Client, all []contended) {
	t.Helper()
	for range 3 {
		clients = append(clients, newClient(t, s.Client(), fairlock.Config{Trace: trace}))
	}
	for _, of := range locks {
		l := of(clients[0])
		c := contended{lockUnderTest: l, held: hold(t, l.acquire(l.all))}
		c.second = join(t, l, of(clients[1]).acquire(l.all))
		c.third = join(t, l, of(clients[2]).acquire(l.all))
		all = append(all, c)
	}
	s.Replicated()
	return clients, all
}

// switched waits until the sentinels name another primary, and returns when, and which.
func switched(t *testing.T, s *redistest.Sentinels, old *redistest.Server) (time.Time, *redistest.Server) {
	t.Helper()
	var now *redistest.Server
	until(t, func() bool {
		now = s.Primary()
		return now != nil && now != old
	})
	return time.Now(), now
}

const (
	// redials is how long go-redis may go without an attempt to connect: when as many as its PoolSize have failed, it tries one a
	// second, and all requests fail at once meanwhile. With four requests in flight and the default PoolSize for two processors,
	// 9.7.3 comes to that after 0.2 s, 9.23 after 2 s.
	redials = time.Second
	// pause is the longest of this library's own.
	pause = 250 * time.Millisecond
	// slack is for a busy machine.
	slack = time.Second
)

// The primary is killed: nobody's call fails, also not one that begins meanwhile, the holder holds on, and the lock goes through
// the queue in order, soon after the sentinels name the new primary.
//
//fairlock:fault The primary is killed, and Sentinel promotes a replica: no call fails while its ctx lasts, the holder holds on, and the next grant follows the sentinels' choice
func TestSentinel_PrimaryIsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t, 2)
	clients, all := contendedThroughSentinels(t, s, nil)
	s.Servers[0].Kill()
	killed := time.Now()
	first := begin(t, clients[0].Mutex("first").Lock)
	renewed := make(chan error, len(all))
	for _, c := range all {
		go func() {
			if err := c.held.Renew(t.Context()); err != nil {
				renewed <- err
				return
			}
			renewed <- c.held.Unlock(t.Context())
		}()
	}
	named, _ := switched(t, s, s.Servers[0])
	unlock(t, first.granted(t))
	for range all {
		require.NoError(t, <-renewed)
	}
	for _, c := range all {
		held := c.second.granted(t)
		t.Logf("%s: granted %v after the kill, %v after the sentinels named the new primary", c.kind, time.Since(killed), time.Since(named))
		assert.Greater(t, held.Fence(), c.held.Fence())
		assert.True(t, c.third.pending())
		unlock(t, held)
		unlock(t, c.third.granted(t))
	}
	assert.Less(t, time.Since(named), redials+pause+slack)
}

// A planned failover: nobody's call fails, the next grant follows within 3 s, or when the lease has ended whose release it has
// lost, and 3 s after it each client is woken by messages again.
//
//fairlock:fault A planned failover of Sentinel: no call fails while its ctx lasts, and 3 s later each client that waits is woken by messages again
func TestSentinel_PlannedFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinels(t, 2)
	var lostNotifications atomic.Int64
	clients, all := contendedThroughSentinels(t, s, &fairlock.Trace{NotificationLost: func(fairlock.Event) { lostNotifications.Add(1) }})
	s.FailOver()
	began := time.Now()
	named, primary := switched(t, s, s.Servers[0])
	first := begin(t, clients[0].Mutex("first").Lock)
	rdb := primary.Client()
	until(t, func() bool { // clients that wait: the second and the third
		for _, c := range clients[1:] {
			channel := lua.NotificationChannel(lua.DefaultNamespace, c.Name())
			n, err := rdb.PubSubNumSub(t.Context(), channel).Result()
			if err != nil || n[channel] != 1 {
				return false
			}
		}
		return true
	})
	t.Logf("the sentinels named the new primary after %v; all subscriptions are there %v later", named.Sub(began), time.Since(named))
	assert.Less(t, time.Since(named), 3*time.Second)
	if err := first.granted(t).Unlock(t.Context()); err != nil { // the old primary had granted it
		require.ErrorIs(t, err, fairlock.ErrLost)
	}
	for _, c := range all {
		ctx, cancel := context.WithTimeout(t.Context(), fairlock.DefaultTTL)
		require.NoError(t, c.held.Renew(ctx))
		cancel()
		unlocked := time.Now()
		unlock(t, c.held)
		held := c.second.granted(t)
		t.Logf("%s: granted %v after the release", c.kind, time.Since(unlocked))
		assert.Zero(t, lostNotifications.Load(), "it is woken by a message")
		assert.True(t, c.third.pending())
		unlock(t, held)
		unlock(t, c.third.granted(t))
	}
}
