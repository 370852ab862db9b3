// Package model is the lock of docs/protocol.md in plain Go: without Redis, and with time as a number. The tests of
// package lua and the simulation (lab/sim) do the same steps to it and to the scripts, and compare. A mutex has one
// permit, a semaphore as many as its callers say, a read-write lock 2^30; the model knows no other difference.
package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlock/fairlock-go/token"
)

// All times are µs of the server's clock.
const (
	Millisecond  = 1000
	Second       = 1000 * Millisecond
	minute       = 60 * Second
	FenceTTL     = 10 * minute // of callers, unless Lock.FenceTTL says otherwise
	TombstoneTTL = 11 * minute
	Kept         = 11 * minute // for which the queue is kept beyond the WaiterTTL of the latest join or heartbeat
	untimed      = 3 * Second  // what a waiter whose time was lost is handed by others
)

// The bounds of one call.
const (
	MaxDropped  = 100 // expired waiters
	MaxAdmitted = 64  // waiters
	MaxExpired  = 500 // holders, that are removed
	MaxUntimed  = 750 // waiters that get a time because theirs was lost
	MaxTooHeavy = 100 // heads that want more permits than there are, that are dropped
)

// Lock is the whole state of a lock. The zero Lock is idle, and is what a loss of data leaves.
type Lock struct {
	Capacity    int              // of permits, that callers bring; it stands while anyone holds or waits
	Resized     int              // the number of permits that counts instead; 0: none does
	Holders     []Holder         // in the order of their grants
	Waiters     []Waiter         // in the order of their tickets
	Tombstones  map[string]int64 // tokens that have left, and until when they are refused
	Last        uint64           // the last number that is recorded, of tickets and fences; 0: none is
	NumberUntil int64            // when that is forgotten
	FenceTTL    int64            // of the next caller; 0: FenceTTL
	Clock       int64            // of the queue, as it is recorded. It advances by at most a second at each update
	ClockAt     int64            // when that was
	QueueUntil  int64            // until when the queue is kept
	Highest     uint64           // the highest fence that is recorded with permits, also of a lease that has ended; 0 of a mutex
	Lost        bool             // permits or their holders were lost: the next call that can grant removes all holders
	Notified    []Grant          // what the last call has granted to waiters that did not call, in order; or told, see tellHead

	// As the call sees it:
	last  uint64
	clock int64
	anew  bool // there was a queue, and no number: its times count no more
	heavy int  // heads that it has dropped because they want more permits than there are

	changed bool // another waiter may be the head than before the call, or something else blocks it
}

// Flagged returns the token with further flags; a text that is no token as it is.
func Flagged(text string, flags token.Flags) string {
	t, err := token.Parse(text)
	if err != nil {
		return text
	}
	return t.With(flags).Text()
}

// Holder is a lease.
type Holder struct {
	Token    string
	Weight   int
	Fence    uint64
	TTL      int64 // that its token says
	Expires  int64 // the lease has ended from this moment on
	Released bool  // its holder has released it, and it is kept until then
}

// Waiter is a waiter in the queue.
type Waiter struct {
	Token   string
	Weight  int
	Ticket  uint64
	TTL     int64 // that its token says
	Expires int64 // it keeps its ticket until then without a heartbeat, by Clock; Untimed: that was lost
}

// Untimed is when a waiter expires whose time was lost.
const Untimed = -1

// Outcome says what became of a Request.
type Outcome string

// The outcomes.
const (
	Granted         Outcome = "granted"
	Queued          Outcome = "queued"
	Busy            Outcome = "busy"
	Full            Outcome = "full"
	CapacityDiffers Outcome = "capacity"
)

// WaiterState is what a heartbeat finds a waiter to be.
type WaiterState string

// The states.
const (
	NotQueued   WaiterState = "not queued"
	StillQueued WaiterState = "queued"
	Holding     WaiterState = "holding"
)

// QueueState is what admission leaves of the queue.
type QueueState string

// The states of a queue.
const (
	Empty   QueueState = "empty"
	Blocked QueueState = "blocked" // too few permits are free for the head
	More    QueueState = "more"    // a bound of the call was reached
)

