package fairlock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// localWaiters are the waiters of one lock in one client. One heartbeat serves many of them.
type localWaiters struct {
	lock         *lock // of the first acquisition; one heartbeat extends all by its WaiterTTL, which is one for a client
	acquisitions int   // guarded by Client.mu: that are under way

	mu     sync.Mutex
	queued []localWaiter // guarded by mu: in the order of their tickets
	minTTL time.Duration // guarded by mu: the smallest of all that are queued
	timer  Timer         // guarded by mu: calls tick at next; nil while nobody is queued
	next   time.Time     // guarded by mu
	missed bool          // guarded by mu: a waiter has missed something, and perhaps others
	allDue time.Time     // guarded by mu: when a heartbeat may list all because of that
}

// localWaiter is a waiter in the queue.
type localWaiter struct {
	*waiter
	ticket  lua.Ticket
	foundAt time.Time // when the latest request was sent that found it queued
}

// joinLocal registers a waiter, and finds or makes its localWaiters.
func (c *Client) joinLocal(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := w.lock.redis.Key()
	w.local = c.locals[key]
	if w.local == nil {
		w.local = &localWaiters{lock: w.lock, minTTL: MaxTTL}
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

// add has heartbeats keep the ticket of a waiter, which a request has just found queued. A timer that is running is kept,
// unless the waiter's TTL is so short that it needs an earlier heartbeat.
func (n *localWaiters) add(w *waiter, ticket lua.Ticket, sent time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.minTTL = min(n.minTTL, w.lock.cfg.TTL)
	added := localWaiter{w, ticket, sent}
	at, found := n.find(added)
	if !found {
		n.queued = slices.Insert(n.queued, at, added)
	}
	n.queued[at].foundAt = sent
	if n.timer == nil || n.next.Sub(w.client.clock.Now()) > n.interval() {
		n.setTimer()
	}
}

// find returns the index of a waiter, or where it would stand. After a loss of data two waiters can have one ticket; Redis
// then goes by the token. The caller holds mu.
func (n *localWaiters) find(w localWaiter) (at int, found bool) {
	return slices.BinarySearchFunc(n.queued, w, func(a, b localWaiter) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.token.Text(), b.token.Text()))
	})
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
	n.queued = slices.DeleteFunc(n.queued, func(other localWaiter) bool { return other.waiter == w })
	n.minTTL = MaxTTL
	for _, other := range n.queued {
		n.minTTL = min(n.minTTL, other.lock.cfg.TTL)
	}
	if len(n.queued) == 0 && n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}

// interval is the time between heartbeats. Each advances the queue's clock, by at most a second. A third of TTL finds a
// grant whose notification was lost before its lease ends. The caller holds mu.
func (n *localWaiters) interval() time.Duration { return min(time.Second, n.minTTL/3) }

// missedPause is the time between heartbeats that list all waiters because one has missed something.
const missedPause = 3 * time.Second

// due returns the waiters that the next heartbeat lists: the first, which may be the head of the queue, and each that would
// otherwise be found queued later than a third of its WaiterTTL, or of its TTL, after the last time. If one has missed
// something, the heartbeat lists all. The caller holds mu.
func (n *localWaiters) due() (due []localWaiter) {
	now := n.lock.client.clock.Now()
	all := n.allAreDue(now)
	for i, w := range n.queued {
		if all || i == 0 || !now.Add(n.interval()/2).Before(w.foundAt.Add(min(w.lock.cfg.WaiterTTL, w.lock.cfg.TTL)/3)) {
			due = append(due, w)
		}
	}
	return due
}

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
	due := n.due()
	n.mu.Unlock()
	n.heartbeat(due)
}

// allAreDue reports whether a heartbeat has to list all waiters now, because one has missed something. The caller holds mu, and
// has it sent.
func (n *localWaiters) allAreDue(now time.Time) bool {
	if !n.missed || now.Before(n.allDue) {
		return false
	}
	n.missed, n.allDue = false, now.Add(missedPause)
	return true
}

// heartbeatOfAll keeps the tickets of all queued waiters, and tells them what they may have missed.
func (n *localWaiters) heartbeatOfAll() {
	n.mu.Lock()
	queued := slices.Clone(n.queued)
	n.mu.Unlock()
	n.heartbeat(queued)
}

// heartbeat keeps the tickets of some waiters, in their order. It waits for the reply until the third heartbeat after it, but
// at least for a second: a TTL may be shorter than a round trip.
func (n *localWaiters) heartbeat(queued []localWaiter) {
	n.mu.Lock()
	timeout := max(3*n.interval(), time.Second)
	n.mu.Unlock()
	ctx, cancel := n.lock.client.withTimeout(n.lock.client.life, timeout)
	defer cancel()
	for waiters := range slices.Chunk(queued, lua.MaxHeartbeat) {
		if ctx.Err() != nil {
			return
		}
		n.heartbeatOf(ctx, waiters)
	}
}

func (n *localWaiters) heartbeatOf(ctx context.Context, waiters []localWaiter) {
	c := n.lock.client
	tokens := make([]token.Token, len(waiters))
	for i, w := range waiters {
		tokens[i] = w.token
	}
	sent := c.clock.Now()
	reply, err := n.lock.redis.Heartbeat(ctx, n.lock.cfg.WaiterTTL, tokens)
	if err != nil {
		c.log.Warn("heartbeat failed; the next one follows", "lock", n.lock.name, "waiters", len(waiters), "err", orEnded(ctx, err))
		return
	}
	if n.postFound(waiters, reply, sent) {
		c.background(n.heartbeatOfAll)
	}
	first := slices.Index(reply.States, lua.StillQueued)
	switch {
	case reply.RetryAfter < 0:
	case first >= 0:
		waiters[first].post(event{kind: askLater, after: reply.RetryAfter})
	default:
		c.serveQueue(n.lock)
	}
}

// found is the event for a waiter of which a heartbeat has found that state.
var found = map[lua.WaiterState]eventKind{
	lua.StillQueued: stillQueued, lua.NotQueued: notQueued, lua.Holding: holding, lua.NowGranted: askNow,
}

// postFound posts to waiters what a heartbeat found. It reports whether one that lists all has to follow: if a waiter has
// missed something that is queued here, Redis may have lost its data, or the subscription other notifications.
func (n *localWaiters) postFound(waiters []localWaiter, reply lua.HeartbeatReply, sent time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, w := range waiters {
		state := reply.States[i]
		w.post(event{kind: found[state], sent: sent})
		at, ok := n.find(w)
		if !ok {
			continue
		}
		if state == lua.StillQueued && sent.After(n.queued[at].foundAt) {
			n.queued[at].foundAt = sent
		}
		n.missed = n.missed || state == lua.NotQueued || state == lua.Holding
	}
	return n.allAreDue(n.lock.client.clock.Now())
}

// noteMissed has the next heartbeat list all waiters, unless one has done so less than missedPause ago.
func (n *localWaiters) noteMissed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.missed = true
}
