// Package model is the queue as docs/protocol.md has it, in plain Go: nothing of Redis, and no time but a number. Tests
// do the same steps to it and to the scripts, and compare. A mutex has one permit, a semaphore as many as its users
// say, a read-write lock 2^30; the model knows no other difference.
package model

import "slices"

// All times are µs of the server's clock.
const (
	Millisecond = 1000
	Day         = 86_400_000 * Millisecond
)

// The bounds of one call.
const (
	Sweep = 1000 // dead waiters dropped
	Batch = 128  // waiters admitted
)

// Resting holds a lock that rests after its data was lost.
const Resting = "nobody:resting"

// Lock is all that there is to know of a lock. The zero Lock is idle, and is what lost data leaves.
type Lock struct {
	Capacity int              // of permits; it stands while anybody holds or waits
	Holders  []Holder         // in the order of their grants
	Waiters  []Waiter         // in the order of their tickets
	Buried   map[string]int64 // tokens that have left, and until when they are refused
	Fence    uint64           // the last one; 0: none is known
	Known    int64            // until when the last fence is
	Kept     int64            // the end of the longest patience that the queue was asked for
}

// Holder is a lease.
type Holder struct {
	Token  string
	Weight int
	Fence  uint64
	Ends   int64 // it is over from this moment on
}

// Waiter is a place in the queue.
type Waiter struct {
	Token  string
	Weight int
	Ticket uint64
	Until  int64 // it keeps its place so long though it is silent
}

// Outcome is what an asker is told.
type Outcome string

// The outcomes.
const (
	Granted  Outcome = "granted"
	Queued   Outcome = "queued"
	Busy     Outcome = "busy"
	Full     Outcome = "full"
	Capacity Outcome = "capacity"
)

// State is where a waiter stands when it beats.
type State string

// The states.
const (
	Gone     State = "gone"
	Waiting  State = "queued"
	Holding  State = "granted"  // before this beat
	Admitted State = "admitted" // by this beat
)

// Rest is what is left of the queue after admission.
type Rest string

// What can be left.
const (
	Empty   Rest = "empty"
	Blocked Rest = "blocked" // the head does not fit
	More    Rest = "more"    // a bound of the call was reached
)

// Ask is a question for permits.
type Ask struct {
	Token            string
	Weight, Capacity int
	TTL              int64
	Patience         int64 // 0: only try
	Bound            int   // the most waiters; 0: any number
	Ticket           uint64
}

// Answer is the answer to it.
type Answer struct {
	Outcome  Outcome
	Fence    uint64 // Granted: of this grant; Queued: the last one
	Ticket   uint64 // Queued
	Position int    // Queued: 1 is the head; Full: how many live
	Capacity int    // Capacity: the one in use
	Rest     Rest   // Granted, Busy: as in a Handover, if anybody was admitted
}

// Grant is what a waiter was handed over.
type Grant struct {
	Token string
	Fence uint64
	Given int64
}

// Handover is what became of permits that were given back.
type Handover struct {
	Released bool
	Grants   []Grant
	Rest     Rest
}

