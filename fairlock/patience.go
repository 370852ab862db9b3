package fairlock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// line is what the acquisitions of one lock by one client share: one question at a time, and one beat for all.
//
// One question at a time costs no speed, because a mutex changes hands no faster than that, and it bounds the
// connections that a hundred waiters need. (Two: those who are in the queue do not stand behind those who join.) What
// many can hold changes hands faster: there it is one question for each permit, up to a bound.
type line struct {
	lock
	first gate // of those who want to join
	again gate // of those who are in the queue, and of those who leave it
	users int  // guarded by client.mu

	mu      sync.Mutex
	waiting map[*waiter]struct{} // guarded by mu; the queued ones
	timer   Timer                // guarded by mu; the next beat, while somebody waits
	beats   int                  // guarded by mu; under way
	another bool                 // guarded by mu; one is due that had to wait for those
}

// hearing is how long after a beat has found a grant its message may still arrive: it was sent before the beat's
// answer, but on another connection.
const hearing = 10 * time.Millisecond

// mostBeats is how many beats of a line may be under way at once: one that hangs must not keep the next from being
// sent on another connection.
const mostBeats = 3

// mostAsking is how many questions about one lock may be under way at once.
const mostAsking = 32

// crowd is how many may ask at once.
func (l lock) crowd() int { return max(1, min(l.redis.Capacity(), mostAsking)) }

// gate lets so many send at a time as it has room for.
type gate chan struct{}

// open waits for its turn.
func (g gate) open(ctx context.Context, c *Client) error {
	select {
	case g <- struct{}{}:
		return nil
	default:
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	case <-c.life.Done():
		return ErrClosed
	}
}

func (g gate) shut() { <-g }

// add keeps a queued waiter's place from now on.
func (n *line) add(w *waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ttl = min(n.ttl, w.ttl)
	n.waiting[w] = struct{}{}
	if n.timer == nil {
		n.timer = n.client.clock.AfterFunc(n.interval(), n.tick)
	}
}

func (n *line) remove(w *waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.waiting, w)
	if len(n.waiting) == 0 && n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}

// interval is the time between beats: a third of patience, so that two may fail; and of TTL, because a lock that was
// handed to a waiter who did not hear of it lasts no longer.
func (n *line) interval() time.Duration { return min(n.client.cfg.WaiterTTL, n.ttl) / 3 }

// tick beats and sees to the next beat first: this one may hang.
func (n *line) tick() {
	if n.client.enter() != nil {
		return
	}
	defer n.client.tasks.Done()
	n.mu.Lock()
	if n.timer != nil {
		n.timer.Stop() // another one, if the line was empty since this one fired
		n.timer = n.client.clock.AfterFunc(n.interval(), n.tick)
	}
	n.mu.Unlock()
	n.beat()
}

// catchUp beats out of turn. It waits for its turn to ask, so that it needs no connection of its own.
func (n *line) catchUp() {
	if n.again.open(n.client.life, n.client) == nil {
		defer n.again.shut()
		n.beat()
	}
}

// beat keeps the places of all who wait, and tells them what they may have missed. If too many beats are under way,
// which may not be for those who wait now, the first that ends is followed by another.
func (n *line) beat() {
	n.mu.Lock()
	if n.another = n.beats == mostBeats; n.another {
		n.mu.Unlock()
		return
	}
	n.beats++
	for more := true; more; more = n.another {
		n.another = false
		ttl, all := n.ttl, slices.Collect(maps.Keys(n.waiting))
		n.mu.Unlock()
		for some := range slices.Chunk(all, lua.MostBeats) {
			n.beatFor(some, ttl)
		}
		n.mu.Lock()
	}
	n.beats--
	n.mu.Unlock()
}

func (n *line) beatFor(waiters []*waiter, ttl time.Duration) {
	tokens := make([]token.Token, len(waiters))
	for i, w := range waiters {
		tokens[i] = w.token.Token
	}
	sent := n.client.clock.Now()
	pulse, err := n.redis.Beat(n.client.life, ttl, n.client.cfg.WaiterTTL, tokens)
	if err != nil {
		n.client.log.Warn("beat failed; the next one follows", "lock", n.name, "waiters", len(waiters), "err", err)
		return
	}
	for i, w := range waiters {
		switch pulse.States[i] {
		case lua.Waiting:
			w.confirm(sent, pulse.Fence)
		case lua.Holding:
			w.after(hearing, func() { n.unheard(w) })
		case lua.Admitted:
			w.poke()
		case lua.Gone:
			w.dropped()
		}
	}
	switch {
	case pulse.Helps < 0:
	case pulse.Best >= 0:
		waiters[pulse.Best].askAfter(pulse.Helps)
	default:
		n.client.serveQueue(n.lock)
	}
}

// unheard sees to a waiter that was granted the lock a while ago and has not heard of it.
func (n *line) unheard(w *waiter) {
	if !w.deaf() || n.client.enter() != nil {
		return
	}
	defer n.client.tasks.Done()
	n.client.log.Warn("wake-up was lost; a beat found the grant", "lock", n.name, "token", w.token.Token)
	call(n.client.trace.WakeLost, w.event())
	w.poke()
	n.client.ear.missed() // may have to wait for go-redis
}