// Request asks for permits.
type Request struct {
	Token            string
	Weight, Capacity int
	TTL              int64 // that its token says
	WaiterTTL        int64 // 0: do not queue
	MaxWaiters       int   // 0: any number
	Ticket           uint64
}

// Reply answers a Request.
type Reply struct {
	Outcome  Outcome
	Fence    uint64 // Granted: of this grant
	Ticket   uint64 // Queued
	Position int    // Queued: 1 is the head; Full: number of waiters
	Last     uint64 // Queued: the last number
	Capacity int    // CapacityDiffers: the one in force
	Wanted   int    // CapacityDiffers: instead of it
	Holder   string // Busy, Queued: the holder whose lease ends last; "" if there is none
	Queue    QueueState

	// Queued: after which another request can help; negative: it is not the head, or none will. Busy: the same, if Holder was
	// released; else 0.
	RetryAfter int64
}

// HeartbeatReply answers a heartbeat.
type HeartbeatReply struct {
	States     []WaiterState
	Last       uint64
	RetryAfter int64 // after which another request can help, if one of the tokens is the head; else negative
}

// Grant is a lock that was handed to a waiter.
type Grant struct {
	Token string
	Fence uint64 // 0: nothing was granted. After Given another request can help the head
	Given int64
}

// Handoff is what became of permits that were released.
type Handoff struct {
	Released bool
	Grants   []Grant
	Queue    QueueState
}

// Acquire does a Request.
func (l *Lock) Acquire(now int64, r Request) Reply {
	l.Advance(now)
	if l.Tombstones[r.Token] > now {
		return Reply{Outcome: Busy, Queue: Blocked}
	}
	l.last = max(l.last, r.Ticket)
	if h := l.holder(r.Token); h != nil {
		h.Expires = now + r.TTL
		return Reply{Outcome: Granted, Fence: h.Fence, Queue: Blocked}
	}
	had := l.Capacity
	l.open(r.Capacity)
	if l.Resized > 0 {
		l.Capacity = r.Capacity
	}
	joins := r.WaiterTTL > 0 && (l.index(r.Token) >= 0 || r.Ticket > 0) // perhaps to be dropped as the head
	reply := l.serve(now, r)
	if !joins && reply.Outcome != Granted && reply.Outcome != Queued && len(l.Notified) == 0 {
		l.Capacity = had // nothing has recorded another
	}
	return reply
}

// serve does a Request of a token that does not hold the lock.
func (l *Lock) serve(now int64, r Request) Reply {
	queued := l.index(r.Token) >= 0
	if l.Capacity != r.Capacity && l.Resized == 0 && !queued {
		if l.dropExpired(); l.InUse() {
			if len(l.Waiters) > 0 {
				l.record(now, Kept)
			}
			if slices.ContainsFunc(l.Waiters, l.expired) {
				return Reply{Outcome: Busy, Queue: More}
			}
			return Reply{Outcome: CapacityDiffers, Capacity: l.Capacity, Wanted: r.Capacity}
		}
		l.Capacity = r.Capacity
	}
	waiter := Waiter{Token: r.Token, Weight: r.Weight, Ticket: r.Ticket, TTL: r.TTL}
	if r.WaiterTTL > 0 && (queued || r.Ticket > 0) {
		l.join(now, waiter, r.WaiterTTL)
	}
	l.dropExpired()
	queue := l.admit(now, r.Token)
	if r.Weight > l.InForce() && l.index(r.Token) < 0 {
		return l.refuse(now, r.Weight)
	}
	if queue == Empty && l.holder(r.Token) == nil && r.Weight <= l.Free() {
		l.grant(now, r.Token, r.Weight, r.TTL, r.TTL, 0)
	}
	if h := l.holder(r.Token); h != nil {
		return Reply{Outcome: Granted, Fence: h.Fence, Queue: queue}
	}
	if r.WaiterTTL == 0 {
		if len(l.Waiters) > 0 {
			l.record(now, Kept)
		}
		reply := Reply{Outcome: Busy, Holder: l.named(), Queue: queue}
		if h := l.holder(reply.Holder); h != nil && h.Released {
			reply.RetryAfter = l.retryAfter(now, true, Blocked)
		}
		return reply
	}
	if l.index(r.Token) < 0 {
		if r.MaxWaiters > 0 && len(l.Waiters) >= r.MaxWaiters {
			l.record(now, r.WaiterTTL+Kept)
			return Reply{Outcome: Full, Position: len(l.Waiters)}
		}
		waiter.Ticket = l.nextNumber(now)
		l.join(now, waiter, r.WaiterTTL)
	}
	l.record(now, r.WaiterTTL+Kept)
	at := l.index(r.Token)
	return Reply{
		Outcome: Queued, Ticket: l.Waiters[at].Ticket, Position: at + 1, Last: l.last, Holder: l.named(),
		Queue: queue, RetryAfter: l.retryAfter(now, at == 0, queue),
	}
}

