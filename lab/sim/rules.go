package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/internal/tools/rules"
)

// The rules for clients that only the simulation checks, because it knows when each script runs, and what it changes.

// suspect is a violation, unless the process of the token could not reach the server.
type suspect struct {
	token string
	at    int64 // as Event.At
	text  string
	jumps int // of the server's clock that are no excuse
}

// tokens are those of holders and waiters.
func (c *contents) tokens() (all []string) {
	for _, h := range c.Holders {
		all = append(all, h.Token)
	}
	for _, w := range c.Waiters {
		all = append(all, w.Token)
	}
	return all
}

// checkLocked checks what the clients of a lock do, whenever it is looked at.
func (o *observer) checkLocked(l *observed, next contents) {
	now := o.world.now()
	o.checkHead(l)
	if len(next.Waiters) > 0 && (len(l.Waiters) == 0 || l.Waiters[0].Token != next.Waiters[0].Token) {
		l.headSince = now
	}
	if o.restoring {
		for _, token := range next.tokens() {
			o.restored[token] = true
		}
	}
	for _, h := range l.Holders {
		same := next.Holder(h.Token)
		if (same == nil || same.Fence != h.Fence) && l.ends[h.Token] <= now && !strings.Contains(o.last.text, h.Token) &&
			!isReleased(h.Token) && parse(h.Token).TTL() <= ttl { // a longer one may outlast what excuses it
			o.suspect(h.Token, now, leaseEnded, 0)
		}
	}
	// A request or a heartbeat names each waiter at least once in its TTL or WaiterTTL, and at once when the subscription
	// has come up.
	for _, w := range next.Waiters {
		client, _, _ := strings.Cut(w.Token, ":")
		named, subscribed := l.seen[w.Token], o.subscribed[client]
		if named > 0 && (now-named > int64(min(parse(w.Token).TTL(), waiterTTL)) || subscribed > named &&
			subscribed < now-int64(atOnce)) {
			o.suspect(w.Token, now, "no heartbeat for a waiter since "+time.Duration(named).String(), 0)
		}
		if o.last.verb != "" && (strings.Contains(o.last.text, w.Token) || named == 0) {
			l.seen[w.Token] = now
		}
	}
	for token := range l.seen { // a full server refuses those that come back after a loss of data
		if o.full.Load() > 0 && next.Waiter(token) == nil {
			l.seen[token] = now
		}
	}
	for _, h := range next.Holders { // it may lose the lock and be queued again
		delete(l.seen, h.Token)
	}
	o.checkForgottenLocked(l, next, now)
	// A token that has left or released, or whose lease has another token now, does not come back, unless a request is
	// 11 minutes late.
	left := func(token string) bool {
		at, ok := o.departed[token]
		return ok && now-at < int64(script.QueueKept)
	}
	switch o.last.verb {
	case "leave":
		for i, token := range o.last.args[4:] {
			if o.departed[token] = now; i < int(rules.Numbers(o.last.args[3])[0]) {
				l.lastLeft = token // with a tombstone
			}
		}
	case "release", "resume":
		token, h := o.last.args[1], l.Holder(o.last.args[1])
		if h != nil && h.Fence == uint64(rules.Numbers(o.last.args[2])[0]) && next.Holder(token) == nil {
			if o.departed[token] = now; o.last.verb == "resume" {
				l.lastLeft = token
			}
		}
	case "acquire":
		if token := o.last.args[1]; left(token) && rules.Numbers(o.last.args[2])[0] > 0 {
			o.suspect(token, now, "it requests the lock after it has left", 0)
		}
	}
	for _, token := range next.tokens() {
		if left(token) {
			o.world.fail("server: at %v, lock %q: %s has left and is there", time.Duration(now), l.name, token)
			delete(o.departed, token)
		}
	}
}

// checkForgottenLocked checks that each waiter of a lost queue is back a third of its TTL or WaiterTTL later, or has
// left.
func (o *observer) checkForgottenLocked(l *observed, next contents, now int64) {
	for token, at := range l.forgotten {
		if o.full.Load() > 0 { // it is refused
			l.forgotten[token], at = now, now
		}
		late := now-at > int64(min(parse(token).TTL(), waiterTTL)/3+atOnce)
		if late {
			o.suspect(token, now, "it is not back since its queue was forgotten at "+time.Duration(at).String(), 0)
		}
		left := o.last.verb == "leave" && strings.Contains(o.last.text, token)
		if late || left || next.Waiter(token) != nil || next.Holder(token) != nil {
			delete(l.forgotten, token)
		}
	}
}

const (
	grain      = time.Microsecond       // that of package history
	atOnce     = 100 * time.Millisecond // several round trips
	leaseEnded = "the lease ended by itself"
)

func (o *observer) suspect(token string, at int64, text string, jumps int) {
	if !o.restored[token] {
		o.suspects = append(o.suspects, suspect{token, at, text, jumps})
	}
}

// checkSuspects checks that waiters are not dropped, and leases do not end, while their client reaches the server. (A
// replica that lags may bring back waiters that wait no longer, and leases; several steps of the clock or stalls, one
// soon after another, add up.)
func (w *world) checkSuspects() {
	suspects := w.observer.suspects
	for _, p := range w.processes {
		suspects = append(suspects, p.talk.suspects()...)
	}
	for _, s := range suspects {
		if !w.excused(s) {
			w.errs = append(w.errs, fmt.Errorf("reachable: at %v, %s: %s, and its process could reach the server",
				time.Duration(s.at), s.token, s.text))
		}
	}
}

// excused reports whether the process of a token had ended, or could not reach the server, at some time.
func (w *world) excused(s suspect) bool {
	p := w.processOf(s.token)
	if p == nil {
		return false
	}
	// If the server's clock has stood still or stepped back, a lease ends long after its client has lost it.
	if p.endedAt > 0 && p.endedAt <= s.at || s.text == leaseEnded && w.run.ClockBack {
		return true
	}
	in := func(span history.Span) bool { return span.From <= s.at && s.at <= span.To }
	jumps := 0
	for _, span := range w.jumps {
		if in(span) {
			jumps++
		}
	}
	return jumps > s.jumps || slices.ContainsFunc(w.excuses, in) ||
		slices.ContainsFunc(w.run.Unreachable, func(span history.Span) bool { return span.Process == p.number && in(span) })
}

// processOf returns the process that has made a token; nil if it is another program's.
func (w *world) processOf(token string) *process {
	var number int
	if _, err := fmt.Sscanf(token, "c%d:", &number); err != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[number]
}
