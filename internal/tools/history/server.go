package history

import (
	"cmp"
	"math"
	"slices"
)

// seen is what was seen in the server of one lock.
type seen struct {
	tickets map[string]uint64   // token → its last ticket
	had     map[string][]uint64 // also those before: it comes back with the one that its client knows
	keys    map[string]string   // token → its key, of a keyed semaphore
	keeps   map[string]int64    // token → until when it keeps its ticket, by the queue's clock
	holders map[string]int      // token → weight
	waiting []string            // by ticket
	permits int                 // how many there are; 0: as many as each request says
	grants  []string            // tokens
	brought map[grant]int       // which of grants, from 1, brought a token its fence
}

// grant is a grant as its client learns of it.
type grant struct {
	token string
	fence uint64
}

// forget forgets holders and waiters. Waiters that come back bring their tickets.
func (s *seen) forget() {
	s.waiting, s.holders, s.keeps = nil, map[string]int{}, map[string]int64{}
}

// leave takes a token out of the queue, and returns its position, from 0; or -1.
func (s *seen) leave(token string) int {
	i := slices.Index(s.waiting, token)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i
}

// replay checks what was seen in the server, in its own order. A token joins with a ticket above all in the queue, or
// comes back with its own, and not while it holds the lock. The lock is granted to the head of the queue, or to another
// token while the queue is empty. For a keyed semaphore, the line of its key counts. When it is, the weights of all
// holders never exceed the number of permits that its request says, or that a resize has set. A waiter is dropped only
// after the time until which it keeps its ticket. After Misses, holders and waiters are known only from later events.
func (c *checker) replay() {
	for _, e := range c.Server {
		concerned := c.locks
		if e.Lock != "" {
			concerned = []*lock{c.lock(e.Lock)}
		}
		for _, l := range concerned {
			c.see(l, l.seen, e)
		}
	}
	for _, l := range c.locks {
		c.agree(l, l.seen)
	}
}

func (c *checker) see(l *lock, s *seen, e ServerEvent) {
	wrong := func(format string, args ...any) {
		c.violate(Server, nil, "lock %q: at %d µs of server time %s "+format,
			append([]any{l.name, e.At, e.Token}, args...)...)
	}
	switch e.Op {
	case Joins:
		if _, holds := s.holders[e.Token]; holds {
			wrong("joined the queue while it holds the lock")
		}
		ticket, own := s.tickets[e.Token], slices.Contains(s.had[e.Token], e.Ticket)
		back := own && e.Ticket < ticket // it brings the lower of two tickets
		if waited := s.leave(e.Token) >= 0; waited && ticket != e.Ticket && !back {
			wrong("got ticket %d in place of %d", e.Ticket, ticket)
		} else if n := len(s.waiting); n > 0 && !own && !c.missed && e.Ticket <= s.tickets[s.waiting[n-1]] {
			wrong("joined with ticket %d before %s", e.Ticket, s.waiting[n-1])
		}
		s.tickets[e.Token], s.had[e.Token] = e.Ticket, append(s.had[e.Token], e.Ticket)
		// After a step back of the clock a ticket may be given again while its first owner is away. Redis then goes by the
		// token.
		i, _ := slices.BinarySearchFunc(s.waiting, e, func(token string, e ServerEvent) int {
			return cmp.Or(cmp.Compare(s.tickets[token], e.Ticket), cmp.Compare(token, e.Token))
		})
		s.keys[e.Token] = e.Key
		s.waiting = slices.Insert(s.waiting, i, e.Token)
	case Keeps:
		s.keeps[e.Token] = e.Until
	case Owns:
		permits := s.permits
		s.holders[e.Token] = 0
		if a := c.byToken[e.Token]; a != nil {
			s.holders[e.Token], permits = a.weight, cmp.Or(s.permits, a.permits)
		} else if l.capacity == 1 {
			s.holders[e.Token], permits = 1, 1
		} else if permits == 0 { // its client need not have recorded what it has brought
			permits = math.MaxInt
		}
		used := 0
		for _, weight := range s.holders {
			used += weight
		}
		if used > permits {
			wrong("was granted the lock; %d of %d are held then", used, permits)
		}
		s.grants = append(s.grants, e.Token)
		ahead := s.waiting
		if i := s.leave(e.Token); i >= 0 {
			ahead = ahead[:i]
		} else if c.missed {
			ahead = nil
		}
		if i := slices.IndexFunc(ahead, func(other string) bool { return s.keys[other] == e.Key }); i >= 0 {
			wrong("was granted the lock before %s, the head of the queue", ahead[i])
		}
	case Leaves:
		s.leave(e.Token)
	case Drops:
		until := s.keeps[e.Token] - 1000 // Redis drops it if less than a millisecond is left
		if s.leave(e.Token) >= 0 && e.Until < until {
			wrong("was dropped at %d µs of the queue's clock and keeps its ticket until %d", e.Until, until)
		}
	case Lasts:
		c.lasts[e.Token] = append(c.lasts[e.Token], e)
		if g := (grant{e.Token, e.Ticket}); s.brought[g] == 0 {
			last := len(s.grants)
			for last > 0 && s.grants[last-1] != e.Token {
				last--
			}
			s.brought[g] = last
		}
	case Ends:
		delete(s.holders, e.Token)
	case Resizes:
		s.permits = int(e.Ticket)
	case Deletes:
		s.forget()
	case Forgets:
		s.waiting = nil
	case Misses:
		s.forget()
		c.missed = true
		c.excuse(Server, "something was missed")
	default:
		wrong("does what is unknown: %q", e.Op)
	}
}

// agree: what clients recorded agrees with what was seen, if nothing was missed. A grant was seen; fences rise in the
// order of the grants seen; a ticket is one that was seen.
func (c *checker) agree(l *lock, s *seen) {
	if c.Server == nil || c.missed {
		return
	}
	for _, a := range l.all {
		// a replica may have given back an earlier one
		if had := s.had[a.token]; a.ticket != 0 && !slices.Contains(had, a.ticket) {
			c.violate(Server, []*Event{a.request, a.first[Queued]}, "%v was seen to join with tickets %d", a, had)
		}
	}
	number := map[string]int{} // of its last grant
	for i, token := range s.grants {
		number[token] = i + 1
	}
	// told returns the number of the grant that an acquisition was told of. If its lease was not seen, that is the last of
	// its token. Otherwise another one may follow: after Detach, a late acquire may be granted the lock once more without
	// an owner.
	told := func(a *acquisition) int { return cmp.Or(s.brought[grant{a.token, a.granted.Fence}], number[a.token]) }
	var last *acquisition
	for _, a := range l.grants {
		switch {
		case number[a.token] == 0:
			c.violate(Server, []*Event{a.granted}, "%v was granted it, and that was not seen", a)
			continue
		case last == nil || told(a) > told(last):
		case c.firstLoss(l, min(last.request.At, a.request.At), never, Holders, Numbers, Tombstones) != nil:
			c.excuse(Server, dataLost) // perhaps that last had left, which then was granted the lock again
		default:
			c.violate(Server, []*Event{last.granted, a.granted}, "%v was seen to be granted it before %v", a, last)
		}
		last = a
	}
}
