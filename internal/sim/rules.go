package sim

import (
	"fmt"
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

// checkScript checks what the last script has changed of a lock. The caller holds mu.
func (o *observer) checkScript(l *observed, now state, latest int64) {
	w, s := o.world, o.last
	concerned := s.verb != "" && slices.Contains(s.args, l.keys.Permits)
	wrong := func(format string, args ...any) {
		w.fail("server: at %v, lock %q: %s", time.Duration(s.at), l.name, fmt.Sprintf(format, args...))
	}

	// A lease ends when it is over, by a request of its token, or by a force-release whose caller has seen its fence.
	for token, record := range l.owners {
		fence := fenceOf(record)
		switch has, owns := now.owners[token]; {
		case owns && has == record:
		case concerned && s.verb == "leave" && slices.Contains(s.args, token):
		case concerned && s.verb == "release" && slices.Contains(s.args, token) && number(s.args[len(s.args)-1]) == int64(fence):
		case concerned && s.verb == "force_release" && int64(fence) <= number(s.args[len(s.args)-1]):
		case l.ends[token] <= w.now():
			o.suspect(token, w.now(), leaseEnded, 0)
		case concerned:
			wrong("%s ended the lease of %s with fence %d: %v", s.verb, token, fence, s.args)
		}
	}

	// A token that has left does not come back.
	if concerned && s.verb == "leave" {
		o.departed[s.args[len(s.args)-2]] = true
	}
	for token := range o.departed {
		if _, owns := now.owners[token]; owns || now.tickets[token] > 0 {
			wrong("%s has left and is there", token)
			delete(o.departed, token)
		}
	}

	// A waiter is granted the lock for what is left of its WaiterTTL, at most for its TTL.
	for token, end := range now.ends {
		if o.revive {
			o.revived[token] = true
		}
		if _, owned := l.owners[token]; owned || l.tickets[token] == 0 || strings.Contains(s.text, token) {
			continue
		}
		if left := time.Duration(end - w.now()); left > ttl+grain || left > time.Duration(l.until[token]-latest)*time.Microsecond+grain {
			wrong("%s, which expires in %v, was granted the lock for %v", token, time.Duration(l.until[token]-latest)*time.Microsecond, left)
		}
	}

	// A request or a heartbeat names each waiter at least once in a TTL.
	for token := range now.tickets {
		if o.revive {
			o.revived[token] = true
		}
		if s.at > 0 && (strings.Contains(s.text, token) || l.heard[token] == 0) {
			l.heard[token] = s.at
		}
		if w.now()-l.heard[token] > int64(ttl) {
			o.suspect(token, w.now(), "no heartbeat for a waiter since "+time.Duration(l.heard[token]).String(), 0)
		}
	}
	if !concerned {
		return
	}

	// The number outlasts the lock and its queue by FenceTTL.
	m := w.server.Miniredis
	kept := m.TTL(l.keys.Number)
	longest := m.TTL(l.keys.Queue)
	for _, end := range now.ends {
		longest = max(longest, time.Duration(end-w.now()))
	}
	if longest > 0 && kept < longest+fenceTTL-time.Millisecond { // Redis's times are of whole milliseconds
		wrong("the number is kept for %v, and the lock for %v", kept, longest)
	}
	if s.verb != "heartbeat" && s.verb != "acquire" || len(l.tickets) == 0 || len(now.tickets) == 0 {
		return
	}

	// The queue's clock advances as the server's does, by at most a second at once, and not back.
	if advance := min(max(now.at-l.at, 0), int64(time.Second/time.Microsecond)); l.at > 0 && now.at != l.at && now.clock != l.clock+advance {
		wrong("the queue's clock has advanced from %d to %d in %d µs", l.clock, now.clock, now.at-l.at)
	}
	if s.verb == "heartbeat" && (now.at < s.time-20000 || now.at > s.time) {
		wrong("the queue's clock was recorded at %d, and it is %d", now.at, s.time)
	}

	// While the first waiter sends requests, no lease lasts for more than its TTL, unless the lock is quarantined.
	if first := slices.SortedFunc(maps.Keys(now.tickets), byTicket(now.tickets))[0]; strings.Contains(s.text, first) && now.quarantine <= now.clock {
		for token, end := range now.ends {
			if time.Duration(end-s.at) > ttl+grain {
				wrong("the lease of %s lasts for %v", token, time.Duration(end-s.at))
			}
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