// refuse refuses a request for more permits than there are.
func (l *Lock) refuse(now int64, wanted int) Reply {
	if len(l.Waiters) > 0 {
		l.record(now, Kept)
	}
	return Reply{Outcome: CapacityDiffers, Capacity: l.InForce(), Wanted: wanted}
}

// Release ends the token's lease, if it has that fence. If kept is above 0, the permits stay taken for so long.
func (l *Lock) Release(now int64, token string, fence uint64, kept int64) Handoff {
	l.Advance(now)
	h := l.holder(token)
	return l.handOff(now, h != nil && h.Fence == fence && l.endLease(now, token, kept))
}

// endLease ends the token's lease, and reports whether it had one. If kept is above 0, the permits stay taken for so long.
func (l *Lock) endLease(now int64, text string, kept int64) bool {
	h := l.holder(text)
	switch {
	case h == nil:
		return false
	case kept <= 0:
		return l.remove(text)
	}
	h.Token, h.Expires, h.Released = Flagged(text, token.Released), now+kept, true
	return true
}

// Leave removes waiters, and ends the leases of those that were granted the lock. The first of the tokens, so many as there are
// tombstones, are refused from now on. kept is as for Release.
func (l *Lock) Leave(now, kept int64, tokens []string, tombstones int) Handoff {
	l.Advance(now)
	released := false
	for _, token := range tokens {
		if at := l.index(token); at >= 0 {
			l.dequeue(at)
		}
		released = l.endLease(now, token, kept) || released
	}
	for _, token := range tokens[:tombstones] {
		l.setTombstone(now, token)
	}
	return l.handOff(now, released)
}

// setTombstone has the token refused from now on.
func (l *Lock) setTombstone(now int64, token string) {
	if l.Tombstones == nil {
		l.Tombstones = map[string]int64{}
	}
	maps.DeleteFunc(l.Tombstones, func(_ string, until int64) bool { return until <= now })
	l.Tombstones[token] = now + TombstoneTTL
}

// ForceRelease ends all leases whose fence is not above the one that the caller has seen.
func (l *Lock) ForceRelease(now int64, seen uint64) Handoff {
	l.Advance(now)
	before, lost := len(l.Holders), l.Lost
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return lost || h.Fence <= seen })
	return l.handOff(now, lost || len(l.Holders) < before)
}

// Resize sets the number of permits for all callers; 0: there are again as many as they bring.
func (l *Lock) Resize(now int64, permits int) Handoff {
	l.Advance(now)
	l.Resized = permits
	return l.handOff(now, false)
}

// Renew has the lease with that fence last for ttl from now, at most for the TTL in its token. It returns false if there is none.
func (l *Lock) Renew(now int64, token string, ttl int64, fence uint64) bool {
	l.Advance(now)
	h := l.holder(token)
	if h == nil || h.Fence != fence {
		return false
	}
	h.Expires = now + min(ttl, h.TTL)
	return true
}

// Resume gives the lease of a token, resumed before or not, to the token with the flag Resumed and a new fence, for ttl from now,
// at most for the TTL in its token. A resumed lease with a fence above seen is extended if a request with this id has resumed it.
// It returns the fence; 0: there is none, or somebody else has resumed the lease.
func (l *Lock) Resume(now int64, text string, ttl int64, seen uint64, id string) uint64 {
	l.Advance(now)
	t, _ := token.Parse(text)
	if t.Flags()&token.Released != 0 {
		return 0
	}
	resumed := Flagged(text, token.Resumed)
	l.open(0)
	h := cmp.Or(l.holder(resumed), l.holder(text))
	switch {
	case h == nil:
		return 0
	case h.Token == resumed && h.Fence > seen:
		if l.Tombstones[fmt.Sprint(id, " ", h.Fence)] <= now {
			return 0
		}
		h.Expires = now + min(ttl, h.TTL)
		return h.Fence
	}
	kept := int64(0)
	if len(l.Waiters) > 0 {
		kept = Kept
	}
	had := *h
	l.remove(had.Token)
	fence := l.grant(now, resumed, had.Weight, had.TTL, min(ttl, had.TTL), kept)
	l.setTombstone(now, t.Without(token.Resumed).Text())
	l.setTombstone(now, fmt.Sprint(id, " ", fence))
	return fence
}

