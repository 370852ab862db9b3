package fairlock

import (
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/clock"
)

const (
	// quick is how long a direct call may take: less than the 100 ms in which Lock returns when its ctx ends.
	quick = 50 * time.Millisecond
	// patient is the least limit of a call that may begin directly.
	patient = 4 * quick
	// wary is how long no call is made directly after one took too long.
	wary = 10 * time.Second
)

// direct makes calls in the caller's own goroutine. A call that is alone is a quarter faster so: waking another
// goroutine wakes another processor, which then competes with Redis's answer. Because go-redis does not interrupt a
// call, a direct one has a short limit of its own; when it is over, the call is made again, in another goroutine. All
// scripts can bear that.
type direct struct {
	rdb   *redis.Client             // with the limit; nil if the client cannot be limited
	calls atomic.Int32              // under way, direct or not
	until atomic.Pointer[time.Time] // before which no call is made directly; nil: there is no such time
}

// limit prepares for direct calls on a plain client. Others (cluster, ring, wrappers) are left as they are. So is one
// that goes by a clock of its user's: the limit is a socket's, and those know the system's time only.
func (d *direct) limit(rdb Redis, clk Clock) {
	plain, ok := rdb.(*redis.Client)
	if _, system := clk.(clock.System); !ok || !system {
		return
	}
	timeout := quick
	if own := plain.Options().ReadTimeout; own > 0 {
		timeout = min(timeout, own)
	}
	d.rdb = plain.WithTimeout(timeout)
	options := d.rdb.Options() // a copy, not the user's
	options.MaxRetries = 0
	options.ContextTimeoutEnabled = true // for all round trips of a call together: a new connection has several
}

// alone reports whether a call may be made directly. The caller has counted it in calls.
func (c *Client) alone(limit time.Duration) bool {
	d := &c.direct
	if d.rdb == nil || d.calls.Load() != 1 || limit > 0 && limit < patient {
		return false
	}
	until := d.until.Load()
	return until == nil || c.clock.Now().After(*until)
}

// slow notes that Redis or the way to it is slow.
func (c *Client) slow() {
	until := c.clock.Now().Add(wary)
	c.direct.until.Store(&until)
}
