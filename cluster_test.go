package fairlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// A master stays dead, and its replica is elected: no call fails, the holder holds on, and its locks go on soon after.
//
//fairlock:fault A master of a cluster stays dead: the Redis client reads once a second which master has its slots, so its locks go on after the election
func TestCluster_MasterStaysDead(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, "--cluster-node-timeout", "1000")
	replica := cluster.AddReplica(0, "--cluster-node-timeout", "1000")
	rdb := cluster.Client()
	var name string
	for i := 0; name == ""; i++ { // of a lock on the first master
		n := fmt.Sprintf("lock %d", i)
		master, err := rdb.MasterForKey(t.Context(), "fairlock:{"+n+"}:lock")
		require.NoError(t, err)
		if master.Options().Addr == cluster.Masters[0].Addr() {
			name = n
		}
	}
	a := newClient(t, rdb, fairlock.Config{TTL: time.Minute}).Mutex(name)
	b := newClient(t, cluster.Client(), fairlock.Config{}).Mutex(name)
	held := hold(t, a.Lock)
	next := join(t, b, b.Lock)
	cluster.Masters[0].Replicated(replica)
	cluster.Masters[0].Kill()
	killed := time.Now()
	released := make(chan error, 1)
	go func() { released <- held.Unlock(t.Context()) }()
	promoted := replica.Client()
	until(t, func() bool { return redistest.Info(t, promoted, "replication", "role") == "master" })
	elected := time.Now()
	require.NoError(t, <-released)
	unlock(t, next.granted(t))
	t.Logf("elected after %v, granted %v later", elected.Sub(killed), time.Since(elected))
	assert.Less(t, time.Since(elected), time.Second+slack)
}

// The slot of locks moves while they are free, held and contended. No caller sees TRYAGAIN, ASK or MOVED, nothing is lost, and
// the order is kept.
//
//fairlock:fault A slot of a cluster moves: no call fails while its ctx or its lease lasts, nothing is lost, and the order is kept
func TestCluster_SlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	clients := []*fairlock.Client{}
	for range 3 {
		clients = append(clients, newClient(t, cluster.Client(), fairlock.Config{TTL: time.Minute}))
	}
	master, err := cluster.Client().MasterForKey(t.Context(), "{x}")
	require.NoError(t, err)
	from, to := cluster.Masters[0], cluster.Masters[1]
	if master.Options().Addr != from.Addr() {
		from, to = to, from
	}
	var stop atomic.Bool
	var calls atomic.Int64
	var work sync.WaitGroup
	for _, of := range locks {
		for _, c := range clients {
			l := of(c)
			work.Go(func() {
				for !stop.Load() {
					lease, err := l.acquire(l.all)(t.Context())
					if !assert.NoError(t, err, l.kind) {
						return
					}
					time.Sleep(20 * time.Millisecond) // so that others queue
					assert.NoError(t, lease.Renew(t.Context()), l.kind)
					assert.NoError(t, lease.Unlock(t.Context()), l.kind)
					calls.Add(3)
				}
			})
		}
	}
	open := func() { time.Sleep(2 * time.Second) } // requests meet the slot in this state
	until(t, func() bool { return calls.Load() > 0 })
	for range 2 { // there, and back
		cluster.Move("{x}", from, to, open, open)
		from, to = to, from
		moved, before := time.Now(), calls.Load()
		until(t, func() bool { return calls.Load() > before+30 })
		t.Logf("%d calls; they go on %v after the slot has moved", calls.Load(), time.Since(moved))
	}
	stop.Store(true)
	work.Wait()
	for _, of := range locks {
		l := of(clients[0])
		held := hold(t, l.acquire(l.all))
		var queue []*acquisition
		for i := range 4 {
			queue = append(queue, join(t, l, of(clients[i%3]).acquire(l.all)))
		}
		if l.kind == "mutex" {
			cluster.Move("{x}", from, to, func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				require.NoError(t, held.Renew(ctx))
			}, func() {})
			from, to = to, from
		}
		inOrder(t, held, queue)
	}
}
