package history

import (
	"cmp"
	"slices"
	"time"
)

// once is how long a Lock may have taken that has asked once, but for what go-redis sends again by itself: after 50 ms
// fairlock asks again, and the answer to the first question, with the ticket, is not heard.
const once = int64(25 * time.Millisecond)

// Why a pair is not held to the order.
const (
	gaveUp     = "the one who waited may have given up"
	wasKilled  = "the one who waited may have been killed"
	wasSilent  = "the one who waited may have been silent for too long"
	redisLost  = "Redis had just lost its data"
	placeHeard = "the place of the one who was granted it is not known"
)

// waiter is an acquisition whose ticket is known, and how long it waits.
type waiter struct {
	*acquisition
	known int64  // when it knew its ticket
	sure  int64  // until when it waits for certain, unless it is granted before
	gone  int64  // from when on it does not wait for certain
	why   string // what is uncertain in between
}

// tickets: an acquisition keeps its ticket for life; no two have the same; and who asks after another one has learned
// its ticket gets a higher one, however long ago that was, for tickets are Redis's time, unless its clock stepped.
func (c *checker) tickets(l *one) {
	var all, known []*acquisition
	byTicket := map[uint64]*acquisition{}
	for _, a := range l.all {
		if len(a.queued) == 0 {
			continue
		}
		known = append(known, a)
		all = append(all, a)
		for _, e := range append(a.queued[1:len(a.queued):len(a.queued)], a.granted) {
			if e != nil && e.Ticket != a.ticket {
				c.violate(Tickets, l.name, []*Event{a.queued[0], e}, "%v had another ticket at %s: %d", a, c.at(e.At), e.Ticket)
			}
		}
		if b := byTicket[a.ticket]; b != nil {
			c.violate(Tickets, l.name, []*Event{b.queued[0], a.queued[0]}, "%v and %v have one ticket", b, a)
		}
		byTicket[a.ticket] = a
	}
	slices.SortStableFunc(known, func(a, b *acquisition) int { return cmp.Compare(a.queued[0].At, b.queued[0].At) })
	var highest *acquisition // of those who knew their ticket before a asked
	for _, a := range all {
		for len(known) > 0 && known[0].queued[0].At < a.ask.At {
			if highest == nil || known[0].ticket > highest.ticket {
				highest = known[0]
			}
			known = known[1:]
		}
		c.judge(Tickets, 1)
		if highest == nil || highest.ticket < a.ticket {
			continue
		}
		if _, ok := c.lost(l.name, highest.ask.At, a.queued[0].At); ok {
			c.exempt(Tickets, redisLost)
			continue
		}
		c.violate(Tickets, l.name, []*Event{highest.queued[0], a.ask, a.queued[0]},
			"%v asked at %s, after %v had learned its ticket at %s, and has a lower one",
			a, c.at(a.ask.At), highest, c.at(highest.queued[0].At))
	}
}

// order: nobody is granted a lock while somebody waits for it who came before.
//
// Redis gives tickets in the order in which it is asked, and fences in the order in which it grants. So b was passed by
// a if b has the lower ticket and the higher fence, or none, while it waits. A grant without a ticket was made to
// somebody who found nobody there: it passes everybody who had got a ticket before its fence, both of which are Redis's
// time.
//
// A pair is a grant and somebody who got a ticket before it and has not been granted the lock. It is judged unless,
// when the grant may have been made,
//   - b may have given up, or its process been killed: when its ctx ended, if Ask told that and it was before, and else
//     a second before it told that it failed or was killed, and the pauses of its process in that second do not count.
//     Whose process was not killed, and who tells nothing more, waits for ever;
//   - b may have been dropped, or what was given to it may have run out, because it was stopped or silent for at least
//     a third of what its place lasts: Patience, or TTL if that is shorter. Beats are a third apart, so in less than
//     that it misses one at most. For the first half its place is safe, and one Patience after its silence it is back;
//   - Redis had lost its data less than one Patience ago, and b had asked by then;
//   - a has no ticket, nor was seen by the witness to wait with one, asked before b knew its own, and took more than
//     25 ms, so that the answer which told a its ticket may have been lost.
func (c *checker) order(l *one) {
	waiters := c.waiters(l)
	line := newLine(waiters)
	places := map[*acquisition]int{}
	for i, w := range waiters {
		places[w.acquisition] = i
	}
	leavers := slices.Clone(waiters) // by when they are gone
	slices.SortFunc(leavers, func(a, b *waiter) int { return cmp.Compare(a.gone, b.gone) })
	var earliest int64 // when the grant was made at the earliest
	for _, a := range l.grants {
		earliest = max(earliest, a.ask.At)
		for len(leavers) > 0 && leavers[0].gone <= earliest {
			line.leave(places[leavers[0].acquisition])
			leavers = leavers[1:]
		}
		if place, ok := places[a]; ok {
			line.leave(place)
		}
		c.judge(Order, line.before(a.granted.Fence))
		ahead := cmp.Or(a.ticket, c.stood[a.token]) // the answer that tells it may have been lost
		for n := range line.before(cmp.Or(ahead, a.granted.Fence)) {
			b := waiters[line.nth(n)]
			if a.latest() < b.ask.At {
				continue // Redis's clock has stepped back
			}
			if why := c.excuse(a, b, ahead, earliest); why != "" {
				c.judge(Order, -1)
				c.exempt(Order, why)
				continue
			}
			c.violate(Order, l.name, []*Event{b.ask, b.firstQueued(), a.ask, a.granted, b.granted},
				"%v was granted it by %s, before %v, which waits since %s",
				a, c.at(a.latest()), b, c.at(b.ask.At))
		}
		if _, ok := c.lost(l.name, a.ask.At, a.end); !ok && a.believed() {
			earliest = max(earliest, a.end)
		}
	}
}

