package fairlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// reloading is a client that notes when it is to read anew which master has which slots.
type reloading struct {
	*redis.Client

	mu  sync.Mutex
	all []time.Time // guarded by mu
}

func (r *reloading) ReloadState(context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, time.Now())
}

// since returns when that was, counted from start.
func (r *reloading) since(start time.Time) (all []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.all {
		all = append(all, at.Sub(start))
	}
	return all
}

// The state of a Cluster is read again once a second while a request hangs for longer than 500 ms, or fails without a
// reply. It is not read while requests have replies, even if the server cannot serve them.
//
//fairlock:fault A master of a cluster stays dead: the Redis client reads once a second which master has its slots, so its locks go on after the election
func TestReload(t *testing.T) {
	const half = 500 * time.Millisecond
	type example struct {
		fault func(*fairlocktest.Server, *fairlocktest.Link)
		want  []time.Duration // in 2.9 s
	}
	bubbles(t, map[string]example{
		"slow replies": {func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Delay(half/2, half/2-1) }, nil},
		"refuses": {func(s *fairlocktest.Server, _ *fairlocktest.Link) {
			s.Miniredis.SetError("CLUSTERDOWN Hash slot not served")
		}, nil},
		"hangs":       {func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Hang() }, []time.Duration{half, 3 * half, 5 * half}},
		"connections": {func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Cut() }, []time.Duration{0, 2 * half, 4 * half}},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		link := s.Link()
		rdb := &reloading{Client: link.Redis()}
		client, err := fairlock.New(rdb, fairlock.Config{})
		require.NoError(t, err)
		defer client.Close()
		defer link.Mend()
		lease := hold(t, client.Mutex("x", fairlock.WithTTL(time.Hour)).Lock)
		c.fault(s, link)
		defer s.Miniredis.SetError("")
		start := time.Now()
		for time.Since(start) < 2900*time.Millisecond {
			request, cancel := context.WithDeadline(t.Context(), start.Add(2900*time.Millisecond))
			if _, err := lease.Waiting(request); err == nil {
				time.Sleep(half)
			}
			cancel()
		}
		var all []time.Duration
		for _, at := range rdb.since(start) {
			all = append(all, at.Truncate(half))
		}
		assert.Equal(t, c.want, all)
	})
}
