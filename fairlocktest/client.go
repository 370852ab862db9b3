package fairlocktest

import (
	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Client is a fairlock.Client with its way to the server.
type Client struct {
	*fairlock.Client

	Redis *redis.Client // the same connections, for what the test does besides locking
	Link  *Link
}

// Crash ends the client as a crash of its process does: without a goodbye. What it holds stays held and where it waits
// its place is kept, until they expire. Its calls return ErrClosed and its leases end, so that no goroutine is left.
func (c *Client) Crash() {
	c.Link.Cut()
	_ = c.Close()
}

// hopeless breaks a link that does not work, so that nobody waits for it who leaves.
func (l *Link) hopeless() {
	l.set(func() {
		if l.hung || l.there > 0 || l.back > 0 {
			l.cut = true
			l.breakAll()
		}
	})
}
