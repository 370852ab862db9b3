package dispatch

import (
	"encoding"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/clock"
)

const (
	// hangs is how long a command has no reply until a copy of it is sent.
	hangs = time.Second
	// maxCopiesOfOne is how many copies of one command are sent: a call that is tried for 3 s outlives two dead
	// connections. On a Cluster the senders of copies are the bound: a master may hang for some seconds until another one
	// is elected, and a copy is sent to that as soon as the Redis client knows of it.
	maxCopiesOfOne = 2
	// maxPause is the longest time between copies to a server that is slow.
	maxPause = 16 * time.Second
)

// copies are further copies of commands that hang. Either the connection is dead, and a copy on another one is answered
// at once; or the server is slow, and copies are more work for it. So one command is copied first. If that copy is
// answered within a second, and its command is not, copies of all others that hang follow. If not, another one is sent
// a second later. The pause doubles with each reply that has taken longer, until any command is answered within a
// second.
//
// A reply that comes after the first one is dropped. It can name grants that the first one does not. Their waiters
// learn of them by notifications and heartbeats, as those of other clients do, and a heartbeat finds what is left to be
// granted.
type copies struct {
	lane

	most  int           // of one command
	off   bool          // none is sent: the pool has no other connection
	pause time.Duration // between two; 0: Redis answers within a second
	next  time.Time     // when the next one may be sent
	all   bool          // then all that hang are copied
	timer clock.Timer   // calls copy when something hangs; nil if nothing was in flight when it was called last
}

// poolOfOne reports whether the Redis client has only one connection to a server.
func poolOfOne(rdb redis.Scripter) bool {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return rdb.Options().PoolSize == 1
	case *redis.ClusterClient:
		return rdb.Options().PoolSize == 1
	default:
		return false
	}
}

// watch has copy called when the oldest command hangs that can be copied. The caller holds mu.
func (d *Dispatcher) watch() {
	c, now := &d.copies, d.clock.Now()
	if c.timer != nil || c.off || d.closed {
		return
	}
	first, busy := now, false // if none of them can be copied, look again when one that comes now may hang
	for _, l := range d.lanes() {
		for _, b := range l.inFlight {
			busy = busy || len(b.requests) > 0
			if b.since.Before(first) && slices.ContainsFunc(b.requests, c.can) {
				first = b.since
			}
		}
	}
	if busy {
		c.timer = d.clock.AfterFunc(max(first.Add(hangs).Sub(now), c.next.Sub(now)), d.copy)
	}
}

// can reports whether a command that is in flight can be copied.
func (c *copies) can(r *request) bool {
	return r.copies < c.most && !r.done.Load() && r.ctx.Err() == nil && traitsOf(r.ctx)&Repeatable != 0
}

// copy sends a copy of the oldest command that hangs, or copies of all.
func (d *Dispatcher) copy() {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, now, most := &d.copies, d.clock.Now(), 1
	c.timer = nil
	if c.all {
		most = maxPipelined
	}
	for _, r := range d.hanging(now, most) {
		r.copies++
		if !r.counted() {
			continue
		}
		again := &request{command: r.command, lane: &c.lane, of: r, over: make(chan struct{})}
		again.element = c.waiting.PushBack(again)
	}
	if c.waiting.Len() > 0 {
		c.pause = max(c.pause, hangs)
		c.all, c.next = false, now.Add(c.pause)
	}
	for b := d.take(&c.lane); b != nil; b = d.take(&c.lane) {
		d.start(b)
	}
	d.watch()
}

// counted has the arguments of a command counted as written twice, and reports whether a copy may be sent: it has no
// outcome. Who reads the count after the outcome either finds both in it, or no copy is sent. The first one may not be
// written yet, and the copy never be, if a server refuses its connection.
func (r *request) counted() bool {
	for _, a := range r.args {
		if m, ok := a.(encoding.BinaryMarshaler); ok {
			_, _ = m.MarshalBinary()
			_, _ = m.MarshalBinary()
		}
	}
	return !r.done.Load()
}

// hanging returns at most so many commands that hang and can be copied, the oldest of a lane first. The caller holds
// mu.
func (d *Dispatcher) hanging(now time.Time, most int) (all []*request) {
	for _, l := range d.lanes() {
		for _, b := range l.inFlight {
			if now.Sub(b.since) < hangs {
				continue
			}
			for _, r := range b.requests {
				if len(all) < most && d.copies.can(r) {
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// learn draws conclusions from what has ended: if Redis has replied within a second, it is not slow. If that was a copy
// and came first, what else hangs soon after is on dead connections. The caller holds mu.
func (d *Dispatcher) learn(b *batch, now time.Time) {
	c := &d.copies
	if !b.answers {
		return
	}
	if now.Sub(b.since) >= hangs {
		c.pause = min(2*c.pause, maxPause)
		return
	}
	c.pause = 0
	if b.first {
		c.all, c.next = true, now.Add(overdue)
		if c.timer != nil {
			c.timer.Stop()
			c.timer = nil
		}
		d.watch()
	}
}
