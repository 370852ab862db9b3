package fairlock

import (
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/lua"
)

// waiter is one acquisition until its lease begins.
type waiter struct {
	lock
	token  *lua.Leaving
	began  time.Time
	line   *line
	signal chan struct{}  // has room for one: something below has changed
	sent   sync.WaitGroup // its questions under way

	ticket lua.Ticket // of the goroutine that waits; 0 until it was queued

	mu     sync.Mutex
	over   bool       // guarded by mu: nobody waits any more
	asking bool       // guarded by mu: a request is under way
	out    bool       // guarded by mu: it was found to be out of the queue
	since  time.Time  // guarded by mu: just before the last request that found it queued
	floor  uint64     // guarded by mu: the last fence at that time; its own will be above it
	handed *lua.Grant // guarded by mu: what it was told
	ask    bool       // guarded by mu: it should ask
	timer  Timer      // guarded by mu: when asking can help; may be nil
}

// gate is where it waits for its turn to send. Who is in the queue does not stand behind those who only want to join:
// it may be its turn.
func (w *waiter) gate() gate {
	if w.ticket != 0 {
		return w.line.again
	}
	return w.line.first
}

// news takes what the waiter was told. A grant that is not above the fence at which it was last queued is an earlier
// one, which it lost.
func (w *waiter) news() (g *lua.Grant, since time.Time, ask bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g, ask = w.handed, w.ask
	w.handed, w.ask = nil, false
	if g != nil && g.Fence <= w.floor {
		g = nil
	}
	return g, w.since, ask
}

// hand tells it of a grant, which it may hear of before it hears that it was queued.
func (w *waiter) hand(g lua.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handed == nil || g.Fence > w.handed.Fence { // an earlier one may come late
		w.handed = &g
	}
	w.ring()
}

// poke tells it to ask.
func (w *waiter) poke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ask = true
	w.ring()
}

// ring wakes the waiter. The caller holds mu.
func (w *waiter) ring() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// askAfter tells it to ask after d, in place of what was set before.
func (w *waiter) askAfter(d time.Duration) { w.after(d, w.poke) }

// after calls f after d, unless it is over by then, in place of what was set before.
func (w *waiter) after(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	if !w.over {
		w.timer = w.client.clock.AfterFunc(d, f)
	}
}

// confirm notes that a request sent at that time found it queued, and the last fence then. It reports whether it had
// been out of the queue.
func (w *waiter) confirm(sent time.Time, fence uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.out
	w.out = false
	if sent.After(w.since) {
		w.since = sent
	}
	w.floor = max(w.floor, fence)
	return out
}

// dropped notes that it is out of the queue, and has it ask for its place again.
func (w *waiter) dropped() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out, w.ask = true, true
	w.ring()
}

func (w *waiter) setAsking(asking bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking = asking
}

// deaf reports whether it waits and has not heard of a grant.
func (w *waiter) deaf() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over && !w.asking && w.handed == nil
}

func (w *waiter) event() Event { return w.lock.event(w.token.Token) }

// join registers a waiter before its first request: it may be granted the lock before it hears that it is queued.
func (c *Client) join(w *waiter) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.tasks.Add(1)
	key := w.redis.Key()
	w.line = c.lines[key]
	if w.line == nil {
		w.line = &line{lock: w.lock, first: make(gate, w.crowd()), again: make(gate, w.crowd()), waiting: map[*waiter]struct{}{}}
		c.lines[key] = w.line
	}
	w.line.users++
	c.waiters[w.token.Token] = w
	return nil
}

// part forgets a waiter.
func (c *Client) part(w *waiter) {
	w.mu.Lock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	if w.ticket != 0 {
		w.line.remove(w)
	}
	c.mu.Lock()
	delete(c.waiters, w.token.Token)
	if w.line.users--; w.line.users == 0 {
		delete(c.lines, w.redis.Key())
	}
	c.mu.Unlock()
	c.tasks.Done()
}
