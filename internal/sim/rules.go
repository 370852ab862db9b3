package sim

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/history"
)

// The rules that only the simulation checks, because it knows what each script changes in the server's data, and when.

// suspect is a violation, unless the process of the token could not reach the server.
type suspect struct {
	token string
	at    int64 // as Event.At
	text  string
	jumps int // of the server's clock that are no excuse
}

// state is what was seen of a lock after a script.
type state struct {
	tickets    map[string]uint64
	until      map[string]int64  // token → when it expires, by the queue's clock
	clock      int64             // of the queue, when it was recorded
	at         int64             // and when that was
	quarantine int64             // its end, by the queue's clock
	seen       int64             // when all this was seen
	owners     map[string]string // token → its record of permits, which ends with the fence
	ends       map[string]int64  // token → when its lease ends, as Event.At
}

// change is what the last script has changed of a lock, or time.
type change struct {
	*observer
	script
	lock   *observed // before
	now    state     // after
	latest int64     // that the queue's clock can have been
	known  bool      // the script is one of this lock, and has run
}

// rules are what holds of each change.
var rules = []func(*change){
	(*change).endsLeases, (*change).leaves, (*change).handsOff, (*change).namesWaiters, (*change).keepsNumber, (*change).advancesClock,
	(*change).cutsLeases,
}

// check checks a change of a lock. The caller holds mu.
func (o *observer) check(l *observed, now state, latest int64) {
	c := &change{o, o.last, l, now, latest, o.last.verb != "" && slices.Contains(o.last.args, l.keys.Permits)}
	if o.revive {
		for _, tokens := range []iter.Seq[string]{maps.Keys(now.ends), maps.Keys(now.tickets)} {
			for token := range tokens {
				o.revived[token] = true
			}
		}
	}
	for _, rule := range rules {
		rule(c)
	}
}

func (c *change) wrong(format string, args ...any) {
	c.world.fail("server: at %v, lock %q: %s", time.Duration(c.at), c.lock.name, fmt.Sprintf(format, args...))
}

// lastArg is the last argument of the script.
func (c *change) lastArg() string { return c.args[len(c.args)-1] }

// endsLeases: a lease ends when it is over, by a request of its token, or by a force-release whose caller has seen its fence.
func (c *change) endsLeases() {
	for token, record := range c.lock.owners {
		fence := int64(fenceOf(record))
		switch has, owns := c.now.owners[token]; {
		case owns && has == record:
		case c.known && c.verb == "leave" && slices.Contains(c.args, token):
		case c.known && c.verb == "release" && slices.Contains(c.args, token) && number(c.lastArg()) == fence:
		case c.known && c.verb == "force_release" && fence <= number(c.lastArg()):
		case c.lock.ends[token] <= c.world.now():
			c.suspect(token, c.world.now(), leaseEnded, 0)
		case c.known:
			c.wrong("%s ended the lease of %s with fence %d: %v", c.verb, token, fence, c.args)
		}
	}
}

// leaves: a token that has left does not come back.
func (c *change) leaves() {
	if c.known && c.verb == "leave" {
		c.departed[c.args[len(c.args)-2]] = true
	}
	for token := range c.departed {
		if _, owns := c.now.owners[token]; owns || c.now.tickets[token] > 0 {
			c.wrong("%s has left and is there", token)
			delete(c.departed, token)
		}
	}
}

// handsOff: a waiter is granted the lock for what is left of its WaiterTTL, at most for its TTL.
func (c *change) handsOff() {
	for token, end := range c.now.ends {
		if _, owned := c.lock.owners[token]; owned || c.lock.tickets[token] == 0 || strings.Contains(c.text, token) {
			continue
		}
		left, expires := time.Duration(end-c.world.now()), time.Duration(c.lock.until[token]-c.latest)*time.Microsecond
		if left > min(ttl, expires)+grain {
			c.wrong("%s, which expires in %v, was granted the lock for %v", token, expires, left)
		}
	}
}

// namesWaiters: a request or a heartbeat names each waiter at least once in a TTL.
func (c *change) namesWaiters() {
	for token := range c.now.tickets {
		if c.at > 0 && (strings.Contains(c.text, token) || c.lock.named[token] == 0) {
			c.lock.named[token] = c.at
		}
		if c.world.now()-c.lock.named[token] > int64(ttl) {
			c.suspect(token, c.world.now(), "no heartbeat for a waiter since "+time.Duration(c.lock.named[token]).String(), 0)
		}
	}
}

