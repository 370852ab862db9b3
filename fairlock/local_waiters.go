package fairlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// localWaiters are the waiters of one lock in one client. One heartbeat serves all of them.
type localWaiters struct {
	lock  *lock
	users int // guarded by Client.mu: acquisitions under way

	mu     sync.Mutex
	queued []*waiter     // guarded by mu
	ttl    time.Duration // guarded by mu: the smallest of the waiters'
	timer  Timer         // guarded by mu: the next heartbeat; nil while nobody is queued
}

// join registers a waiter, and finds or makes its localWaiters.
func (c *Client) join(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := w.lock.redis.Key()
	w.local = c.locals[key]
	if w.local == nil {
		w.local = &localWaiters{lock: w.lock, ttl: w.lock.ttl}
		c.locals[key] = w.local
	}
	w.local.users++
	c.waiters[w.token] = w
}

func (c *Client) part(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, w.token)
	if w.local.users--; w.local.users == 0 {
		delete(c.locals, w.lock.redis.Key())
	}
}

// add has heartbeats keep the ticket of a waiter.
func (n *localWaiters) add(w *waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ttl = min(n.ttl, w.lock.ttl)
	if !slices.Contains(n.queued, w) {
		n.queued = append(n.queued, w)
	}
	if n.timer == nil {
		n.timer = w.client.clock.AfterFunc(n.interval(), n.tick)
	}
}

func (n *localWaiters) remove(w *waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queued = slices.DeleteFunc(n.queued, func(other *waiter) bool { return other == w })
	if len(n.queued) == 0 && n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}

// interval is the time between heartbeats: a third of WaiterTTL, so that two may fail; and of TTL, because the lease of
// a waiter that missed its notification lasts no longer. The caller holds mu.
func (n *localWaiters) interval() time.Duration { return min(n.lock.waiterTTL, n.ttl) / 3 }

// tick sets the timer for the next heartbeat, and sends one, which may hang.
func (n *localWaiters) tick() {
	c := n.lock.client
	if c.enter() != nil {
		return
	}
	defer c.tasks.Done()
	n.mu.Lock()
	if n.timer != nil {
		n.timer.Stop() // another one, if there were no waiters since this one fired
		n.timer = c.clock.AfterFunc(n.interval(), n.tick)
	}
	n.mu.Unlock()
	n.heartbeat()
}

// heartbeat keeps the tickets of all queued waiters, and tells them what they may have missed. It waits for the reply
// until the third heartbeat after it: no more than three are under way.
func (n *localWaiters) heartbeat() {
	n.mu.Lock()
	ttl, timeout, queued := n.ttl, 3*n.interval(), slices.Clone(n.queued)
	n.mu.Unlock()
	ctx, cancel := n.lock.client.withTimeout(n.lock.client.life, timeout)
	defer cancel()
	for waiters := range slices.Chunk(queued, lua.MaxHeartbeat) {
		n.heartbeatOf(ctx, waiters, ttl)
	}
}

func (n *localWaiters) heartbeatOf(ctx context.Context, waiters []*waiter, ttl time.Duration) {
	c := n.lock.client
	tokens := make([]token.Token, len(waiters))
	for i, w := range waiters {
		tokens[i] = w.token
	}
	sent := c.clock.Now()
	reply, err := n.lock.redis.Heartbeat(ctx, ttl, n.lock.waiterTTL, tokens)
	if err != nil {
		c.log.Warn("heartbeat failed; the next one follows", "lock", n.lock.name, "waiters", len(waiters), "err", err)
		return
	}
	found := map[lua.WaiterState]eventKind{
		lua.StillQueued: stillQueued, lua.NotQueued: notQueued, lua.Holding: holding, lua.NowGranted: askNow,
	}
	for i, w := range waiters {
		w.post(event{kind: found[reply.States[i]], sent: sent, fence: reply.Fence})
	}
	switch {
	case reply.RetryAfter < 0:
	case reply.First >= 0:
		waiters[reply.First].post(event{kind: askLater, after: reply.RetryAfter})
	default:
		c.serveQueue(n.lock)
	}
}
