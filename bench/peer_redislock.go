package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

const redislockPoll = 5 * time.Millisecond

// redislock has no default for how often it polls. Obtain gives up after one TTL if its ctx has no deadline.
var redislockPeer = peer{
	name: "redislock", module: "github.com/bsm/redislock",
	settings: "`Obtain` with `LinearBackoff(5 ms)`, and a ctx with a far deadline, so that it waits; it does not renew",
	sends:    []string{"eval", "evalsha"},
	look:     "its `TTL`, which asks Redis",
	open: func(addr string, ttl time.Duration) (session, error) {
		rdb := newRedis(addr)
		return &redislockSession{rdb, redislock.New(rdb), ttl}, nil
	},
}

type redislockSession struct {
	redis *redis.Client
	locks *redislock.Client
	ttl   time.Duration
}

func (s *redislockSession) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	g, err := s.hold(ctx, name)
	return g.unlock, err
}

func (s *redislockSession) hold(ctx context.Context, name string) (grant, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	lock, err := s.locks.Obtain(ctx, name, s.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(
		redislockPoll)})
	if err != nil {
		return grant{}, err
	}
	look := func(ctx context.Context) error {
		left, err := lock.TTL(ctx)
		if err == nil && left == 0 {
			err = errLost
		}
		return err
	}
	return grant{unlock: lock.Release, look: look}, nil
}

func (s *redislockSession) close() { _ = s.redis.Close() }
