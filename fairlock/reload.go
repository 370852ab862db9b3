package fairlock

import (
	"context"
	"sync"
	"time"
)

// reloadable is a Redis client that knows which master has which slots, and can read that anew: a *redis.ClusterClient. It does
// so in the background.
type reloadable interface{ ReloadState(ctx context.Context) }

const (
	// slow is for how long a request may be in flight until its master may be dead.
	slow = 500 * time.Millisecond
	// reloadInterval is how long after one reload another may follow.
	reloadInterval = time.Second
)

// reloader has the Redis client read anew which master has which slots, while requests fail or hang. By itself, go-redis does so
// only after a reply, or with its next request after 10 s, and until then goes on calling a master that is dead.
type reloader struct {
	rt  *runtime
	rdb reloadable // nil: there is nothing to reload

	mu sync.Mutex
	at time.Time // guarded by mu: of the latest reload
}

func newReloader(rt *runtime, rdb Redis) *reloader {
	cluster, _ := rdb.(reloadable)
	return &reloader{rt: rt, rdb: cluster}
}

// reload reloads, unless that was done less than a second ago. It returns after how long another reload may follow.
func (r *reloader) reload() time.Duration {
	now := r.rt.clock.Now()
	r.mu.Lock()
	if since := now.Sub(r.at); !r.at.IsZero() && since < reloadInterval {
		r.mu.Unlock()
		return reloadInterval - since
	}
	r.at = now
	r.mu.Unlock()
	if r.rt.life.Err() == nil {
		r.rdb.ReloadState(r.rt.life)
	}
	return reloadInterval
}
