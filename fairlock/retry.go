package fairlock

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
)

// backoff is the time between retries: from 20 ms on it doubles up to a second, less up to a half by chance, so that
// waiters that lost Redis together do not come back together.
type backoff struct{ d time.Duration }

func (b *backoff) next() time.Duration {
	b.d = min(max(2*b.d, 20*time.Millisecond), time.Second)
	return b.d - rand.N(b.d/2)
}

// pause sleeps, and reports false if the client was closed meanwhile.
func (c *Client) pause(d time.Duration) bool {
	over := make(chan struct{})
	timer := c.clock.AfterFunc(d, func() { close(over) })
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-c.life.Done():
		return false
	}
}

// refused reports whether Redis has answered, with an error.
func refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// transient reports whether asking again can cure an error: a connection's, or that of a server which starts, fails
// over or is busy.
func transient(err error) bool {
	if !refused(err) {
		return !errors.Is(err, redis.ErrClosed) && !errors.Is(err, lua.ErrReply)
	}
	for _, prefix := range []string{
		"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY ", "max number of clients",
		"MOVED", "ASK",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