// Heartbeat keeps the tickets of waiters, and tells their states. The capacity is the one that the waiters asked with.
func (l *Lock) Heartbeat(now, waiterTTL int64, capacity int, tokens []string) HeartbeatReply {
	l.Advance(now)
	if len(tokens) == 0 {
		capacity = 0
	}
	had := l.Capacity
	l.open(capacity)
	waiting := len(l.Waiters) > 0
	if waiting && len(tokens) > 0 {
		if l.Resized > 0 {
			l.Capacity = capacity
		}
		l.QueueUntil = now + waiterTTL + Kept
		for _, t := range tokens {
			if at := l.index(t); at >= 0 {
				l.Waiters[at].Expires = l.clock + waiterTTL
			}
		}
	}
	l.dropExpired()
	queue := l.admit(now, "")
	if len(tokens) > 0 && len(l.Waiters) > 0 && l.Waiters[0].Expires == Untimed {
		for i := range l.Waiters[:min(len(l.Waiters), MaxUntimed)] {
			if l.Waiters[i].Expires == Untimed {
				l.Waiters[i].Expires = l.clock + waiterTTL
			}
		}
	}
	if waiting {
		l.record(now, waiterTTL+Kept)
	} else {
		l.Capacity = had // nothing has recorded another
	}
	reply := HeartbeatReply{RetryAfter: -1, Last: l.last}
	for _, t := range tokens {
		state := NotQueued
		if l.holder(t) != nil {
			state = Holding
		} else if l.index(t) >= 0 {
			state = StillQueued
		}
		reply.States = append(reply.States, state)
	}
	first := slices.Index(reply.States, StillQueued)
	reply.RetryAfter = l.retryAfter(now, first >= 0 && l.index(tokens[first]) == 0, queue)
	return reply
}

// Waiting counts the waiters, also those that have expired.
func (l *Lock) Waiting(now int64) int {
	l.Advance(now)
	return len(l.Waiters)
}

// open removes the holders if it is not known any more what they hold, and learns the capacity, if that was lost.
func (l *Lock) open(capacity int) {
	if l.Lost {
		l.Holders, l.Lost = nil, false
	}
	l.Capacity = cmp.Or(l.Capacity, capacity)
	if l.anew {
		for i := range l.Waiters {
			l.Waiters[i].Expires = Untimed
		}
	}
}

func (l *Lock) expired(w Waiter) bool { return w.Expires != Untimed && w.Expires < l.clock+Millisecond }

// dropExpired drops expired waiters, wherever they stand, the longest expired first.
func (l *Lock) dropExpired() {
	var expired []Waiter
	for _, w := range l.Waiters {
		if l.expired(w) {
			expired = append(expired, w)
		}
	}
	slices.SortFunc(expired, func(a, b Waiter) int {
		return cmp.Or(cmp.Compare(a.Expires, b.Expires), cmp.Compare(a.Token, b.Token))
	})
	for _, w := range expired[:min(len(expired), MaxDropped)] {
		l.dequeue(l.index(w.Token))
		l.changed = true
	}
}

// dropHeads is dropTooHeavy if nothing is free because the lock was resized, or that was ended.
func (l *Lock) dropHeads() {
	if free := l.Free(); free < 0 && l.InForce() > 0 || free == 0 && l.Resized > 0 {
		l.dropTooHeavy()
	}
}

// dropTooHeavy drops heads that want more permits than there are: they would block all behind them.
func (l *Lock) dropTooHeavy() {
	for len(l.Waiters) > 0 && l.Waiters[0].Weight > l.InForce() && l.heavy < MaxTooHeavy {
		l.dequeue(0)
		l.heavy++
		l.changed = true
	}
}

