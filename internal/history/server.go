package history

import (
	"cmp"
	"slices"
)

// seen is what was seen in the server of one lock.
type seen struct {
	tickets map[string]uint64 // token → its ticket, also if it has left
	waiting []string          // by ticket
	keeps   map[string]int64  // the end of a token → until when it keeps its ticket
	holders map[string]int    // token → weight
	granted map[string]grant  // token → its last
	n       int               // grants
	missed  bool              // something was missed
}

// grant is one that was seen.
type grant struct {
	n      int    // of all grants of the lock, from 1
	ticket uint64 // with which it waited until then; 0 if it did not
}

func newSeen() *seen {
	return &seen{
		tickets: map[string]uint64{}, keeps: map[string]int64{}, holders: map[string]int{},
		granted: map[string]grant{},
	}
}

// forget forgets who holds and who waits. Waiters that come back bring their tickets.
func (s *seen) forget() {
	clear(s.holders)
	s.waiting = nil
}

// leave takes a token out of the queue, and returns its position, from 0, or -1.
func (s *seen) leave(token string) int {
	i := slices.Index(s.waiting, token)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i
}

// short is what the server knows of a token that waits.
func short(token string) string { return token[max(0, len(token)-14):] }

// replay checks what was seen in the server. In the server's own order,
//
//   - a token joins with a ticket above all in the queue, or comes back with its own; and not while it holds the lock;
//   - the lock is granted to the head of the queue, or to another token while the queue is empty;
//   - the weights of all holders never exceed the capacity;
//   - a waiter is dropped only after the time until which it keeps its ticket.
//
// After Misses nothing is known of who holds and who waits but what is seen from then on.
func (c *checker) replay() {
	locks, weights, missed := map[string]*lock{}, map[string]int{}, false
	for _, l := range c.locks {
		locks[l.name] = l
		for _, a := range l.all {
			weights[a.token] = a.weight
		}
	}
	for i := range c.Server {
		e := &c.Server[i]
		l := locks[e.Lock]
		if l == nil && e.Lock != "" { // clients have recorded nothing of it
			l = &lock{name: e.Lock, capacity: c.capacity(e.Lock), seen: newSeen()}
			l.seen.missed = missed
			locks[e.Lock] = l
		}
		switch {
		case e.Op == Misses:
			missed = true
			for _, l := range locks {
				l.seen.missed = true
				l.seen.forget()
			}
		case l != nil:
			c.see(l, e, weights)
		case e.Op == Deletes:
			for _, l := range locks {
				l.seen.forget()
			}
		}
	}
}

func (c *checker) see(l *lock, e *ServerEvent, weights map[string]int) {
	s := l.seen
	wrong := func(format string, args ...any) {
		c.Violate(Server, l.name, nil, "at %d µs of server time %s "+format, append([]any{e.At, e.Token}, args...)...)
	}
	switch e.Op {
	case Joins:
		c.joins(s, e, wrong)
	case Keeps:
		s.keeps[short(e.Token)] = e.Until
	case Owns:
		weight, known := weights[e.Token]
		if !known && l.capacity == 1 {
			weight = 1
		}
		s.holders[e.Token] = weight
		used := 0
		for _, weight := range s.holders {
			used += weight
		}
		if used > l.capacity {
			wrong("was granted the lock; %d of %d are held then", used, l.capacity)
		}
		c.owns(s, e, wrong)
	case Leaves:
		s.leave(e.Token)
	case Drops:
		until, known := s.keeps[short(e.Token)]
		if waited := s.leave(e.Token) >= 0; waited && !known {
			c.excuse(Server, "until when a dropped token keeps its ticket was not seen")
		} else if waited && e.At < until-1000 { // Redis drops it if less than a millisecond is left
			wrong("was dropped and keeps its ticket until %d", until)
		}
	case Ends:
		delete(s.holders, e.Token)
	case Deletes:
		s.forget()
	default:
		wrong("does what is unknown: %q", e.Op)
	}
}

func (c *checker) joins(s *seen, e *ServerEvent, wrong func(string, ...any)) {
	if _, holds := s.holders[e.Token]; holds {
		wrong("joined the queue while it holds the lock")
	}
	ticket, again := s.tickets[e.Token]
	waited, own := s.leave(e.Token) >= 0, again && ticket == e.Ticket
	if waited && !own {
		wrong("got ticket %d in place of %d", e.Ticket, ticket)
	} else if n := len(s.waiting); n > 0 && !own && e.Ticket <= s.tickets[s.waiting[n-1]] {
		if s.missed {
			c.excuse(Server, "a token that joins before others may come back")
		} else {
			wrong("joined with ticket %d behind ticket %d", e.Ticket, s.tickets[s.waiting[n-1]])
		}
	}
	s.tickets[e.Token] = e.Ticket
	// After a step back of the clock a ticket may be given again while its first owner is away. Redis then goes by name.
	i, _ := slices.BinarySearchFunc(s.waiting, e, func(token string, e *ServerEvent) int {
		return cmp.Or(cmp.Compare(s.tickets[token], e.Ticket), cmp.Compare(token, e.Token))
	})
	s.waiting = slices.Insert(s.waiting, i, e.Token)
}

func (c *checker) owns(s *seen, e *ServerEvent, wrong func(string, ...any)) {
	s.n++
	g := grant{n: s.n}
	position := s.leave(e.Token)
	if position >= 0 {
		g.ticket = s.tickets[e.Token]
	}
	s.granted[e.Token] = g
	switch {
	case position > 0:
		wrong("was granted the lock and was not the head of the queue, with %d before it", position)
	case position == 0 || len(s.waiting) == 0:
	case s.missed: // it may have waited since before that
		c.excuse(Server, "a token that was granted the lock was not seen to join")
	default:
		wrong("was granted the lock and was not in the queue, whose head was %s", s.waiting[0])
	}
}

// agreement: what clients recorded agrees with what was seen, if nothing was missed. A grant was seen; fences rise in
// the order of the grants seen; a ticket is the one that was seen.
func (c *checker) agreement(l *lock) {
	s := l.seen
	if c.Server == nil || s.missed {
		return
	}
	var last *acquisition
	for _, a := range l.grants {
		if s.granted[a.token].n == 0 {
			c.Violate(Server, l.name, []*Event{a.granted}, "%v was granted it, and that was not seen", a)
			continue
		}
		if last != nil && s.granted[a.token].n <= s.granted[last.token].n {
			// What Redis has lost may have been that last had left. Then it was granted the lock again.
			if c.lost(l.name, min(last.granted.At, a.granted.At), never) != nil {
				c.excuse(Server, dataLost)
			} else {
				c.Violate(Server, l.name, []*Event{last.granted, a.granted}, "%v was seen to be granted it before %v", a, last)
			}
		}
		last = a
	}
	for _, a := range l.all {
		if ticket := s.tickets[a.token]; a.ticket != 0 && a.ticket != ticket { // 0 if it was not seen
			c.Violate(Server, l.name, []*Event{first(a.queued)}, "%v was seen to join with ticket %d", a, ticket)
		}
	}
}
