package sim

import (
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/tools/rules"
)

// The rules for minimum holds: the lock stays taken until d after the grant, whatever its holder does, and is free
// then. A waiter that can be granted it then sends a request at once.

const longestMinHold = 3 * ttl

// minimum is the minimum hold of a lease.
type minimum struct {
	d       time.Duration
	granted uint64 // when Redis granted it, in µs: the fence of its lease
	fence   uint64 // of its lease, or of that of its rest
	learned int64  // when its client has learned of it, as Event.At
	known   bool   // Redis knows d: the lease did not begin with a handoff, or was renewed or released since
}

// ends is when it is over, in µs of the server.
func (m *minimum) ends() int64 { return int64(m.granted) + m.d.Microseconds() }

// begins notes that a client has learned of a lease with a minimum hold.
func (o *observer) begins(token string, d time.Duration, fence uint64, handoff bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.minimums[token] = &minimum{d, fence, fence, o.world.now(), !handoff}
	for _, l := range o.locks {
		if h := l.Holder(token); h != nil {
			o.outlastsLocked(*h)
		}
	}
}

// outlastsLocked checks that a lease lasts until the end of its minimum if its holder crashes now. If a clock was
// stepped back, it does not check, because Redis and clients then disagree about the remaining time.
func (o *observer) outlastsLocked(h rules.Holder) {
	m := o.minimum(h)
	if m == nil || !m.known || o.back > 0 {
		return
	}
	if short := m.ends() - h.Expires; short > rules.Millisecond {
		o.world.fail("server: at %v, the lease of %s ends %d µs before its minimum of %v", time.Duration(o.world.now()),
			h.Token, short, m.d)
	}
}

// minimum returns that of a lease; nil if there is none.
func (o *observer) minimum(h rules.Holder) *minimum {
	if m := o.minimums[h.Token]; m != nil && m.fence == h.Fence {
		return m
	}
	return nil
}

// ended checks that a lease has not ended before its minimum hold. now is in µs of the server.
func (o *observer) ended(l *observed, h rules.Holder, now int64) {
	l.last = h
	m := o.minimum(h)
	if m == nil || !m.known || o.last.verb == "force_release" || o.back > 0 {
		return
	}
	if early := m.ends() - now; early > rules.Millisecond {
		o.world.fail("server: at %v, lock %q: %s is free %d µs before the end of its minimum of %v",
			time.Duration(o.world.now()), l.name, h.Token, early, m.d)
	}
}

// lasts checks the end of a renewed lease, or of one that has the rest of another one's minimum hold. The time until is
// as Event.At.
func (o *observer) lasts(had, h rules.Holder, until int64) {
	m := o.minimum(had)
	switch {
	case m == nil:
	case h.Token == had.Token && o.last.verb == "": // the server's clock has stepped
	case h.Token == had.Token:
		m.known = true
		o.outlastsLocked(h)
	case isReleased(h.Token): // the minimum hold of a lease that is resumed begins anew
		o.minimums[h.Token] = &minimum{m.d, m.granted, h.Fence, m.learned, true}
		o.outlastsLocked(h)
		if latest := m.learned + int64(m.d+m.d/50+atOnce); until > latest { // clocks are slower by 1 %
			o.suspect(h.Token, o.world.now(), "it was released, and its minimum was over at "+time.Duration(latest).String(), 0)
		}
	}
}

// checkHead checks that the head of the queue is not left waiting when a lease has ended that was released before.
func (o *observer) checkHead(l *observed) {
	if len(l.Waiters) == 0 || l.Lost {
		return
	}
	head, last, now := l.Waiters[0], l.last, o.world.server.Now().UnixMicro()
	at := l.State
	at.Now = now
	for _, h := range l.Holders {
		if h.Expires <= now && h.Expires > last.Expires {
			last = h
		}
	}
	if !isReleased(last.Token) || last.Expires > now || last.Expires <= l.grew {
		return
	}
	if next := at.Next(); next == "" || !at.Fits(next) {
		return
	}
	client, _, _ := strings.Cut(head.Token, ":")
	since, within := max(o.world.now()-(now-last.Expires)*1000, l.headSince, o.subscribed[client]), atOnce
	if o.untold[head.Token] { // a heartbeat tells it
		since, within = max(o.world.now()-(now-last.Expires)*1000, l.headSince), atOnce+time.Second
	}
	if late := time.Duration(o.world.now() - since); late > within {
		o.suspect(head.Token, o.world.now(), "it waits "+late.String()+" after a minimum hold has ended", 0)
	}
}

// publishedLocked notes a message of a script, and whether it is lost.
func (o *observer) publishedLocked(message string) {
	token, _, _ := strings.Cut(message, " ")
	client, _, _ := strings.Cut(token, ":")
	if o.noPublish.Load() > 0 || o.subscribed[client] == never {
		o.untold[token] = true
	}
}