// admit is the only rule of admission. While permits are free, the head of the queue is granted what it asks for if so much
// is free, for what is left until it expires, at most its TTL; otherwise it blocks all behind it. The requester is the
// waiter that sends this request: it is not expired.
func (l *Lock) admit(now int64, requester string) QueueState {
	for admitted := 0; l.Free() > 0; admitted++ {
		if l.dropTooHeavy(); len(l.Waiters) == 0 {
			return Empty
		}
		head, kept := l.Waiters[0], int64(0)
		left := (head.Expires - l.clock) / Millisecond * Millisecond
		if head.Token == requester {
			left = head.TTL
		} else if head.Expires == Untimed {
			left = untimed
		}
		if left <= 0 || admitted == MaxAdmitted {
			return More
		}
		if head.Weight > l.Free() {
			break
		}
		if len(l.Waiters) > 1 {
			kept = Kept
		}
		given := min(left, head.TTL)
		fence := l.grant(now, head.Token, head.Weight, head.TTL, given, kept)
		if head.Token != requester {
			l.Notified = append(l.Notified, Grant{head.Token, fence, given})
		}
		l.dequeue(0)
		l.changed = true
	}
	l.dropHeads()
	l.tellHead(now, requester)
	if l.heavy == MaxTooHeavy {
		return More
	}
	return Blocked
}

// tellHead tells the head after how long another request can help, if that may be when a lease ends that nobody will release.
func (l *Lock) tellHead(now int64, requester string) {
	released := slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Released })
	if l.changed && released && len(l.Waiters) > 0 && l.Waiters[0].Token != requester {
		l.Notified = append(l.Notified, Grant{Token: l.Waiters[0].Token, Given: l.retryAfter(now, true, Blocked)})
	}
}

func (l *Lock) handOff(now int64, released bool) Handoff {
	l.open(0)
	l.changed = true
	if !released && l.Free() <= 0 && l.Resized == 0 {
		if l.Last == 0 && l.last > 0 {
			l.record(now, Kept)
		}
		l.dropHeads()
		l.tellHead(now, "")
		if l.heavy == MaxTooHeavy {
			return Handoff{Queue: More}
		}
		return Handoff{Queue: Blocked}
	}
	l.dropExpired()
	queue := l.admit(now, "")
	grants := slices.DeleteFunc(slices.Clone(l.Notified), func(g Grant) bool { return g.Fence == 0 })
	if queue != Empty && len(grants) == 0 {
		l.record(now, Kept)
	} else if queue == Empty && l.Last == 0 && l.last > 0 {
		l.record(now, 0)
	}
	return Handoff{released, grants, queue}
}

func (l *Lock) grant(now int64, token string, weight int, ttl, given, kept int64) uint64 {
	fence := l.nextNumber(now)
	l.record(now, given+kept)
	l.Holders = append(l.Holders, Holder{Token: token, Weight: weight, Fence: fence, TTL: ttl, Expires: now + given})
	return fence
}

// nextNumber returns the next number.
func (l *Lock) nextNumber(now int64) uint64 {
	l.last = max(uint64(now), l.last+1)
	return l.last
}

// record records the number and the queue's clock, for d and FenceTTL.
func (l *Lock) record(now, d int64) {
	l.last = max(l.last, uint64(now))
	l.Last, l.Clock, l.ClockAt = l.last, l.clock, now
	l.NumberUntil = now + d + cmp.Or(l.FenceTTL, FenceTTL)
}

// join puts a waiter into the queue with its ticket; one that is queued keeps the lower of two tickets.
func (l *Lock) join(now int64, w Waiter, waiterTTL int64) {
	if at := l.index(w.Token); at >= 0 {
		had := l.Waiters[at].Ticket
		if w.Ticket == 0 || had < w.Ticket {
			w.Ticket = had
		}
		l.Waiters = slices.Delete(l.Waiters, at, at+1)
	} else if len(l.Waiters) == 0 {
		l.clock = now
	}
	w.Expires, l.QueueUntil = l.clock+waiterTTL, now+waiterTTL+Kept
	at, _ := slices.BinarySearchFunc(l.Waiters, w, func(a, b Waiter) int { // two with one ticket: by name, as in Redis
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Token, b.Token))
	})
	l.Waiters = slices.Insert(l.Waiters, at, w)
}

