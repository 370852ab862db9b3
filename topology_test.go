package fairlock_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// Locks on all masters, waiters that hear of their grants over whatever master their subscription is on. A wake-up that
// did not arrive would be found by a beat after the test has given up.
func TestOnAClusterWaitersGetInInOrderAndAreWokenAtOnce(t *testing.T) {
	t.Parallel()
	const names, waiters = 6, 8
	cluster := redistest.StartCluster(t, 3)
	var clients []*fairlock.Client
	var journals []*journal
	for range 2 {
		c, j := attentive(t, cluster.Client(), lasting)
		clients, journals = append(clients, c), append(journals, j)
	}
	var all sync.WaitGroup
	for n := range names {
		name := fmt.Sprintf("lock %d", n)
		first := lock(t, clients[0].Mutex(name))
		var mu sync.Mutex
		var order []int
		for i := range waiters {
			w := enqueue(within(t, 3*soon), clients[i%2].Mutex(name))
			queued(t, clients[0].Mutex(name), i+1)
			all.Go(func() {
				lease := w.got(t)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				assert.NoError(t, lease.Unlock(context.Background()))
			})
		}
		unlock(t, first)
		all.Wait()
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order, name)
	}
	for _, j := range journals {
		assert.Zero(t, j.count("notification lost"))
	}
	for _, m := range cluster.Masters {
		for _, key := range keys(t, m.Client()) {
			assert.True(t, strings.HasSuffix(key, ":fence"), key)
		}
	}
}

// The death of a master is that of its locks, until it is back, and of no others.
func TestOnAClusterTheLocksOfOtherMastersGoOn(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	rdb := cluster.Client()
	c := newClient(t, rdb, fairlock.Config{TTL: time.Minute, WaiterTTL: 600 * time.Millisecond})
	on := map[string]fairlock.Mutex{} // address → one of its locks
	for i := 0; len(on) < 2; i++ {
		name := fmt.Sprintf("lock %d", i)
		master, err := rdb.MasterForKey(t.Context(), "fairlock:{"+name+"}:lock")
		require.NoError(t, err)
		on[master.Options().Addr] = c.Mutex(name)
	}
	dead, alive := cluster.Masters[0], on[cluster.Masters[1].Addr()]
	held := lock(t, alive)
	w := enqueue(within(t, 3*soon), alive)
	queued(t, alive, 1)
	dead.Kill()
	unlock(t, held)
	unlock(t, w.got(t)) // by a beat, if the subscription was on the dead one
	_, err := on[dead.Addr()].Lock(within(t, time.Second))
	require.Error(t, err)

	dead.Run() // and for some seconds it takes no writes
	require.Eventually(t, func() bool {
		lease, err := on[dead.Addr()].Lock(within(t, soon))
		return err == nil && lease.Unlock(context.Background()) == nil
	}, soon, 10*time.Millisecond)
}

// pair is a primary and its replica, and clients who turn to the one of them that is in charge.
type pair struct {
	t                *testing.T
	primary, replica *redistest.Server
	charge           atomic.Pointer[redistest.Server]
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, primary: redistest.StartTCP(t)}
	host, port, err := net.SplitHostPort(p.primary.Addr())
	require.NoError(t, err)
	p.replica = redistest.Start(t, "--replicaof", host, port)
	p.charge.Store(p.primary)
	p.replicated()
	return p
}

func (p *pair) client(cfg fairlock.Config) *fairlock.Client {
	p.t.Helper()
	rdb := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		s := p.charge.Load()
		return new(net.Dialer).DialContext(ctx, s.Network(), s.Addr())
	}})
	p.t.Cleanup(func() { _ = rdb.Close() })
	return newClient(p.t, rdb, cfg)
}

// replicated waits until the replica has everything.
func (p *pair) replicated() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		n, err := p.primary.Client().Wait(context.Background(), 1, 100*time.Millisecond).Result()
		return err == nil && n == 1
	}, soon, time.Millisecond)
}

// promote has the replica miss what comes from now on.
func (p *pair) promote() {
	p.t.Helper()
	require.NoError(p.t, p.replica.Client().Do(context.Background(), "replicaof", "no", "one").Err())
}

func (p *pair) failOver() {
	p.primary.Kill()
	p.charge.Store(p.replica)
}

func TestAFailoverThatLosesNothingKeepsHolderAndOrder(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	m := p.client(fairlock.Config{}).Mutex("x")
	held := lock(t, m)
	var waiters []*waiting
	for i := range 3 {
		waiters = append(waiters, enqueue(within(t, 3*soon), p.client(fairlock.Config{}).Mutex("x")))
		queued(t, m, i+1)
	}
	p.replicated()
	p.promote()
	p.failOver()
	require.NoError(t, held.Renew(within(t, soon)))
	fence := held.Fence()
	unlock(t, held)
	for i, w := range waiters {
		lease := w.got(t)
		assert.Greater(t, lease.Fence(), fence)
		fence = lease.Fence()
		for _, later := range waiters[i+1:] {
			assert.True(t, later.pending())
		}
		unlock(t, lease)
	}
}

// What no lock on Redis can prevent, and what bounds it: who was granted the lock by a primary that is forgotten finds
// out at its next renewal, and the fence of the next one is above its own.
func TestAfterAFailoverThatLosesAGrantTheFenceIsHigher(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	p := newPair(t)
	m := p.client(fairlock.Config{TTL: ttl, WaiterTTL: ttl}).Mutex("x")
	first := lock(t, m)
	p.replicated()
	p.promote()
	unlock(t, first)
	forgotten := lock(t, p.client(fairlock.Config{TTL: ttl, WaiterTTL: ttl}).Mutex("x"))
	p.failOver()
	granted := time.Now()
	next := lock(t, m)
	assert.Greater(t, next.Fence(), forgotten.Fence())
	assert.Less(t, time.Since(granted), 2*ttl)
	<-forgotten.Done()
	require.ErrorIs(t, forgotten.Err(), fairlock.ErrLost)
	unlock(t, next)
}
