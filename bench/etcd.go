//go:build nightly

package main

import (
	"context"
	"net/url"
	"sync"
	"time"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func init() {
	etcd = &etcdModules{etcdversion.Version, openEtcd, serveEtcd}
}

func openEtcd(addr string, ttl time.Duration) (session, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	return &etcdSession{client: c, ttl: ttl}, err
}

func serveEtcd(e etcdServer) (ready <-chan struct{}, stop func(), err error) {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.UnsafeNoFsync = e.Dir, "error", true
	client, peer := url.URL{Scheme: "http", Host: e.Client}, url.URL{Scheme: "http", Host: e.Peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, nil, err
	}
	return server.Server.ReadyNotify(), server.Close, nil
}

// etcdSession has unused leases, for the next callers of Lock. Two mutexes of one lease have the same owner, so each
// goroutine that locks needs a lease of its own.
type etcdSession struct {
	client *clientv3.Client
	ttl    time.Duration

	mu   sync.Mutex
	idle []*concurrency.Session // guarded by mu
}

func (s *etcdSession) lease() (*concurrency.Session, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		defer s.mu.Unlock()
		lease := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return lease, nil
	}
	s.mu.Unlock()
	return concurrency.NewSession(s.client, concurrency.WithTTL(int(s.ttl/time.Second)))
}

func (s *etcdSession) putBack(lease *concurrency.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, lease)
}

func (s *etcdSession) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	g, err := s.hold(ctx, name)
	return g.unlock, err
}

func (s *etcdSession) hold(ctx context.Context, name string) (grant, error) {
	lease, err := s.lease()
	if err != nil {
		return grant{}, err
	}
	m := concurrency.NewMutex(lease, name)
	if err := m.Lock(ctx); err != nil {
		s.putBack(lease)
		return grant{}, err
	}
	unlock := func(ctx context.Context) error {
		defer s.putBack(lease)
		return m.Unlock(ctx)
	}
	look := func(context.Context) error {
		select {
		case <-lease.Done():
			return errLost
		default:
			return nil
		}
	}
	return grant{unlock, look, uint64(m.Header().Revision)}, nil
}

func (s *etcdSession) close() {
	var all sync.WaitGroup
	for _, lease := range s.idle {
		all.Go(func() { _ = lease.Close() })
	}
	all.Wait()
	_ = s.client.Close()
}
