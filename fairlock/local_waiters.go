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
	lock         *lock // of the first acquisition; WaiterTTL is one for a client
	acquisitions int   // guarded by Client.mu: that are under way

	mu     sync.Mutex
	queued []*waiter     // guarded by mu
	minTTL time.Duration // guarded by mu: the smallest of all acquisitions that have waited
	timer  Timer         // guarded by mu: calls tick at next; nil while nobody is queued
	next   time.Time     // guarded by mu
}

// joinLocal registers a waiter, and finds or makes its localWaiters.
func (c *Client) joinLocal(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := w.lock.redis.Key()
	w.local = c.locals[key]
	if w.local == nil {
		w.local = &localWaiters{lock: w.lock, minTTL: w.lock.ttl}
		c.locals[key] = w.local
	}
	w.local.acquisitions++
	c.waiters[w.token] = w
}

// leaveLocal is the opposite of joinLocal.
func (c *Client) leaveLocal(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, w.token)
	if w.local.acquisitions--; w.local.acquisitions == 0 {
		delete(c.locals, w.lock.redis.Key())
	}
}

// add has heartbeats keep the ticket of a waiter. A timer that is running is kept, unless the waiter's TTL is so short
// that it needs an earlier heartbeat: its own request has just done what a heartbeat does.
func (n *localWaiters) add(w *waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.minTTL = min(n.minTTL, w.lock.ttl)
	if !slices.Contains(n.queued, w) {
		n.queued = append(n.queued, w)
	}
	if n.timer == nil || n.next.Sub(w.client.clock.Now()) > n.interval() {
		n.setTimer()
	}
}

// setTimer has tick called after an interval. The caller holds mu.
func (n *localWaiters) setTimer() {
	if n.timer != nil {
		n.timer.Stop()
	}
	c := n.lock.client
	n.next = c.clock.Now().Add(n.interval())
	n.timer = c.clock.AfterFunc(n.interval(), n.tick)
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

// interval is the time between heartbeats. A third of WaiterTTL keeps the tickets even if two heartbeats fail. A third of
// TTL finds a grant whose notification was lost before its lease ends. The caller holds mu.
func (n *localWaiters) interval() time.Duration { return min(n.lock.waiterTTL, n.minTTL) / 3 }

// tick sets the timer for the next heartbeat, and sends one, which may hang.
func (n *localWaiters) tick() {
	c := n.lock.client
	if c.enter() != nil {
		return
	}
	defer c.tasks.Done()
	n.mu.Lock()
	if n.timer != nil { // else nobody is queued any more
		n.setTimer()
	}
	n.mu.Unlock()
	n.heartbeat()
}

// heartbeat keeps the tickets of all queued waiters, and tells them what they may have missed. It waits for the reply
// until the third heartbeat after it: no more than three are under way.
func (n *localWaiters) heartbeat() {
	n.mu.Lock()
	timeout, queued := 3*n.interval(), slices.Clone(n.queued)
	n.mu.Unlock()
	ctx, cancel := n.lock.client.withTimeout(n.lock.client.life, timeout)
	defer cancel()
	for waiters := range slices.Chunk(queued, lua.MaxHeartbeat) {
		n.heartbeatOf(ctx, waiters)
	}
}

func (n *localWaiters) heartbeatOf(ctx context.Context, waiters []*waiter) {
	c := n.lock.client
	tokens := make([]token.Token, len(waiters))
	for i, w := range waiters {
		tokens[i] = w.token
	}
	sent := c.clock.Now()
	reply, err := n.lock.redis.Heartbeat(ctx, n.lock.waiterTTL, tokens)
	if err != nil {
		c.log.Warn("heartbeat failed; the next one follows", "lock", n.lock.name, "waiters", len(waiters), "err", orEnded(ctx, err))
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
