package history

import (
	"cmp"
	"slices"
	"time"
)

// prompt is how long a Lock takes at most that sent one request. If it took longer, go-redis may have sent the request
// again, and the first reply, with the ticket, may be lost.
const prompt = int64(25 * time.Millisecond)

// tickets: an acquisition keeps its ticket, and no two have the same one. An acquisition that begins after another one
// has learned its ticket gets a higher one, even if the other one has left.
func (c *checker) tickets(l *lock) {
	byTicket := map[uint64]*acquisition{}
	for _, a := range l.all {
		queued := a.first[Queued]
		if queued == nil {
			continue
		}
		for _, e := range a.events {
			if e.Op == Granted && e.Ticket != a.ticket {
				c.violate(Tickets, []*Event{queued, e}, "%v got another ticket", a)
			}
		}
		b := byTicket[a.ticket]
		byTicket[a.ticket] = a
		switch {
		case b != nil && c.firstLoss(l, min(b.request.At, a.request.At), max(b.first[Queued].At, queued.At), Numbers) != nil:
			c.excuse(Tickets, dataLost)
		case b != nil:
			c.violate(Tickets, []*Event{b.first[Queued], queued}, "%v and %v have one ticket", b, a)
		case a.after == nil || a.after.ticket < a.ticket:
		case c.firstLoss(l, a.after.request.At, queued.At, Numbers) != nil:
			c.excuse(Tickets, dataLost)
		default:
			c.violate(Tickets, []*Event{a.after.first[Queued], a.request, queued},
				"%v was requested after %v knew its ticket, and has a lower one", a, a.after)
		}
	}
}

// fences: they are distinct, and rise in the order of the grants. A grant was made after each request with a lower
// fence. If the grant with the next lower fence leaves no room for it, it was also made after the end of that one. If
// Redis's clock was stepped back, fences may fall across a loss of data.
func (c *checker) fences(l *lock) {
	now := int64(0)
	var last *acquisition
	for _, a := range l.grants {
		if c.ClockBack && c.firstLoss(l, a.request.At, a.latest(), Numbers) != nil {
			continue // its fence may be from before or after the loss
		}
		if now = max(now, a.request.At); last != nil {
			overlap := last.end > a.latest() && last.granted.At <= a.granted.At // exclusion reports it
			full := last.weight+a.weight > l.most(last.request.At, a.latest(), a.permits)
			if full && !overlap && c.firstLoss(l, last.request.At, a.latest(), Holders) == nil {
				now = max(now, last.end)
			}
			if now > a.latest() || a.granted.Fence == last.granted.Fence && a.losses == last.losses {
				c.violate(Fences, []*Event{a.granted, last.granted}, "%v was granted it before %v, or has the same fence", a, last)
			}
		}
		last, a.earliest = a, now
	}
}

// order: no grant passes an earlier waiter that still waits; of a keyed semaphore, none of the same key. (Which key is
// next, package rules checks.) What was seen in the server tells it better: replay checks that.
//
// Redis gives tickets in the order in which requests arrive, and fences in the order in which it grants. So a grant
// passes each waiter that has a lower ticket and a higher fence, or none. A grant without a ticket was made when the
// queue was empty: it passes each waiter with a ticket below its fence. (That includes the others: if Redis's clock has
// stepped back, a lower ticket may be given later.) excuseFor says when such a pair is no violation.
func (c *checker) order(l *lock) {
	waiters := slices.DeleteFunc(slices.Clone(l.all), func(a *acquisition) bool { return a.ticket == 0 })
	slices.SortStableFunc(waiters, func(a, b *acquisition) int { return cmp.Compare(a.ticket, b.ticket) })
	for _, a := range l.grants {
		a.gone = true
		for len(waiters) > 0 && waiters[0].gone {
			waiters = waiters[1:]
		}
		for _, b := range waiters {
			if b.ticket >= min(cmp.Or(a.ticket, a.granted.Fence), a.granted.Fence) {
				break
			}
			b.gone = b.gone || b.waits <= a.earliest
			if b.gone || b.key != a.key || a.latest() < b.request.At || b.granted != nil && b.latest() < a.request.At {
				continue
			}
			if why := c.excuseFor(l, a, b); why != "" {
				c.excuse(Order, why)
			} else {
				c.violate(Order, []*Event{b.request, b.first[Queued], a.request, a.granted, b.granted},
					"%v was granted it before %v", a, b)
			}
		}
	}
}

// excuseFor returns why b may have let a pass.
func (c *checker) excuseFor(l *lock, a, b *acquisition) string {
	// In an absence of less than a third of kept one heartbeat is missed at most. The ticket outlasts the first half of a
	// longer one, and one WaiterTTL after it, or after a loss of data, the waiter is back.
	latest, since := a.latest(), max(b.request.At, a.earliest-int64(c.WaiterTTL))
	absent := func(s Span) bool { return s.To-s.From >= c.kept()/3 && s.To >= since && s.From+c.kept()/2 <= latest }
	switch {
	case latest >= b.waits:
		return "the waiter may have given up or been killed, or wanted more permits than there were"
	case slices.ContainsFunc(b.process.absences, absent):
		return "the ticket may have expired"
	// a was requested before a loss, and perhaps granted it later
	case c.firstLoss(l, since, latest) != nil, a.losses < b.losses,
		// b may have got a lower ticket after that
		c.ClockBack && c.firstLoss(l, b.request.At, b.time(Queued), Numbers) != nil:
		return dataLost
	case a.ticket == 0 && min(b.time(Queued), b.time(Granted)) >= a.request.At && a.granted.At-a.request.At > prompt:
		return "the one that was granted it may have had a ticket"
	case b.granted == nil && max(a.beside, a.weight)+b.weight <= l.most(b.request.At, latest, a.permits):
		return "the waiter may have been granted it before, and have left before it learned of that"
	}
	return ""
}
