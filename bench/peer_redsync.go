package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// By default a redsync mutex tries 32 times. Here it waits for as long as its ctx, as the others do.
var redsyncPeer = peer{
	name: "redsync", module: "github.com/go-redsync/redsync/v4",
	settings: "one pool of go-redis, `WithTries` unlimited, so that it waits; it polls after the default 50 to 250 ms; " +
		"it does not renew",
	sends: []string{"set", "eval", "evalsha"},
	look:  "its `Until`",
	open: func(addr string, ttl time.Duration) (session, error) {
		rdb := newRedis(addr)
		return &redsyncSession{rdb, redsync.New(goredis.NewPool(rdb)), ttl}, nil
	},
}

type redsyncSession struct {
	redis *redis.Client
	locks *redsync.Redsync
	ttl   time.Duration
}

func (s *redsyncSession) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	g, err := s.hold(ctx, name)
	return g.unlock, err
}

func (s *redsyncSession) hold(ctx context.Context, name string) (grant, error) {
	m := s.locks.NewMutex(name, redsync.WithExpiry(s.ttl), redsync.WithTries(math.MaxInt32))
	if err := m.LockContext(ctx); err != nil {
		return grant{}, err
	}
	unlock := func(ctx context.Context) error {
		ok, err := m.UnlockContext(ctx)
		if err == nil && !ok {
			err = errors.New("redsync: not released")
		}
		return err
	}
	look := func(context.Context) error {
		if time.Now().After(m.Until()) {
			return errLost
		}
		return nil
	}
	return grant{unlock: unlock, look: look}, nil
}

func (s *redsyncSession) close() { _ = s.redis.Close() }
