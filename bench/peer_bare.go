package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var barePair = peer{
	name: "bare pair", module: "github.com/redis/go-redis/v9", free: true,
	settings: "`SET NX PX` and a compare-and-delete script; it does not wait and does not renew",
	sends:    []string{"set", "eval", "evalsha"},
	open: func(addr string, ttl time.Duration) (session, error) {
		rdb := newRedis(addr)
		return &bareSession{redis: rdb, ttl: ttl, remove: func(ctx context.Context, name, token string) *redis.Cmd {
			return compareAndDelete.Run(ctx, rdb, []string{name}, token)
		}}, nil
	},
}

var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// deletingPairs are bare pairs whose second command is no script. Few servers have such a command.
var deletingPairs = []peer{
	deletingPair("delex", "Redis 8.4", func(name, token string) []any { return []any{"delex", name, "ifeq", token} }),
	deletingPair("delifeq", "Valkey 9", func(name, token string) []any { return []any{"delifeq", name, token} }),
}

func deletingPair(command, since string, args func(name, token string) []any) peer {
	upper := strings.ToUpper(command)
	return peer{
		name: "bare pair, " + upper, module: barePair.module, free: true, needs: command,
		settings: "`SET NX PX` and `" + upper + "`, which " + since + " and later have; it does not wait and does not renew",
		sends:    []string{"set", command},
		open: func(addr string, ttl time.Duration) (session, error) {
			rdb := newRedis(addr)
			return &bareSession{redis: rdb, ttl: ttl, remove: func(ctx context.Context, name, token string) *redis.Cmd {
				return rdb.Do(ctx, args(name, token)...)
			}}, nil
		},
	}
}

type bareSession struct {
	redis  *redis.Client
	ttl    time.Duration
	remove func(ctx context.Context, name, token string) *redis.Cmd
	last   atomic.Int64
}

func (s *bareSession) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	token := "token-" + strconv.FormatInt(s.last.Add(1), 10)
	if err := s.redis.Do(ctx, "set", name, token, "nx", "px", s.ttl.Milliseconds()).Err(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		n, err := s.remove(ctx, name, token).Int()
		if err == nil && n != 1 {
			err = errors.New("bare pair: not released")
		}
		return err
	}, nil
}

func (s *bareSession) close() { _ = s.redis.Close() }
