package history

import (
	"cmp"
	"slices"
	"time"
)

// prompt is how long a Lock takes at most that sent one request. (After 50 ms without an answer a client sends another
// one, and the first answer, with the ticket, may be lost.)
const prompt = int64(25 * time.Millisecond)

// tickets: an acquisition keeps its ticket; no two have the same; and one that is requested after another one has
// learned its ticket gets a higher one, also if that has long left: tickets are Redis's time, unless its clock stepped.
func (c *checker) tickets(l *lock) {
	var all []*acquisition
	byTicket := map[uint64]*acquisition{}
	for _, a := range l.all {
		if len(a.queued) == 0 {
			continue
		}
		all = append(all, a)
		for _, e := range append(a.queued[1:len(a.queued):len(a.queued)], a.granted) {
			if e != nil && e.Ticket != a.ticket {
				c.Violate(Tickets, l.name, []*Event{a.queued[0], e}, "%v got another ticket", a)
			}
		}
		if b := byTicket[a.ticket]; b != nil && !c.ClockBack {
			c.Violate(Tickets, l.name, []*Event{b.queued[0], a.queued[0]}, "%v and %v have one ticket", b, a)
		}
		byTicket[a.ticket] = a
	}
	if c.ClockBack {
		return // tickets of those that have left may be given again
	}
	known := slices.Clone(all)
	slices.SortStableFunc(known, func(a, b *acquisition) int { return cmp.Compare(a.knownAt(), b.knownAt()) })
	var highest *acquisition // of those that knew their ticket before a was requested
	for _, a := range all {
		for ; known[0].knownAt() < a.request.At; known = known[1:] { // ends at a
			if highest == nil || known[0].ticket > highest.ticket {
				highest = known[0]
			}
		}
		switch {
		case highest == nil || highest.ticket < a.ticket:
		case c.lost(l.name, highest.request.At, a.queued[0].At) != nil:
			c.excuse(Tickets, dataLost)
		default:
			c.Violate(Tickets, l.name, []*Event{highest.queued[0], a.request, a.queued[0]},
				"%v was requested after %v knew its ticket, and has a lower one", a, highest)
		}
	}
}

// fences finds out when each grant was made at the earliest, and checks the fences: no two grants of a lock have the
// same one, and a grant has a higher one than every earlier grant.
//
// By its fence, a grant was made after all with lower fences were requested, and after the end of all with lower fences
// with which it cannot be held together. If it was made before, at the latest, its fence is wrong. (If Redis loses its
// data and its clock is behind, fences may fall.)
func (c *checker) fences(l *lock) {
	var requested *acquisition // so far
	var held []*acquisition    // of each weight, the one that held the lock last
	for i, a := range l.grants {
		if requested == nil || a.request.At >= requested.request.At {
			requested = a
		}
		var wrong *acquisition
		a.earliest = requested.request.At
		if i > 0 && l.grants[i-1].granted.Fence == a.granted.Fence {
			wrong = l.grants[i-1]
		} else if a.earliest > a.latest() {
			wrong = requested
		}
		for _, b := range held {
			if a.weight+b.weight <= l.capacity {
				continue
			}
			if a.earliest = max(a.earliest, b.end); b.granted.At > a.latest() {
				wrong = b
			}
		}
		if wrong != nil && c.ClockBack && c.lostBetween(a, wrong) {
			c.excuse(Fences, dataLost)
		} else if wrong != nil {
			c.Violate(Fences, l.name, []*Event{a.granted, wrong.granted}, "%v was granted it before %v, whose fence is not higher", a, wrong)
		}
		if c.ClockBack { // fences do not say which grants were earlier
			a.earliest = a.request.At
		}
		if !a.holds() || c.lost(l.name, a.request.At, a.end) != nil {
			continue
		}
		if i := slices.IndexFunc(held, func(b *acquisition) bool { return b.weight == a.weight }); i < 0 {
			held = append(held, a)
		} else if a.end > held[i].end {
			held[i] = a
		}
	}
}

