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

// Options returns the options of a client of the cluster.
func (c *Cluster) Options() *redis.ClusterOptions {
	addrs := make([]string, len(c.Masters))
	for i, m := range c.Masters {
		addrs[i] = m.Addr()
	}
	return &redis.ClusterOptions{Addrs: addrs}
}

// Client returns a client of the cluster, closed when the test ends.
func (c *Cluster) Client() *redis.ClusterClient {
	rdb := redis.NewClusterClient(c.Options())
	c.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// AddReplica starts a replica of the i-th master, and waits until it has everything and all masters know it.
func (c *Cluster) AddReplica(i int, args ...string) *Server {
	c.tb.Helper()
	args = append([]string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes", "--cluster-require-full-coverage",
		"no"}, args...)
	replica, ctx := StartTCP(c.tb, args...), context.Background()
	rdb, id := replica.Client(), c.id(c.Masters[i])
	host, port, _ := net.SplitHostPort(c.Masters[i].Addr())
	if err := rdb.ClusterMeet(ctx, host, port).Err(); err != nil {
		c.tb.Fatal(err)
	}
	c.await("the replica", func() bool { return rdb.ClusterReplicate(ctx, id).Err() == nil })
	c.await("the replica", func() bool { return Info(c.tb, rdb, "replication", "master_link_status") == "up" })
	for _, m := range c.Masters {
		c.await("the masters", func() bool { return strings.Contains(m.nodes(c.tb), replica.Addr()+"@") })
	}
	return replica
}

func (c *Cluster) await(what string, ready func() bool) {
	c.tb.Helper()
	for until := time.Now().Add(30 * time.Second); !ready(); time.Sleep(20 * time.Millisecond) { // no event says so
		if time.Now().After(until) {
			c.tb.Fatalf("%s did not become ready", what)
		}
	}
}

func (s *Server) nodes(tb testing.TB) string {
	tb.Helper()
	rdb := redis.NewClient(s.Options())
	defer func() { _ = rdb.Close() }()
	text, err := rdb.ClusterNodes(context.Background()).Result()
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// id is the node id of a server.
func (c *Cluster) id(s *Server) string {
	c.tb.Helper()
	for line := range strings.Lines(s.nodes(c.tb)) {
		if strings.Contains(line, "myself") {
			return line[:strings.IndexByte(line, ' ')]
		}
	}
	c.tb.Fatal("a node does not know itself")
	return ""
}

// Move moves the slot of a key from one master to another. While the slot is open, begun runs; then all its keys move
// at once, and halfway runs before the slot is closed.
func (c *Cluster) Move(key string, from, to *Server, begun, halfway func()) {
	c.tb.Helper()
	ctx, source, target := context.Background(), from.Client(), to.Client()
	slot, err := source.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		c.tb.Fatal(err)
	}
	do := func(rdb *redis.Client, args ...any) {
		c.tb.Helper()
		if err := rdb.Do(ctx, args...).Err(); err != nil {
			c.tb.Fatal(args, err)
		}
	}
	do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.id(from))
	do(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.id(to))
	begun()
	host, port, _ := net.SplitHostPort(to.Addr())
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), 1).Result()
		if err != nil {
			c.tb.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		do(source, "MIGRATE", host, port, keys[0], 0, 5000)
		time.Sleep(50 * time.Millisecond) // a slot moves key by key
	}
	halfway()
	for _, rdb := range []*redis.Client{target, source} {
		do(rdb, "CLUSTER", "SETSLOT", slot, "NODE", c.id(to))
	}
}