func (l *Lock) dequeue(at int) {
	l.Waiters = slices.Delete(l.Waiters, at, at+1)
	if len(l.Waiters) == 0 {
		l.QueueUntil = 0
	}
}

// remove ends the token's lease, and reports whether it had one.
func (l *Lock) remove(token string) bool {
	held := l.holder(token) != nil
	if held {
		l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Token == token })
	}
	return held
}

// Advance brings the lock to the time now: leases end, and an old number is forgotten. Every call begins with it.
func (l *Lock) Advance(now int64) {
	l.Notified, l.changed, l.heavy = nil, false, 0
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Expires <= now })
	if l.NumberUntil <= now {
		l.Last, l.NumberUntil = 0, 0
	}
	l.last, l.clock = l.Last, l.Clock+min(max(now-l.ClockAt, 0), Second)
	if l.anew = l.Last == 0 && len(l.Waiters) > 0; l.Last == 0 { // of what is there, no number is given again
		l.last, l.clock = max(l.tail(), l.Highest), now
		for _, h := range l.Holders {
			if !l.Lost {
				l.last = max(l.last, h.Fence)
			}
		}
	}
}

// LastNumber is the last number that a call would see.
func (l *Lock) LastNumber() uint64 { return l.last }

// Forget forgets the queue.
func (l *Lock) Forget() { l.Waiters, l.QueueUntil = nil, 0 }

// Untime forgets when the waiters expire.
func (l *Lock) Untime() {
	for i := range l.Waiters {
		l.Waiters[i].Expires = Untimed
	}
}

// InUse reports whether anyone holds or waits.
func (l *Lock) InUse() bool { return len(l.Holders) > 0 || len(l.Waiters) > 0 }

// Used is the number of permits that are held.
func (l *Lock) Used() (sum int) {
	for _, h := range l.Holders {
		sum += h.Weight
	}
	return sum
}

// InForce is the number of permits that counts.
func (l *Lock) InForce() int { return cmp.Or(l.Resized, l.Capacity) }

// Free is the number of permits that are not held; below 0 if the number in force was lowered since.
func (l *Lock) Free() int { return l.InForce() - l.Used() }

func (l *Lock) holder(token string) *Holder {
	at := slices.IndexFunc(l.Holders, func(h Holder) bool { return h.Token == token })
	if at < 0 || l.Lost {
		return nil
	}
	return &l.Holders[at]
}

// FirstToExpire returns the holders whose leases end first, at most limit of them. Those that end at once are in the order
// of their tokens, as in Redis.
func (l *Lock) FirstToExpire(limit int) []Holder {
	all := slices.SortedFunc(slices.Values(l.Holders), func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Expires, b.Expires), cmp.Compare(a.Token, b.Token))
	})
	return all[:min(limit, len(all))]
}

// named is the token of the holder whose lease ends last; "" if there is none.
func (l *Lock) named() string {
	if all := l.FirstToExpire(len(l.Holders)); len(all) > 0 {
		return all[len(all)-1].Token
	}
	return ""
}

// index is the token's index in the queue; -1: it is not queued.
func (l *Lock) index(token string) int {
	return slices.IndexFunc(l.Waiters, func(w Waiter) bool { return w.Token == token })
}

// retryAfter returns after how long another request can help the head: when a lease has ended.
func (l *Lock) retryAfter(now int64, head bool, queue QueueState) int64 {
	if queue == More {
		return 0
	}
	first := l.FirstToExpire(1)
	if !head || len(first) == 0 {
		return -1
	}
	return max(first[0].Expires-now, 1)
}

// Expires returns when a waiter expires at the earliest, by the server's clock; if nobody asks, it is dropped later.
func (l *Lock) Expires(now int64, w Waiter) int64 {
	if l.anew {
		return now + untimed
	}
	if w.Expires == Untimed {
		return now + untimed - max(now-l.ClockAt-Second, 0)
	}
	return now + w.Expires - l.Clock - max(now-l.ClockAt, 0)
}

func (l *Lock) tail() uint64 {
	if len(l.Waiters) == 0 {
		return 0
	}
	return l.Waiters[len(l.Waiters)-1].Ticket
}
