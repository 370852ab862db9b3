package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// masterName is what the sentinels call the primary.
const masterName = "primary"

// Sentinels are three sentinels that watch a primary with replicas. They consider it down after a second.
type Sentinels struct {
	Servers []*Server // the first is the primary at the start
	tb      testing.TB
	addrs   []string
	rdbs    []*redis.SentinelClient
}

// StartSentinels starts a primary, that many replicas, and the sentinels, and waits until each of these knows all
// others.
func StartSentinels(tb testing.TB, replicas int) *Sentinels {
	tb.Helper()
	s := &Sentinels{Servers: []*Server{StartTCP(tb, "--repl-diskless-sync-delay", "0")}, tb: tb}
	host, port, err := net.SplitHostPort(s.Servers[0].Addr())
	if err != nil {
		tb.Fatal(err)
	}
	for range replicas {
		s.Servers = append(s.Servers, StartTCP(tb, "--repl-diskless-sync-delay", "0", "--replicaof", host, port))
	}
	s.Replicated()
	for range 3 {
		// Failovers may follow each other after twice the timeout. If a server counted as down after a second, which may pass
		// until the sentinels have dialled the one that they have just promoted, they would sometimes promote another.
		own, dir := FreePort(tb), tempDir(tb)
		file := filepath.Join(dir, "sentinel.conf")
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nlogfile log\nsentinel monitor %[3]s %[4]s %[5]s 2\n"+
			"sentinel down-after-milliseconds %[3]s 2000\nsentinel failover-timeout %[3]s 3000\n", own, dir, masterName, host,
			port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		sentinel := &Server{tb: tb, network: "tcp", addr: local(own), args: []string{file, "--sentinel"},
			log: filepath.Join(dir, "log")}
		tb.Cleanup(sentinel.Kill)
		sentinel.Run()
		s.addrs = append(s.addrs, sentinel.Addr())
		rdb := redis.NewSentinelClient(sentinel.Options())
		tb.Cleanup(func() { _ = rdb.Close() })
		s.rdbs = append(s.rdbs, rdb)
	}
	for _, rdb := range s.rdbs {
		s.await("the sentinels", func() bool {
			known, err := rdb.Master(context.Background(), masterName).Result()
			return err == nil && known["num-slaves"] == fmt.Sprint(replicas) && known["num-other-sentinels"] == "2"
		})
	}
	return s
}

// Replicated waits until the replicas have everything that the first server has.
func (s *Sentinels) Replicated() {
	s.tb.Helper()
	s.Servers[0].Replicated(s.Servers[1:]...)
}

func (s *Sentinels) await(what string, ready func() bool) {
	s.tb.Helper()
	for until := time.Now().Add(30 * time.Second); !ready(); time.Sleep(20 * time.Millisecond) { // no event says so
		if time.Now().After(until) {
			s.tb.Fatalf("%s did not become ready", what)
		}
	}
}

// Options returns the options of a client that follows the sentinels.
func (s *Sentinels) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: masterName, SentinelAddrs: s.addrs}
}

// Client returns a client that follows the sentinels, closed when the test ends.
func (s *Sentinels) Client() *redis.Client {
	rdb := redis.NewFailoverClient(s.Options())
	s.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// FailOver has the sentinels promote a replica, as planned maintenance does. The primary goes on.
func (s *Sentinels) FailOver() {
	s.tb.Helper()
	if err := s.rdbs[0].Failover(context.Background(), masterName).Err(); err != nil {
		s.tb.Fatal(err)
	}
}

// Primary returns the server that all sentinels name, or nil if they do not agree or it is not one of Servers.
func (s *Sentinels) Primary() *Server {
	var named string
	for _, rdb := range s.rdbs {
		addr, err := rdb.GetMasterAddrByName(context.Background(), masterName).Result()
		if err != nil || len(addr) != 2 {
			return nil
		}
		one := net.JoinHostPort(addr[0], addr[1])
		if named != "" && one != named {
			return nil
		}
		named = one
	}
	for _, server := range s.Servers {
		if server.Addr() == named {
			return server
		}
	}
	return nil
}
