package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

var ours = peer{
	name: "fairlock", module: "github.com/fairlock/fairlock-go",
	settings: "`Mutex(name).Lock` and `Lease.Unlock`, all else default; leases are renewed",
	sends:    []string{"eval", "evalsha", "subscribe", "unsubscribe"},
	look:     "`Err` of its lease", fence: "its fence, compared by `fence.Postgres`",
	open: func(addr string, ttl time.Duration) (session, error) {
		rdb := newRedis(addr)
		locks, err := fairlock.New(rdb, fairlock.Config{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
		return &ourSession{rdb, locks}, err
	},
}

type ourSession struct {
	redis *redis.Client
	locks *fairlock.Client
}

func (s *ourSession) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	g, err := s.hold(ctx, name)
	return g.unlock, err
}

func (s *ourSession) hold(ctx context.Context, name string) (grant, error) {
	lease, err := s.locks.Mutex(name).Lock(ctx)
	if err != nil {
		return grant{}, err
	}
	return grant{lease.Unlock, func(context.Context) error { return lease.Err() }, lease.Fence()}, nil
}

func (s *ourSession) close() {
	s.locks.Close()
	_ = s.redis.Close()
}
