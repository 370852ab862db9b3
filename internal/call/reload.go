package call

import (
	"context"
	"sync"
	"time"
)

// reloadable is a Redis client that knows which master has which slots, and can read that anew: a *redis.ClusterClient.
// It does so in the background.
type reloadable interface{ ReloadState(ctx context.Context) }

// reloadInterval is how long after one reload another may follow.
const reloadInterval = time.Second

// reloader has the Redis client read anew which master has which slots, while requests fail or hang. By itself,
// go-redis does so only after a reply, or with its next request after 10 s, and until then goes on calling a master
// that is dead.
type reloader struct {
	rdb reloadable // nil: there is nothing to reload

	mu sync.Mutex
	at time.Time // guarded by mu: of the latest reload
}

// reload reloads, unless that was done less than a second ago. It returns after how long another reload may follow.
func (c *Calls) reload() time.Duration {
	if c.reloader.rdb == nil {
		return reloadInterval
	}
	if wait := c.reloader.due(c.clock.Now()); wait > 0 {
		return wait
	}
	if life := c.tasks.Life(); life.Err() == nil {
		c.reloader.rdb.ReloadState(life)
	}
	return reloadInterval
}

// due returns after how long a reload is due. If it is due now, it counts as done.
func (r *reloader) due(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since := now.Sub(r.at); !r.at.IsZero() && since < reloadInterval {
		return reloadInterval - since
	}
	r.at = now
	return 0
}