// order: no grant passes an earlier waiter that still waits.
//
// Redis gives tickets in the order in which requests arrive, and fences in the order in which it grants. So a grant
// passes each waiter that has a lower ticket and a higher fence, or none. A grant without a ticket was made when the
// queue was empty: it passes each waiter with a ticket below its fence. (The others, too: if Redis's clock has stepped
// back, a lower ticket may be given later.) excuseFor says when such a pair is no violation.
func (c *checker) order(l *lock) {
	waiters := slices.DeleteFunc(slices.Clone(l.all), func(a *acquisition) bool { return a.ticket == 0 })
	slices.SortStableFunc(waiters, func(a, b *acquisition) int { return cmp.Compare(a.ticket, b.ticket) })
	gone := map[*acquisition]bool{} // they were granted the lock, or may have given up
	for _, a := range l.grants {
		gone[a] = true
		for len(waiters) > 0 && gone[waiters[0]] {
			waiters = waiters[1:]
		}
		for _, b := range waiters {
			if b.ticket >= min(cmp.Or(a.ticket, a.granted.Fence), a.granted.Fence) {
				break
			}
			gone[b] = gone[b] || b.waits <= a.earliest
			if gone[b] || a.latest() < b.request.At || b.granted != nil && b.latest() < a.request.At {
				continue
			}
			if why := c.excuseFor(l, a, b); why != "" {
				c.excuse(Order, why)
				continue
			}
			c.Violate(Order, l.name, []*Event{b.request, first(b.queued), a.request, a.granted, b.granted}, "%v was granted it before %v", a, b)
		}
	}
}

func first(events []*Event) *Event {
	if len(events) == 0 {
		return nil
	}
	return events[0]
}

// excuseFor returns why b may have let a pass.
func (c *checker) excuseFor(l *lock, a, b *acquisition) string {
	latest, kept, waiterTTL := a.latest(), int64(min(c.WaiterTTL, c.TTL)), int64(c.WaiterTTL)
	if latest >= b.waits {
		return "the waiter may have given up or been killed"
	}
	// Heartbeats are sent each third of the time for which a ticket is kept. In less than that one is missed at most. The
	// ticket outlasts the first half of a longer silence, and one WaiterTTL after it the waiter is back.
	for _, s := range c.silences(b.process) {
		if s.To-s.From >= kept/3 && s.To >= b.request.At && latest >= s.From+kept/2 && a.earliest <= s.To+waiterTTL {
			return "the ticket may have expired"
		}
	}
	for _, s := range c.Losses {
		if (s.Lock == "" || s.Lock == l.name) && s.To >= b.request.At && latest >= s.From && a.earliest <= s.To+waiterTTL {
			return dataLost
		}
	}
	switch {
	case l.seen.before(b.token, a.token):
		return "the waiter was granted it before, and did not hear of that in time"
	case a.ticket == 0 && b.knownAt() >= a.request.At && a.granted.At-a.request.At > prompt:
		return "the one that was granted it may have had a ticket"
	case b.granted == nil && max(a.beside, a.weight)+b.weight <= l.capacity:
		return "the waiter may have been granted it before, and have left before it heard of that"
	}
	return ""
}

// waitsUntil returns until when an acquisition certainly waits that was not granted the lock: until its deadline; or if
// it had none, until a second before its end was recorded, in which its process did not stand still.
func (c *checker) waitsUntil(a *acquisition) int64 {
	end := never
	if a.failed != nil {
		end = a.failed.At
	} else if kill := c.kills[a.process]; kill != nil {
		end = kill.From
	}
	if deadline := cmp.Or(a.request.Until, never); deadline <= end {
		return deadline
	}
	at := end - stall
	for _, s := range slices.Backward(c.silences(a.process)) {
		if s.To >= at && s.From < end {
			at = min(at, s.From-stall)
		}
	}
	return at
}

// silences returns when a process was paused or could not reach Redis, in order. Two without a heartbeat in between are
// one.
func (c *checker) silences(process int) (list []Span) {
	if list, ok := c.silent[process]; ok {
		return list
	}
	all := slices.DeleteFunc(slices.Concat(c.Pauses, c.Unreachable), func(s Span) bool {
		return s.Process != process && s.Process != All
	})
	slices.SortFunc(all, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range all {
		if n := len(list); n > 0 && s.From-list[n-1].To < int64(min(c.WaiterTTL, c.TTL)/3) {
			list[n-1].To = max(list[n-1].To, s.To)
		} else {
			list = append(list, s)
		}
	}
	c.silent[process] = list
	return list
}