// keepsNumber: the number outlasts the lock and its queue by FenceTTL.
func (c *change) keepsNumber() {
	if !c.known {
		return
	}
	m := c.world.server.Miniredis
	kept, longest := m.TTL(c.lock.keys.Number), m.TTL(c.lock.keys.Queue)
	for _, end := range c.now.ends {
		longest = max(longest, time.Duration(end-c.world.now()))
	}
	if longest > 0 && kept < longest+fenceTTL-time.Millisecond { // Redis's times are of whole milliseconds
		c.wrong("the number is kept for %v, and the lock for %v", kept, longest)
	}
}

// readsClock reports whether the script has found waiters and the queue's clock, and has left waiters.
func (c *change) readsClock() bool {
	return c.known && (c.verb == "heartbeat" || c.verb == "acquire") && len(c.lock.tickets) > 0 && len(c.now.tickets) > 0
}

// advancesClock: the queue's clock advances as the server's does, by at most a second at once, and not back.
func (c *change) advancesClock() {
	if !c.readsClock() {
		return
	}
	before, now := c.lock.state, c.now
	advance := min(max(now.at-before.at, 0), int64(time.Second/time.Microsecond))
	if before.at > 0 && now.at != before.at && now.clock != before.clock+advance {
		c.wrong("the queue's clock has advanced from %d to %d in %d µs", before.clock, now.clock, now.at-before.at)
	}
	if c.verb == "heartbeat" && (now.at < c.time-20000 || now.at > c.time) {
		c.wrong("the queue's clock was recorded at %d, and it is %d", now.at, c.time)
	}
}

// cutsLeases: while the first waiter sends requests, no lease lasts for more than its TTL, unless the lock is quarantined.
func (c *change) cutsLeases() {
	if !c.readsClock() || c.now.quarantine > c.now.clock {
		return
	}
	if first := slices.SortedFunc(maps.Keys(c.now.tickets), byTicket(c.now.tickets))[0]; !strings.Contains(c.text, first) {
		return
	}
	for token, end := range c.now.ends {
		if left := time.Duration(end - c.at); left >= ttl+time.Millisecond { // PTTL is in whole milliseconds
			c.wrong("the lease of %s lasts for %v", token, left)
		}
	}
}

const (
	grain      = time.Microsecond // that of package history
	leaseEnded = "the lease ended by itself"
)

func (o *observer) suspect(token string, at int64, text string, jumps int) {
	if !o.revived[token] {
		o.suspects = append(o.suspects, suspect{token, at, text, jumps})
	}
}

// checkSuspects checks that waiters are not dropped, and leases do not end, while their client reaches the server. (A replica
// that lags may bring back waiters that wait no longer, and leases; several steps of the clock or stalls, one soon after
// another, add up.)
func (w *world) checkSuspects() {
	for _, s := range w.observer.suspects {
		if !w.excused(s) {
			w.errs = append(w.errs, fmt.Errorf("reachable: at %v, %s: %s, and its process could reach the server",
				time.Duration(s.at), s.token, s.text))
		}
	}
}

// checkTickets checks that no ticket was given twice, but one that was forgotten with lost data.
func (w *world) checkTickets() {
	type ticket struct {
		lock   string
		number uint64
	}
	owners, queued, forgotten := map[ticket]string{}, map[string]bool{}, map[string]bool{}
	for _, e := range w.observer.events {
		switch e.Op {
		case history.Deletes:
			maps.Copy(forgotten, queued)
		case history.Joins:
			t := ticket{e.Lock, e.Ticket}
			if owner, ok := owners[t]; ok && owner != e.Token && !forgotten[owner] && !forgotten[e.Token] {
				w.errs = append(w.errs, fmt.Errorf("tickets: %s got ticket %d of %s, which %s had before", e.Token, e.Ticket, e.Lock, owner))
			}
			owners[t], queued[e.Token] = e.Token, true
		}
	}
}

// excused reports whether the process of a token had ended, or could not reach the server, at some time.
func (w *world) excused(s suspect) bool {
	var number int
	if _, err := fmt.Sscanf(s.token, "c%d:", &number); err != nil {
		return false
	}
	p := w.processes[number]
	// If the server's clock has stood still or stepped back, a lease ends long after its client has lost it.
	if p.endedAt > 0 && p.endedAt <= s.at || s.text == leaseEnded && (p.noRenewal || w.run.ClockBack) {
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
		slices.ContainsFunc(w.run.Unreachable, func(span history.Span) bool { return span.Process == number && in(span) })
}
