package main

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

var rueidislockPeer = peer{
	name: "rueidislock", module: "github.com/redis/rueidis",
	settings: "`KeyMajority` 1 and `NoLoopTracking`, both as its README says for one Redis; leases are renewed",
	sends:    []string{"eval", "evalsha"},
	look:     "`Err` of its ctx",
	open: func(addr string, ttl time.Duration) (session, error) {
		locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1, NoLoopTracking: true,
			KeyValidity: ttl,
		})
		return &rueidislockSession{locks}, err
	},
}

type rueidislockSession struct{ locks rueidislock.Locker }

func (s *rueidislockSession) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	g, err := s.hold(ctx, name)
	return g.unlock, err
}

// hold bounds only the wait by ctx. To WithContext, the end of its ctx is also the end of the lease.
func (s *rueidislockSession) hold(ctx context.Context, name string) (grant, error) {
	holding, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	lease, release, err := s.locks.WithContext(holding, name)
	if err != nil {
		stop()
		cancel()
		return grant{}, cmp.Or(ctx.Err(), err) // err is that of holding
	}
	if !stop() {
		release()
		return grant{}, ctx.Err()
	}
	unlock := func(context.Context) error {
		release() // it returns when the key is deleted
		cancel()
		return nil
	}
	return grant{unlock: unlock, look: func(context.Context) error { return lease.Err() }}, nil
}

func (s *rueidislockSession) close() { s.locks.Close() }
