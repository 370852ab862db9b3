package redistest

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is how many slots a Redis Cluster has.
const slots = 16384

// Cluster is a Redis Cluster of the test's own: masters without replicas.
type Cluster struct {
	Masters []*Server
	tb      testing.TB
}

// StartCluster starts a cluster of that many masters, each with its share of the slots, and waits until it is complete.
// The others keep serving their slots if one of them is killed.
func StartCluster(tb testing.TB, masters int, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	args = append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes", "--cluster-require-full-coverage", "no",
	}, args...)
	for i := range masters {
		c.Masters = append(c.Masters, StartTCP(tb, args...))
		c.give(i, i*slots/masters, (i+1)*slots/masters)
	}
	c.meet()
	c.settle()
	return c
}

// give assigns slots to the i-th master, and an epoch of its own, so that the masters need not agree on one.
func (c *Cluster) give(i, from, to int) {
	c.tb.Helper()
	ctx, rdb := context.Background(), c.Masters[i].Client()
	if err := rdb.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
		c.tb.Fatal(err)
	}
	if err := rdb.ClusterAddSlotsRange(ctx, from, to-1).Err(); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) meet() {
	c.tb.Helper()
	for _, m := range c.Masters[1:] {
		host, port, _ := net.SplitHostPort(m.Addr())
		if err := c.Masters[0].Client().ClusterMeet(context.Background(), host, port).Err(); err != nil {
			c.tb.Fatal(err)
		}
	}
}

// settle waits until every master knows the master of every slot.
func (c *Cluster) settle() {
	c.tb.Helper()
	until := time.Now().Add(30 * time.Second)
	for _, m := range c.Masters {
		rdb := m.Client()
		for ; ; time.Sleep(20 * time.Millisecond) { // no event says so
			info, err := rdb.ClusterInfo(context.Background()).Result()
			if err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(slots)) {
				break
			}
			if time.Now().After(until) {
				c.tb.Fatalf("the cluster did not become ready: %v\n%s", err, info)
			}
		}
	}
}

// Client returns a client of the cluster, closed when the test ends.
func (c *Cluster) Client() *redis.ClusterClient {
	addrs := make([]string, len(c.Masters))
	for i, m := range c.Masters {
		addrs[i] = m.Addr()
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	c.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
