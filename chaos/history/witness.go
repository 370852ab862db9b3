package history

import (
	"cmp"
	"maps"
	"slices"
)

// Sight is what a Witness tells.
type Sight string

// What can be seen in Redis, for example by MONITOR, which shows the commands of scripts in the order in which they are
// carried out.
const (
	Joins   Sight = "joins"   // a token is put into the queue, with its Ticket (ZADD queue); again if it comes back
	Heard   Sight = "heard"   // a waiter's place is kept until Until (ZADD alive); Token may be its last 14 characters
	Given   Sight = "given"   // the lock is granted to a token (SET lock)
	Leaves  Sight = "leaves"  // a waiter leaves the queue by itself (ZREM queue by the script leave)
	Dropped Sight = "dropped" // a waiter is taken out of the queue, for its patience has run out (ZREM queue by any other)
	Wiped   Sight = "wiped"   // all that Redis knew of a lock is gone, or of all locks if Lock is empty
	Blind   Sight = "blind"   // from here on something may have been missed before the next line, of all locks
)

// Witness is what was seen in Redis at one moment. A token that is granted the lock is out of the queue by that: that
// it is removed from it need not be told, and does no harm if it is, as Leaves or Dropped.
type Witness struct {
	At     int64  `json:"at"` // µs of Redis's clock, not before the time by which the script goes
	Op     Sight  `json:"op"`
	Lock   string `json:"lock,omitempty"`
	Token  string `json:"token,omitempty"`
	Ticket uint64 `json:"ticket,omitempty"`
	Until  int64  `json:"until,omitempty"` // µs of Redis's clock; Heard with a negative one is no word of a waiter
}

// queue is that of one lock, as the witness saw it.
type queue struct {
	tickets map[string]uint64 // of all tokens ever
	old     map[string]uint64 // of all tokens before the last time it was wiped
	waiting []string          // by ticket
	heard   map[string]int64  // short token → until when it keeps its place
	grants  map[string]grant  // token → its last
	n       int               // grants so far
	blind   bool              // something was missed
}

// grant is one that was seen.
type grant struct {
	n  int   // of all grants of the lock
	at int64 // µs
}

// short is a token's name in alive.
func short(token string) string { return token[max(0, len(token)-14):] }

// stood are the tickets with which tokens stood in the queue when they were last granted their locks.
func stood(seen []Witness) map[string]uint64 {
	waiting, granted := map[string]Witness{}, map[string]uint64{}
	for _, w := range seen {
		switch w.Op {
		case Joins:
			waiting[w.Token] = w
		case Given:
			delete(granted, w.Token)
			if joined, ok := waiting[w.Token]; ok {
				granted[w.Token] = joined.Ticket
			}
			delete(waiting, w.Token)
		case Leaves, Dropped:
			delete(waiting, w.Token)
		case Wiped, Blind:
			maps.DeleteFunc(waiting, func(_ string, joined Witness) bool { return w.Lock == "" || w.Lock == joined.Lock })
		}
	}
	return granted
}

// server: in the order of Redis itself,
//
//   - a token joins with a ticket above all in the queue, or comes back with the one that it had, which it keeps;
//   - a grant is made to the head of the queue, or, if it is to somebody who is not in it, while the queue is empty;
//   - a waiter is dropped only when its patience has run out, to the millisecond by which Redis reckons. This is left
//     out if it was not seen to be heard of.
//
// After a Blind nobody is known to be in the queue but who joins after it. Who was seen to join before may still wait,
// with its ticket; a grant to somebody else who is not in the queue is left out. And of what clients tell,
//
//   - who was granted a lock is seen to be, and fences rise in the order of the grants seen;
//   - a ticket is the one that was seen.
func (c *checker) server() {
	if c.Witness == nil {
		return
	}
	queues := map[string]*queue{}
	missed := false
	of := func(lock string) *queue {
		if queues[lock] == nil {
			queues[lock] = &queue{
				tickets: map[string]uint64{}, old: map[string]uint64{}, heard: map[string]int64{}, grants: map[string]grant{},
				blind: missed,
			}
		}
		return queues[lock]
	}
	for _, w := range c.Witness {
		switch {
		case w.Op == Blind:
			missed = true
			for _, q := range queues {
				q.waiting, q.blind = nil, true
			}
		case w.Op == Wiped && w.Lock == "":
			for _, q := range queues {
				q.wipe()
			}
		default:
			c.see(of(w.Lock), w)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.locks)) {
		c.compare(c.locks[name], of(name))
	}
}

func (c *checker) see(q *queue, w Witness) {
	switch w.Op {
	case Joins:
		c.joins(q, w)
	case Heard:
		if w.Until > 0 {
			q.heard[short(w.Token)] = w.Until
		}
	case Given:
		c.given(q, w)
	case Leaves:
		q.leave(w.Token)
	case Dropped:
		c.dropped(q, w)
	case Wiped:
		q.wipe()
	default:
		c.violate(Server, w.Lock, nil, "the witness tells of %q", w.Op)
	}
}

