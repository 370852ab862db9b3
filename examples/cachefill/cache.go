package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Cache is a cache in Redis. However many processes miss an entry at once, one of them computes it.
type Cache struct {
	rdb   *redis.Client
	locks *fairlock.Client
	lasts time.Duration // how long an entry lasts
}

// Get returns the entry of a key. If there is none it computes it, or waits until another caller has.
func (c *Cache) Get(
	ctx context.Context, key string, compute func(ctx context.Context) (string, error),
) (string, error) {
	value, err := c.read(ctx, key) // without a lock: this is what happens nearly always
	if !errors.Is(err, redis.Nil) {
		return value, err
	}
	err = c.locks.Mutex("cache:"+key).Do(ctx, func(ctx context.Context) (err error) {
		// Look again: whoever was first in line has filled it meanwhile. If that one failed, or crashed, it is our turn.
		value, err = c.read(ctx, key)
		if !errors.Is(err, redis.Nil) {
			return err
		}
		if value, err = compute(ctx); err != nil {
			return err
		}
		return c.rdb.Set(ctx, entry(key), value, c.lasts).Err()
	})
	return value, err
}

func (c *Cache) read(ctx context.Context, key string) (string, error) {
	return c.rdb.Get(ctx, entry(key)).Result()
}

func entry(key string) string { return "cache:" + key }
