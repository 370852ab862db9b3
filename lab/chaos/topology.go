//go:build unix

package chaos

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/lab/chaos/internal/monitor"
)

// topology starts the servers of a run, and sets how clients reach them.
type topology func(*trial)

func oneServer(t *trial) {
	t.server = redistest.Start(t.t, t.scenario.args...)
	t.servers, t.addrs = []*redistest.Server{t.server}, []string{t.server.Addr()}
	var err error
	t.monitor, err = monitor.Start(t.server.Network(), t.server.Addr(), waiterTTL, now)
	require.NoError(t.t, err)
	t.t.Cleanup(func() { t.monitor.Close() })
}

// replicated is a server that is the primary, or a replica that may become it.
type replicated struct {
	*redistest.Server

	rdb *redis.Client
}

func (t *trial) replicate(servers ...*redistest.Server) {
	for _, s := range servers {
		t.replicas = append(t.replicas, replicated{s, s.Client()})
	}
}

// threeSentinels watch a primary and two replicas.
func threeSentinels(t *trial) {
	s := redistest.StartSentinels(t.t, 2)
	t.addrs, t.master = s.Options().SentinelAddrs, s.Options().MasterName
	for _, addr := range t.addrs {
		rdb := redis.NewSentinelClient(&redis.Options{Addr: addr})
		t.t.Cleanup(func() { _ = rdb.Close() })
		t.sentinels = append(t.sentinels, rdb)
	}
	t.servers = s.Servers
	t.replicate(s.Servers...)
}

// threeMasters are a cluster without replicas.
func threeMasters(t *trial) {
	t.cluster = redistest.StartCluster(t.t, 3, t.scenario.args...)
	t.servers = t.cluster.Masters
	homes, rdb := map[string]*redistest.Server{}, t.cluster.Client()
	for _, s := range t.servers {
		t.addrs, homes[s.Addr()] = append(t.addrs, s.Addr()), s
	}
	t.homes = map[string]*redistest.Server{}
	for _, name := range t.locks {
		master, err := rdb.MasterForKey(t.t.Context(), script.KeysOf("mutex", bounds.DefaultNamespace, name).Part("number"))
		require.NoError(t.t, err)
		t.homes[name] = homes[master.Options().Addr]
	}
}

// threeMastersAndReplica are a cluster in which one master has a replica.
func threeMastersAndReplica(t *trial) {
	threeMasters(t)
	replica := t.cluster.AddReplica(0, t.scenario.args...)
	t.replicate(t.servers[0], replica)
	t.servers = append(t.servers, replica)
	for _, name := range t.locks {
		if t.homes[name] == t.servers[0] {
			t.losable = append(t.losable, name)
		}
	}
	require.NotEmpty(t.t, t.losable)
}

// info is a field of what a server says of its replication.
func (t *trial) info(s replicated, field string) string {
	return redistest.Info(t.t, s.rdb, "replication", field)
}

// primary returns the primary, when the others are its replicas, and have its data.
func (t *trial) primary() (primary replicated, err error) {
	err = await("a primary with replicas", func() bool {
		primary = replicated{}
		for _, s := range t.replicas {
			switch {
			case t.info(s, "role") == "slave":
				if t.info(s, "master_link_status") != "up" {
					return false
				}
			case primary.rdb != nil: // the sentinels have not made it a replica yet
				return false
			default:
				primary = s
			}
		}
		return primary.rdb != nil && t.info(primary, "connected_slaves") == strconv.Itoa(len(t.replicas)-1)
	})
	return primary, err
}

// succession waits until another server is the primary, beside the old one or in its place, and all sentinels name it.
// Then no client connects to the old one.
func (t *trial) succession(old replicated) error {
	return await("another primary", func() bool {
		i := slices.IndexFunc(t.replicas, func(s replicated) bool { return s != old && t.info(s, "role") == "master" })
		return i >= 0 && !slices.ContainsFunc(t.sentinels, func(rdb *redis.SentinelClient) bool {
			host, port, _ := net.SplitHostPort(t.replicas[i].Addr())
			named, err := rdb.GetMasterAddrByName(context.Background(), t.master).Result()
			return err != nil || !slices.Equal(named, []string{host, port})
		})
	})
}

// freeze lets the primary accept no more writes, and waits until its replicas have all before.
func (t *trial) freeze(primary replicated) error {
	if err := primary.rdb.Do(context.Background(), "CLIENT", "PAUSE", 60_000, "WRITE").Err(); err != nil {
		return err
	}
	written, err := strconv.Atoi(t.info(primary, "master_repl_offset"))
	if err != nil {
		return err
	}
	return await("the replicas", func() bool {
		for _, s := range t.replicas {
			if s == primary {
				continue
			}
			if has, err := strconv.Atoi(t.info(s, "slave_repl_offset")); err != nil || has < written {
				return false
			}
		}
		return true
	})
}

// await waits until something is so.
func await(what string, is func() bool) error {
	for until := time.Now().Add(time.Minute); !is(); time.Sleep(10 * ms) { // no event says so
		if time.Now().After(until) {
			return fmt.Errorf("no sign of %s", what)
		}
	}
	return nil
}