// Acquire asks.
func (l *Lock) Acquire(now int64, a Ask) Answer {
	l.Pass(now)
	if h := l.holder(a.Token); h != nil {
		h.Ends = max(h.Ends, now+a.TTL)
		l.Known = now + max(Day, 2*a.TTL)
		return Answer{Outcome: Granted, Fence: h.Fence}
	}
	if l.InUse() && l.Capacity != a.Capacity {
		l.admit(now, a.TTL, "")
		if l.InUse() {
			return Answer{Outcome: Capacity, Capacity: l.Capacity}
		}
	}
	l.Capacity = a.Capacity
	if l.Buried[a.Token] > now {
		return Answer{Outcome: Busy}
	}
	waiter := Waiter{Token: a.Token, Weight: a.Weight, Ticket: a.Ticket, Until: now + a.Patience}
	if a.Ticket > 0 {
		if l.Fence == 0 && len(l.Holders) == 0 { // lost data: somebody may believe that the lock is his
			l.grant(now, Resting, l.Capacity, a.TTL)
			l.Fence = max(l.Fence, a.Ticket)
		}
		if a.Patience > 0 {
			if l.place(a.Token) < 0 && l.Free() > 0 {
				l.Kept = max(l.Kept, waiter.Until)
			}
			l.stand(waiter) // who returns stands in his old place before anybody is admitted
		}
	}
	_, rest := l.admit(now, a.TTL, a.Token)
	if rest == Empty && l.holder(a.Token) == nil && a.Weight <= l.Free() {
		l.grant(now, a.Token, a.Weight, a.TTL)
	}
	if h := l.holder(a.Token); h != nil {
		return Answer{Outcome: Granted, Fence: h.Fence, Rest: rest}
	}
	if a.Patience == 0 {
		return Answer{Outcome: Busy, Rest: rest}
	}
	if a.Ticket == 0 && l.place(a.Token) < 0 {
		if living := l.living(now); a.Bound > 0 && living >= a.Bound {
			return Answer{Outcome: Full, Position: living}
		}
		waiter.Ticket = max(uint64(now), l.Fence+1, l.tail()+1)
	}
	place := l.stand(waiter)
	l.Kept = max(l.Kept, waiter.Until)
	return Answer{Outcome: Queued, Fence: l.Fence, Ticket: l.Waiters[place].Ticket, Position: place + 1}
}

// Release gives back what the token holds.
func (l *Lock) Release(now int64, token string, ttl int64) Handover {
	l.Pass(now)
	return l.handover(now, ttl, l.drop(token))
}

// Leave takes a waiter out, gives back what it was granted meanwhile, and refuses it for so long from now on, if bury
// is not 0.
func (l *Lock) Leave(now int64, token string, ttl, bury int64) Handover {
	l.Pass(now)
	if at := l.place(token); at >= 0 {
		l.remove(at)
	}
	if bury > 0 {
		if l.Buried == nil {
			l.Buried = map[string]int64{}
		}
		l.Buried[token] = now + bury
	}
	return l.handover(now, ttl, l.drop(token))
}

// ForceRelease takes everything from everybody who was granted it with a fence not above the one that the caller has
// seen.
func (l *Lock) ForceRelease(now, ttl int64, seen uint64) Handover {
	l.Pass(now)
	before := len(l.Holders)
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Fence <= seen })
	taken := len(l.Holders) < before
	if taken {
		l.mark(now, 0)
	}
	return l.handover(now, ttl, taken)
}

// Renew extends a holding, and never shortens it. It returns its fence, and 0 if the token holds nothing.
func (l *Lock) Renew(now int64, token string, ttl int64) uint64 {
	l.Pass(now)
	h := l.holder(token)
	if h == nil {
		return 0
	}
	h.Ends = max(h.Ends, now+ttl)
	if l.Fence == 0 {
		l.Fence = h.Fence
	}
	l.Known = now + max(Day, 2*ttl)
	return h.Fence
}

// Beat keeps the places of waiters, and says how they stand and which of them is the foremost, -1 if none waits.
func (l *Lock) Beat(now, ttl, patience int64, tokens []string) (states []State, best int) {
	l.Pass(now)
	for _, t := range tokens {
		state := Gone
		if l.holder(t) != nil {
			state = Holding
		} else if at := l.place(t); at >= 0 {
			state = Waiting
			l.Waiters[at].Until = now + patience
			l.Kept = max(l.Kept, now+patience)
		}
		states = append(states, state)
	}
	l.admit(now, ttl, "")
	best = -1
	for i, t := range tokens {
		switch at := l.place(t); {
		case at < 0 && states[i] == Waiting:
			states[i] = Admitted
		case at >= 0 && (best < 0 || at < l.place(tokens[best])):
			best = i
		}
	}
	return states, best
}

