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
	lease, err := s.locks.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

func (s *ourSession) close() {
	s.locks.Close()
	_ = s.redis.Close()
}
