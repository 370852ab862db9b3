package fairlocktest

import (
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/token"
)

// Client is a fairlock.Client with its link to the server.
type Client struct {
	*fairlock.Client

	Redis *redis.Client // the same connections, for what the test does besides locking
	Link  *Link

	crashed atomic.Bool
	tried   token.Token // of the last Try that found a lock busy, if it is a client of a Lock's methods
}

// Crash ends the client as a crash of its process does. Nothing is sent to Redis. Its locks stay held and its waiters
// stay queued until they expire. Its calls return ErrClosed and its leases end, so that no goroutine is left.
func (c *Client) Crash() {
	c.crashed.Store(true)
	c.Link.Cut()
	_ = c.Close()
}

// cutIfFaulty cuts a link that hangs or delays, so that closing its client does not wait for it.
func (l *Link) cutIfFaulty() {
	l.set(func() {
		if l.hung || l.requestDelay > 0 || l.replyDelay > 0 {
			l.cut = true
			l.breakAllLocked()
		}
	})
}
