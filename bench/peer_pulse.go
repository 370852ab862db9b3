package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"goa.design/pulse/semaphore"
)

// pulse has an object with a name for each semaphore. A mutex is one with one permit.
var pulsePeer = peer{
	name: "pulse", module: "goa.design/pulse",
	settings: "`semaphore.New` with a limit of 1, `WithLeaseTTL`, and a heartbeat each third of it",
	sends:    []string{"eval", "evalsha", "subscribe", "unsubscribe"},
	look:     "`Err` of its lease",
	open: func(addr string, ttl time.Duration) (session, error) {
		return &pulseSession{redis: newRedis(addr), ttl: ttl}, nil
	},
}

type pulseSession struct {
	redis *redis.Client
	ttl   time.Duration
	locks sync.Map // name → *semaphore.Semaphore
}

func (s *pulseSession) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	g, err := s.hold(ctx, name)
	return g.unlock, err
}

func (s *pulseSession) hold(ctx context.Context, name string) (grant, error) {
	known, ok := s.locks.Load(name)
	if !ok {
		made, err := semaphore.New(s.redis, name, 1, semaphore.WithLeaseTTL(s.ttl), semaphore.WithHeartbeatInterval(s.ttl/3))
		if err != nil {
			return grant{}, err
		}
		known, _ = s.locks.LoadOrStore(name, made)
	}
	lease, err := known.(*semaphore.Semaphore).Acquire(ctx)
	if err != nil {
		return grant{}, err
	}
	return grant{unlock: lease.Release, look: func(context.Context) error { return lease.Err() }}, nil
}

func (s *pulseSession) close() { _ = s.redis.Close() }
