package fairlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
)

// ear is the one subscription of a client: on its channel it hears which of its waiters were granted a lock. What it
// hears are hints; what it misses, a beat finds.
type ear struct {
	client  *Client
	channel string
	start   sync.Once

	mu     sync.Mutex
	sub    *redis.PubSub // guarded by mu; nil while there is none
	up     time.Time     // guarded by mu; since when it hears; zero while it does not
	count  uint64        // guarded by mu; how often it came up
	closed bool          // guarded by mu
}

// ups returns how often the subscription has come up so far.
func (e *ear) ups() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count
}

// listen starts the subscription if this is the first contention, and returns the same as ups.
func (e *ear) listen() uint64 {
	e.start.Do(func() { e.client.background(e.run) })
	return e.ups()
}

// run subscribes, again and again, until the client is closed.
func (e *ear) run() {
	var pause backoff
	for e.client.life.Err() == nil {
		before := e.ups()
		err := e.subscribe(e.client.life)
		if e.client.life.Err() != nil {
			return
		}
		if e.ups() != before {
			pause = backoff{}
		}
		e.client.log.Warn("subscription for wake-ups broke; beats replace it meanwhile", "err", err)
		call(e.client.trace.Listening, ListeningInfo{Err: err})
		if !e.client.pause(pause.next()) {
			return
		}
	}
}

// subscribe hears until the connection breaks. A broken subscription is thrown away: go-redis would mend it, but
// without telling how long nobody listened.
func (e *ear) subscribe(ctx context.Context) error {
	sub := e.client.rdb.Subscribe(ctx, e.channel)
	defer func() {
		e.mu.Lock()
		e.sub, e.up = nil, time.Time{}
		e.mu.Unlock()
		_ = sub.Close() // may have been closed to end Receive
	}()
	e.mu.Lock()
	e.sub = sub
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return ErrClosed
	}
	for {
		message, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			e.hears()
		case *redis.Message:
			e.heard(m.Payload)
		}
	}
}

// hears notes that from now on nothing is missed, and has every waiter look whether it missed something before.
func (e *ear) hears() {
	e.mu.Lock()
	e.up = e.client.clock.Now()
	e.count++
	e.mu.Unlock()
	call(e.client.trace.Listening, ListeningInfo{})
	e.client.mu.Lock()
	lines := make([]*line, 0, len(e.client.lines))
	for _, n := range e.client.lines {
		lines = append(lines, n)
	}
	e.client.mu.Unlock()
	for _, n := range lines {
		e.client.background(n.catchUp)
	}
}

func (e *ear) heard(message string) {
	g, err := lua.ParseGrant(message)
	if err != nil {
		e.client.log.Warn("message on the wake channel is not ours", "channel", e.channel, "err", err)
		return
	}
	e.client.deliver(g)
}

// doubt is how long a subscription must have been up before a lost message is blamed on it.
const doubt = time.Second

// missed gives up a subscription that let a message be lost: a connection that is cut without a word stays deaf for
// minutes and shows no error.
func (e *ear) missed() {
	e.mu.Lock()
	var sub *redis.PubSub
	if e.sub != nil && !e.up.IsZero() && e.client.clock.Now().Sub(e.up) > doubt {
		e.up = time.Time{}
		sub = e.sub
	}
	e.mu.Unlock()
	if sub != nil {
		_ = sub.Close() // not under mu: it waits while go-redis dials
	}
}

// close ends the subscription; run returns then.
func (e *ear) close() {
	e.mu.Lock()
	e.closed = true
	sub := e.sub
	e.mu.Unlock()
	if sub != nil {
		_ = sub.Close()
	}
}
