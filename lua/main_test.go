package lua_test

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/redistest"
)

// One redis-server serves all tests of this package, each in a namespace of its own, and another one those that configure
// or restart it, one after the other.
var shared, configured redisServer

type redisServer struct {
	once       sync.Once
	started    *redistest.Server
	namespaces atomic.Int64
}

// get returns the server, and a namespace that no other test uses.
func (s *redisServer) get(t testing.TB) (started *redistest.Server, namespace string) {
	t.Helper()
	s.once.Do(func() { s.started = redistest.Start(untilTheEnd{t}) })
	if s.started == nil {
		t.Fatal("the redis-server of all tests has not started")
	}
	return s.started, fmt.Sprintf("ns%d", s.namespaces.Add(1))
}

var atTheEnd []func()

// untilTheEnd is a test whose clean-up waits for the end of all tests.
type untilTheEnd struct{ testing.TB }

func (untilTheEnd) Cleanup(stop func()) { atTheEnd = append(atTheEnd, stop) }

// TestMain stops the servers. A random test makes fewer checks than by default, unless -rapid.checks says how many.
func TestMain(m *testing.M) {
	flag.Parse()
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("20")
	}
	code := m.Run()
	for _, stop := range atTheEnd {
		stop()
	}
	os.Exit(code)
}

// client returns a client of a server, closed when the test ends.
func client(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