// firstQueued is when it told its ticket; nil if only its grant did.
func (w *waiter) firstQueued() *Event {
	if len(w.queued) == 0 {
		return nil
	}
	return w.queued[0]
}

// waiters are those whose ticket is known, by ticket.
func (c *checker) waiters(l *one) []*waiter {
	var list []*waiter
	for _, a := range l.all {
		if a.ticket == 0 {
			continue
		}
		w := &waiter{acquisition: a, sure: never, gone: never}
		list = append(list, w)
		if first := w.firstQueued(); first != nil {
			w.known = first.At
		} else {
			w.known = a.granted.At
		}
		if a.granted != nil {
			continue
		}
		w.why = gaveUp
		if a.failed != nil {
			w.gone = a.failed.At
		} else if kill, ok := c.kills[a.process]; ok {
			w.gone, w.why = kill.From, wasKilled
		}
		w.sure = c.gaveUp(a, w.gone)
	}
	slices.SortStableFunc(list, func(a, b *waiter) int { return cmp.Compare(a.ticket, b.ticket) })
	return list
}

// gaveUp is until when a call that ended without the lock waited for certain. What it told last may have been told
// late: its process may have stood still.
func (c *checker) gaveUp(a *acquisition, end int64) int64 {
	switch until := a.ask.Until; {
	case until != 0 && until <= end:
		return until
	case end == never || until != 0 && a.failed == nil:
		return end
	}
	at := end - stall
	for _, s := range slices.Backward(c.pauses(a.process)) {
		if s.To >= at && s.From < end {
			at = min(at, s.From-stall)
		}
	}
	return at
}

// pauses are when a process was stopped or silent, in order. Two between which it need not have beaten are one.
func (c *checker) pauses(process int) []Span {
	if list, ok := c.paused[process]; ok {
		return list
	}
	all, list := slices.Concat(c.spans[process], c.spans[Everybody]), []Span(nil)
	slices.SortFunc(all, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range all {
		if n := len(list); n > 0 && s.From-list[n-1].To < int64(min(c.Patience, c.TTL)/3) {
			list[n-1].To = max(list[n-1].To, s.To)
		} else {
			list = append(list, s)
		}
	}
	c.paused[process] = list
	return list
}

// excuse tells why b may have let a pass, which had this ticket if it is known, and whose grant was made at the earliest
// then.
func (c *checker) excuse(a *acquisition, b *waiter, ticket uint64, earliest int64) string {
	latest := a.latest()
	if latest >= b.sure {
		return b.why
	}
	place, patience := int64(min(c.Patience, c.TTL)), int64(c.Patience)
	for _, s := range c.pauses(b.process) {
		if s.To-s.From >= place/3 && s.To >= b.ask.At && latest >= s.From+place/2 && earliest <= s.To+patience {
			return wasSilent
		}
	}
	for _, s := range c.Run.Losses {
		if s.about(a.lock) && s.To >= b.ask.At && latest >= s.From && earliest <= s.To+patience {
			return redisLost
		}
	}
	if ticket == 0 && b.known >= a.ask.At && a.granted.At-a.ask.At > once {
		return placeHeard
	}
	return ""
}