// admit is the one rule. While anything is free: the head of the queue is dropped if its patience has run out, is
// granted what it wants if it fits, for what is left of its patience, at most ttl, and otherwise stops all behind it.
// The asker is alive, whatever its patience says, and gets ttl.
func (l *Lock) admit(now, ttl int64, asker string) (grants []Grant, rest Rest) {
	for dropped := 0; l.Free() > 0; {
		if len(l.Waiters) == 0 {
			return grants, Empty
		}
		if dropped == Sweep || len(grants) == Batch {
			return grants, More
		}
		head := l.Waiters[0]
		left := (head.Until - now) / Millisecond * Millisecond
		if head.Token == asker {
			left = ttl
		}
		switch {
		case left <= 0:
			dropped++
		case head.Weight > l.Free():
			return grants, Blocked
		default:
			given := min(left, ttl)
			grants = append(grants, Grant{head.Token, l.grant(now, head.Token, head.Weight, given), given})
		}
		l.remove(0)
	}
	return grants, Blocked
}

func (l *Lock) handover(now, ttl int64, released bool) Handover {
	grants, rest := l.admit(now, ttl, "")
	return Handover{released, grants, rest}
}

func (l *Lock) grant(now int64, token string, weight int, ttl int64) uint64 {
	l.mark(now, ttl)
	l.Holders = append(l.Holders, Holder{token, weight, l.Fence, now + ttl})
	return l.Fence
}

// mark sets the next fence, which is known for a day, or for two leases.
func (l *Lock) mark(now, ttl int64) {
	l.Fence = max(uint64(now), l.Fence+1)
	l.Known = now + max(Day, 2*ttl)
}

// stand puts a waiter into the queue, or keeps the place it has, and returns which that is.
func (l *Lock) stand(w Waiter) int {
	if at := l.place(w.Token); at >= 0 {
		l.Waiters[at].Until = w.Until
		return at
	}
	at := 0
	for at < len(l.Waiters) && l.Waiters[at].Ticket < w.Ticket {
		at++
	}
	l.Waiters = slices.Insert(l.Waiters, at, w)
	return at
}

func (l *Lock) remove(at int) {
	l.Waiters = slices.Delete(l.Waiters, at, at+1)
	if len(l.Waiters) == 0 {
		l.Kept = 0
	}
}

func (l *Lock) drop(token string) bool {
	before := len(l.Holders)
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Token == token })
	return len(l.Holders) < before
}

// Pass lets time pass up to now: leases end, and a fence is forgotten in the end.
func (l *Lock) Pass(now int64) {
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Ends <= now })
	if l.Known <= now {
		l.Fence = 0
	}
}

// Forgets returns from when on a queue may be forgotten as a whole, because everybody in it has been silent for so
// long, and when it is at the latest. In between Forget says that it was.
func (l *Lock) Forgets() (from, by int64) { return l.Kept + 200*Millisecond, l.Kept + 500*Millisecond }

// Forget forgets the queue.
func (l *Lock) Forget() { l.Waiters, l.Kept = nil, 0 }

// InUse reports whether anybody holds or waits.
func (l *Lock) InUse() bool { return len(l.Holders) > 0 || len(l.Waiters) > 0 }

// Used is how many permits are held.
func (l *Lock) Used() (sum int) {
	for _, h := range l.Holders {
		sum += h.Weight
	}
	return sum
}

// Free is how many are not.
func (l *Lock) Free() int { return l.Capacity - l.Used() }

func (l *Lock) holder(token string) *Holder {
	at := slices.IndexFunc(l.Holders, func(h Holder) bool { return h.Token == token })
	if at < 0 {
		return nil
	}
	return &l.Holders[at]
}

// place is the token's index in the queue; -1: it is not there.
func (l *Lock) place(token string) int {
	return slices.IndexFunc(l.Waiters, func(w Waiter) bool { return w.Token == token })
}

func (l *Lock) living(now int64) (n int) {
	for _, w := range l.Waiters {
		if w.Until >= now {
			n++
		}
	}
	return n
}

func (l *Lock) tail() uint64 {
	if len(l.Waiters) == 0 {
		return 0
	}
	return l.Waiters[len(l.Waiters)-1].Ticket
}