// wipe forgets who waits. Who comes back brings its ticket.
func (q *queue) wipe() {
	maps.Copy(q.old, q.tickets)
	clear(q.tickets)
	q.waiting = nil
}

func (q *queue) place(token string) int { return slices.Index(q.waiting, token) }

func (q *queue) leave(token string) {
	if i := q.place(token); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

func (c *checker) joins(q *queue, w Witness) {
	switch ticket, again := q.tickets[w.Token]; {
	case again && ticket != w.Ticket && q.place(w.Token) >= 0:
		c.violate(Server, w.Lock, nil, "%s has ticket %d in place of %d", w.Token, w.Ticket, ticket)
	case again && ticket == w.Ticket || len(q.waiting) == 0 || q.old[w.Token] == w.Ticket:
	default:
		tail := q.waiting[len(q.waiting)-1]
		if w.Ticket > q.tickets[tail] {
			break
		}
		if q.blind {
			c.exempt(Server, "who joins before others may come back, unseen so far")
			break
		}
		c.violate(Server, w.Lock, nil,
			"%s joined with ticket %d behind %s, which has %d", w.Token, w.Ticket, tail, q.tickets[tail])
	}
	q.tickets[w.Token] = w.Ticket
	q.leave(w.Token)
	// Two have one ticket if it was given again after a step back of the clock. Then Redis goes by their names.
	at, _ := slices.BinarySearchFunc(q.waiting, w, func(token string, w Witness) int {
		return cmp.Or(cmp.Compare(q.tickets[token], w.Ticket), cmp.Compare(token, w.Token))
	})
	q.waiting = slices.Insert(q.waiting, at, w.Token)
}

// resting holds a lock whose data was lost.
const resting = "nobody:resting"

func (c *checker) given(q *queue, w Witness) {
	if w.Token == resting {
		return
	}
	q.n++
	q.grants[w.Token] = grant{q.n, w.At}
	place := q.place(w.Token)
	q.leave(w.Token)
	ticket, seen := q.tickets[w.Token]
	switch {
	case place < 0 && len(q.waiting) > 0 && q.blind && !seen:
		c.exempt(Server, "who is granted it was not seen to join")
		return
	case place < 0 && len(q.waiting) > 0 && q.blind && ticket < q.tickets[q.waiting[0]]:
		// It has waited since before something was missed.
	case place < 0 && len(q.waiting) > 0:
		c.violate(Server, w.Lock, nil,
			"it was granted to %s, which was not in the queue, at %d µs, when %s was its head", w.Token, w.At, q.waiting[0])
	case place > 0:
		c.violate(Server, w.Lock, nil,
			"it was granted to %s, which had %d before it in the queue, at %d µs, when %s was its head",
			w.Token, place, w.At, q.waiting[0])
	}
	c.judge(Server, 1)
}

func (c *checker) dropped(q *queue, w Witness) {
	if q.place(w.Token) < 0 {
		return
	}
	q.leave(w.Token)
	until, seen := q.heard[short(w.Token)]
	switch {
	case !seen:
		c.exempt(Server, "who was dropped was not seen to be heard of")
		return
	case w.At < until-1000: // Redis drops it if less than a millisecond is left
		c.violate(Server, w.Lock, nil, "%s was dropped at %d µs and keeps its place until %d µs", w.Token, w.At, until)
	}
	c.judge(Server, 1)
}

// compare holds what clients tell of a lock to what was seen.
func (c *checker) compare(l *one, q *queue) {
	var last *acquisition // granted
	for _, a := range l.grants {
		its, seen := q.grants[a.token]
		switch {
		case q.blind && (!seen || a.granted.Fence > uint64(its.at)): // or was later than the one seen: fences are times
			c.exempt(Server, "a grant may have been missed")
			continue
		case !seen:
			c.violate(Server, l.name, []*Event{a.granted}, "%v was granted it, and the witness saw no grant to %s", a, a.token)
			continue
		case last != nil && its.n < q.grants[last.token].n:
			c.violate(Server, l.name, []*Event{last.granted, a.granted},
				"%v was granted it before %v, as the witness saw, and has a higher fence", a, last)
		}
		last = a
	}
	for _, a := range l.all {
		if a.ticket == 0 {
			continue
		}
		ticket, seen := q.tickets[a.token]
		if !seen {
			ticket, seen = q.old[a.token]
		}
		switch {
		case !seen && q.blind:
			c.exempt(Server, "a waiter's coming may have been missed")
		case !seen:
			c.violate(Server, l.name, nil, "%v has a ticket, and the witness did not see %s join", a, a.token)
		case ticket != a.ticket:
			c.violate(Server, l.name, nil, "%v has ticket %d, and the witness saw %d", a, a.ticket, ticket)
		}
	}
}
