package main

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var barePair = peer{
	name: "bare pair", module: "github.com/redis/go-redis/v9", free: true,
	settings: "`SET NX PX` and a compare-and-delete script; it does not wait and does not renew",
	sends:    []string{"set", "eval", "evalsha"},
	open: func(addr string, ttl time.Duration) (session, error) {
		return &bareSession{redis: newRedis(addr), ttl: ttl}, nil
	},
}

var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

type bareSession struct {
	redis *redis.Client
	ttl   time.Duration
	last  atomic.Int64
}

func (s *bareSession) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	token := "token-" + strconv.FormatInt(s.last.Add(1), 10)
	if err := s.redis.Do(ctx, "set", name, token, "nx", "px", s.ttl.Milliseconds()).Err(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		n, err := compareAndDelete.Run(ctx, s.redis, []string{name}, token).Int()
		if err == nil && n != 1 {
			err = errors.New("bare pair: not released")
		}
		return err
	}, nil
}

func (s *bareSession) close() { _ = s.redis.Close() }
