package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// peer is a lock library, set up as its documentation says.
type peer struct {
	name     string
	module   string
	settings string
	onEtcd   bool
	// sends has the Redis commands that its clients send but its scripts do not run, because INFO counts both.
	sends []string
	// free says that it does not wait for a lock that another one holds.
	free bool
	// needs is a command that the server must have.
	needs string
	// look is what grant.look calls, and fence what grant.fence is, for the page.
	look, fence string
	open        func(addr string, ttl time.Duration) (session, error)
}

// session stands for a process: one client with connections of its own. Many goroutines use it.
type session interface {
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	close()
}

// holder is a session that can say more of a lock that it holds. All but the bare pair's are.
type holder interface {
	session
	hold(ctx context.Context, name string) (grant, error)
}

// grant is a lock that is held.
type grant struct {
	unlock func(context.Context) error
	// look returns an error if the library says that the lock is lost, by what it has for that.
	look  func(context.Context) error
	fence uint64 // 0: it has none
}

// errLost is what look returns where the library does not return an error.
var errLost = errors.New("the lock is lost")

// peers in the order in which the page has them. The first is the floor, the second this library.
var peers = []peer{barePair, ours, pulsePeer, redsyncPeer, redislockPeer, rueidislockPeer, etcdPeer}

// newRedis returns a client of go-redis, set up as fairlock's README says. All peers that use go-redis get the same.
func newRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}
