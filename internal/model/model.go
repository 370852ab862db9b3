// Package model is the lock of docs/protocol.md in plain Go: without Redis, and with time as a number. The tests of
// package lua and the simulation (lab/sim) do the same steps to it and to the scripts, and compare. A mutex has one
// permit, a semaphore as many as its callers say, a read-write lock 2^30; the model knows no other difference.
package model

import (
	"cmp"
	"maps"
	"slices"
)

// All times are µs of the server's clock.
const (
	Millisecond  = 1000
	Second       = 1000 * Millisecond
	minute       = 60 * Second
	FenceTTL     = 10 * minute // of callers, unless Lock.FenceTTL says otherwise
	TombstoneTTL = 11 * minute
)

// How long the queue is kept beyond the longest WaiterTTL in it, at least and at most.
const (
	KeptAtLeast = 10 * minute
	KeptAtMost  = 11 * minute
)

// The bounds of one call.
const (
	MaxDropped  = 1000 // expired waiters
	MaxAdmitted = 128  // waiters
	MaxRead     = 16   // waiters ahead of one that is told when to retry
	MaxSwept    = 10   // waiters
)

// Quarantined stands for the holder of a lock that is quarantined and that nobody holds.
const Quarantined = "nobody:quarantined"

// Lock is the whole state of a lock. The zero Lock is idle, and is what a loss of data leaves.
type Lock struct {
	Capacity    int              // of permits; it stands while anyone holds or waits
	Holders     []Holder         // in the order of their grants
	Waiters     []Waiter         // in the order of their tickets
	Tombstones  map[string]int64 // tokens that have left, and until when they are refused
	Last        uint64           // the last number that is recorded, of tickets and fences; 0: none is
	NumberUntil int64            // when that is forgotten
	FenceTTL    int64            // of the next caller; 0: FenceTTL
	Clock       int64            // of the queue, as it is recorded. It advances by at most a second at each update
	ClockAt     int64            // when that was
	Pass        int64            // by Clock, when the last pass of sweeps began
	Cursor      uint64           // the ticket behind which the pass goes on; 0: it has ended
	Quarantine  int64            // by Clock, until when nobody is granted the lock
	Served      uint64           // the highest ticket that was granted the lock or dropped, or Last when a quarantine began
	First       uint64           // the first number that was recorded since there was none; 0 once a quarantine began
	QueueUntil  int64            // until when the queue is kept at least
	Damaged     bool             // the queue or its heartbeats were lost: the next call that looks at both removes all waiters
	Lost        bool             // permits or their holders were lost: the next call that can grant removes all holders
	LostTTL     int64            // the longest TTL of the holders in the key that is left; 0: of Holders
	Notified    []Grant          // what the last call has granted to waiters that did not call

	// As the call sees it:
	last    uint64
	clock   int64
	waiting int   // when it updated the clock
	lostTTL int64 // the longest TTL of the holders that free has removed
}

// Holder is a lease.
type Holder struct {
	Token   string
	Weight  int
	Fence   uint64
	TTL     int64 // that its token says
	Expires int64 // the lease has ended from this moment on
}

// Waiter is a waiter in the queue.
type Waiter struct {
	Token   string
	Weight  int
	Ticket  uint64
	TTL     int64 // that its token says
	Expires int64 // it keeps its ticket until then without a heartbeat, by Clock
}

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
	Holding     WaiterState = "holding" // granted before this heartbeat
	NowGranted  WaiterState = "granted" // by this heartbeat
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
	Quarantine       int64 // for how long, if the ticket shows that data were lost; 0: it does not
}

// Reply answers a Request.
type Reply struct {
	Outcome  Outcome
	Fence    uint64 // Granted: of this grant
	Ticket   uint64 // Queued
	Position int    // Queued: 1 is the head; Full: number of waiters
	Capacity int    // CapacityDiffers: the one in use
	Holder   string // Busy, Queued: the holder whose lease ends last; Quarantined or "" if there is none
	Queue    QueueState

	// Queued: after which another request can help; negative: the waiter is not told.
	RetryAfter int64
}

// HeartbeatReply answers a heartbeat.
type HeartbeatReply struct {
	States     []WaiterState
	RetryAfter int64 // after which a request of the first waiter that is queued can help; negative if none is
}

// Grant is a lock that was handed to a waiter.
type Grant struct {
	Token string
	Fence uint64
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
		return Reply{Outcome: Busy}
	}
	if r.Ticket > 0 && r.WaiterTTL == 0 { // the fence of a lease that was lost
		if r.Ticket > l.last {
			l.last = r.Ticket
			l.quarantine(now, r.Quarantine)
		} else {
			l.lengthenQuarantine(now, r.Quarantine)
		}
		return Reply{Outcome: Busy}
	}
	if h := l.holder(r.Token); h != nil {
		l.extend(now, h, r.TTL)
		l.record(now, r.TTL)
		return Reply{Outcome: Granted, Fence: h.Fence}
	}
	l.free()
	l.updateClock(now)
	if l.InUse() && l.Capacity != 0 && l.Capacity != r.Capacity {
		l.admit(now, "")
		if l.InUse() {
			return Reply{Outcome: CapacityDiffers, Capacity: l.Capacity}
		}
	}
	recorded := l.Capacity
	l.Capacity = r.Capacity
	notRecorded := func() {
		if len(l.Waiters) > 0 && len(l.Holders) == 0 {
			l.Capacity = recorded
		}
	}
	waiter := Waiter{Token: r.Token, Weight: r.Weight, Ticket: r.Ticket, TTL: r.TTL, Expires: l.clock + r.WaiterTTL}
	if r.Ticket > 0 {
		l.last = max(l.last, r.Ticket)
		if r.Quarantine > 0 && l.index(r.Token) < 0 {
			if r.Ticket > l.Served || r.Ticket < l.First {
				l.quarantine(now, r.Quarantine)
			} else {
				l.lengthenQuarantine(now, r.Quarantine)
			}
		}
		if l.index(r.Token) < 0 && l.Free() > 0 {
			l.join(now, waiter, r.WaiterTTL) // a waiter that returns is queued by its old ticket before others are admitted
		}
	}
	_, queue := l.admit(now, r.Token)
	if queue == Empty && !l.quarantined() && l.holder(r.Token) == nil && r.Weight <= l.Free() {
		l.grant(now, r.Token, r.Weight, r.TTL, r.TTL)
	}
	if h := l.holder(r.Token); h != nil {
		return Reply{Outcome: Granted, Fence: h.Fence, Queue: queue}
	}
	if r.WaiterTTL == 0 {
		notRecorded()
		return Reply{Outcome: Busy, Holder: l.named(), Queue: queue}
	}
	if r.Ticket == 0 && l.index(r.Token) < 0 {
		if r.MaxWaiters > 0 && len(l.Waiters) >= r.MaxWaiters {
			if l.sweep(now, Second); len(l.Waiters) >= r.MaxWaiters {
				notRecorded()
				return Reply{Outcome: Full, Position: len(l.Waiters)}
			}
		}
		waiter.Ticket = l.nextNumber(now)
	}
	l.join(now, waiter, r.WaiterTTL)
	l.sweep(now, minute)
	at := l.index(r.Token)
	after := int64(-1)
	if queue == More || at <= 1 {
		after = l.retryAfter(now, at, queue)
	}
	return Reply{
		Outcome: Queued, Ticket: l.Waiters[at].Ticket, Position: at + 1, Holder: l.named(),
		Queue: queue, RetryAfter: after,
	}
}

// Release ends the token's lease, if it has that fence.
func (l *Lock) Release(now int64, token string, fence uint64) Handoff {
	l.Advance(now)
	h := l.holder(token)
	return l.handOff(now, h != nil && h.Fence == fence && l.remove(token))
}

// Leave removes a waiter, ends the lease that it may have been granted, and refuses the token from now on if it is given a
// tombstone.
func (l *Lock) Leave(now int64, token string, tombstone bool) Handoff {
	l.Advance(now)
	if at := l.index(token); at >= 0 {
		l.dequeue(at)
	}
	if tombstone {
		if l.Tombstones == nil {
			l.Tombstones = map[string]int64{}
		}
		maps.DeleteFunc(l.Tombstones, func(_ string, until int64) bool { return until <= now })
		l.Tombstones[token] = now + TombstoneTTL
	}
	return l.handOff(now, l.remove(token))
}

// ForceRelease ends all leases whose fence is not above the one that the caller has seen, and a quarantine that had begun.
func (l *Lock) ForceRelease(now int64, seen uint64) Handoff {
	l.Advance(now)
	l.free()
	before := len(l.Holders)
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Fence <= seen })
	taken := len(l.Holders) < before
	if l.quarantined() && seen >= l.Served {
		l.Clock, l.ClockAt, l.Quarantine, taken = l.clock, now, 0, true
	}
	return l.handOff(now, taken)
}

// Renew has a lease last for ttl from now, at most for the TTL in its token. It returns its fence, 0 if the token does not
// hold the lock; and whether it is the lease with the fence that the caller knows, or the caller knows none.
func (l *Lock) Renew(now int64, token string, ttl int64, fence uint64) (has uint64, held bool) {
	l.Advance(now)
	h := l.holder(token)
	if h == nil {
		return 0, false
	}
	if fence != 0 && fence != h.Fence {
		return h.Fence, false
	}
	l.extend(now, h, min(ttl, h.TTL))
	return h.Fence, true
}

// Heartbeat keeps the tickets of waiters, and tells their states.
func (l *Lock) Heartbeat(now, waiterTTL int64, tokens []string) HeartbeatReply {
	l.Advance(now)
	l.free()
	l.updateClock(now)
	reply := HeartbeatReply{RetryAfter: -1}
	for _, t := range tokens {
		state := NotQueued
		if l.holder(t) != nil {
			state = Holding
		} else if at := l.index(t); at >= 0 {
			state = StillQueued
			l.Waiters[at].Expires = l.clock + waiterTTL
			l.keepQueue(now, waiterTTL)
		}
		reply.States = append(reply.States, state)
	}
	_, queue := l.admit(now, "")
	for i, t := range tokens {
		if reply.States[i] == StillQueued && l.index(t) < 0 {
			reply.States[i] = NowGranted
		}
	}
	l.sweep(now, minute)
	if queue == More {
		reply.RetryAfter = 0
	} else if first := slices.Index(reply.States, StillQueued); first >= 0 {
		reply.RetryAfter = l.retryAfter(now, l.index(tokens[first]), queue)
	}
	return reply
}

// updateClock records the queue's clock, if anybody waits or the lock is quarantined. Without an update that is closer
// than 20 ms, the next one gives the same sum.
func (l *Lock) updateClock(now int64) {
	l.repair(now)
	l.waiting = len(l.Waiters)
	if l.waiting == 0 {
		l.Pass, l.Cursor = l.clock, 0
	}
	if since := now - l.ClockAt; (l.waiting > 0 || l.quarantined()) && (since < 0 || since > 20*Millisecond) {
		l.Clock, l.ClockAt = l.clock, now
	}
}

func (l *Lock) quarantined() bool { return l.Quarantine > l.clock }

// quarantine notes that data were lost.
func (l *Lock) quarantine(now, d int64) {
	d = max(d, 3*Second)
	l.Served = l.nextNumber(now)
	l.record(now, d+KeptAtMost)
	l.First = 0
	l.Quarantine = max(l.Quarantine, l.clock+d)
	l.Clock, l.ClockAt = l.clock, now
	l.keepQueue(now, 0)
}

// lengthenQuarantine has a quarantine last for d since it began.
func (l *Lock) lengthenQuarantine(now, d int64) {
	if ends := l.clock - max(now-int64(l.Served), 0) + d; l.quarantined() && ends > l.Quarantine {
		l.Quarantine = ends
		l.Clock, l.ClockAt = l.clock, now
		l.keepQueue(now, 0)
	}
}

// free removes all holders if it is not known any more what they hold.
func (l *Lock) free() {
	if l.Lost {
		for _, h := range l.Holders {
			l.LostTTL = max(l.LostTTL, h.TTL)
		}
		l.lostTTL = l.LostTTL
		l.Holders, l.Capacity, l.Lost, l.LostTTL = nil, 0, false, 0
	}
}

// repair removes all waiters if one of the queue's keys was lost: they come back with their tickets.
func (l *Lock) repair(now int64) {
	if l.Damaged {
		l.keepQueue(now, 0)
		l.Forget()
		l.Clock, l.ClockAt = l.clock, now
	}
}

// sweep removes the expired of ten waiters. A pass through the queue begins if the last one began so long ago.
func (l *Lock) sweep(now, every int64) {
	if l.Cursor == 0 {
		if l.waiting == 0 || l.clock-l.Pass < every {
			return
		}
		l.Pass = l.clock
	}
	from, _ := slices.BinarySearchFunc(l.Waiters, l.Cursor+1, func(w Waiter, t uint64) int { return cmp.Compare(w.Ticket, t) })
	some := slices.Clone(l.Waiters[from:min(from+MaxSwept, len(l.Waiters))])
	if l.Cursor = 0; len(some) == MaxSwept {
		l.Cursor = some[MaxSwept-1].Ticket
	}
	for _, w := range some {
		if w.Expires <= l.clock {
			l.drop(now, l.index(w.Token))
		}
	}
	l.Clock, l.ClockAt = l.clock, now
}

// admit is the only rule of admission. While permits are free and the lock is not quarantined, the head of the queue is
// dropped if it has expired; it is granted what it asks for if so much is free, for what is left until it expires, at
// most its TTL; otherwise it blocks all behind it. The requester is the waiter that sends this request: it is not expired.
func (l *Lock) admit(now int64, requester string) (grants []Grant, queue QueueState) {
	if l.free(); l.lostTTL > 0 {
		l.quarantine(now, l.lostTTL)
	}
	for dropped := 0; l.Free() > 0; {
		if len(l.Waiters) > 0 {
			l.repair(now)
		}
		if len(l.Waiters) == 0 {
			return grants, Empty
		}
		if dropped == MaxDropped || len(grants) == MaxAdmitted {
			return grants, More
		}
		if l.quarantined() {
			break
		}
		head := l.Waiters[0]
		left := (head.Expires - l.clock) / Millisecond * Millisecond
		if head.Token == requester {
			left = head.TTL
		}
		switch {
		case left <= 0:
			dropped++
			l.drop(now, 0)
			continue
		case head.Weight > l.Free():
			return grants, Blocked
		default:
			given := min(left, head.TTL)
			l.Served = max(l.Served, head.Ticket)
			grants = append(grants, Grant{head.Token, l.grant(now, head.Token, head.Weight, head.TTL, given), given})
			if head.Token != requester {
				l.Notified = append(l.Notified, grants[len(grants)-1])
			}
		}
		l.dequeue(0)
	}
	return grants, Blocked
}

func (l *Lock) handOff(now int64, released bool) Handoff {
	grants, queue := l.admit(now, "")
	return Handoff{released, grants, queue}
}

func (l *Lock) grant(now int64, token string, weight int, ttl, given int64) uint64 {
	fence := l.nextNumber(now)
	l.record(now, given)
	l.Holders = append(l.Holders, Holder{token, weight, fence, ttl, now + given})
	return fence
}

// extend has a lease last for ttl from now, and the number longer.
func (l *Lock) extend(now int64, h *Holder, ttl int64) {
	h.Expires = now + ttl
	l.keepNumber(now, ttl)
}

// nextNumber returns the next number.
func (l *Lock) nextNumber(now int64) uint64 {
	l.last = max(uint64(now), l.last+1)
	return l.last
}

// record records the number, for longer than what lasts for d from now.
func (l *Lock) record(now, d int64) {
	if l.Last == 0 {
		l.First = l.last
	}
	l.Last = l.last
	l.keepNumber(now, d)
}

// keepNumber keeps the number, if there is one, for longer than what lasts for d from now. Scripts do so in whole
// milliseconds.
func (l *Lock) keepNumber(now, d int64) {
	if l.Last != 0 {
		until := (now/Millisecond + d/Millisecond) * Millisecond
		l.NumberUntil = max(l.NumberUntil, until+cmp.Or(l.FenceTTL, FenceTTL))
	}
}

// keepQueue keeps the queue for longer than a waiter that expires d from now, and than the quarantine.
func (l *Lock) keepQueue(now, d int64) {
	d = max(d, l.Quarantine-l.clock)
	l.QueueUntil = max(l.QueueUntil, now+d+KeptAtLeast)
	l.record(now, d+KeptAtMost)
}

// join puts a waiter into the queue, or keeps the ticket it has.
func (l *Lock) join(now int64, w Waiter, waiterTTL int64) {
	if len(l.Waiters) == 0 {
		l.QueueUntil = 0
	}
	l.record(now, waiterTTL+KeptAtMost)
	l.keepQueue(now, waiterTTL)
	if l.waiting == 0 {
		l.Clock, l.ClockAt = l.clock, now
	}
	if at := l.index(w.Token); at >= 0 {
		l.Waiters[at].Expires = w.Expires
		return
	}
	at, _ := slices.BinarySearchFunc(l.Waiters, w, func(a, b Waiter) int { // two with one ticket: by name, as in Redis
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Token, b.Token))
	})
	l.Waiters = slices.Insert(l.Waiters, at, w)
}

func (l *Lock) drop(now int64, at int) {
	l.Served = max(l.Served, l.Waiters[at].Ticket)
	l.record(now, KeptAtMost)
	l.dequeue(at)
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
	l.Notified, l.lostTTL = nil, 0
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Expires <= now })
	if l.NumberUntil <= now {
		l.Last, l.NumberUntil, l.Served, l.First = 0, 0, 0, 0
	}
	l.last, l.clock = l.Last, l.Clock+min(max(now-l.ClockAt, 0), Second)
	if l.Last == 0 && l.InUse() { // it was lost: of what is there, no number is given again
		l.last = max(uint64(now), l.tail())
		for _, h := range l.Holders {
			l.last = max(l.last, h.Fence)
		}
	}
}

// QuarantineLeft is what a call would see of the quarantine that is left.
func (l *Lock) QuarantineLeft() int64 { return max(l.Quarantine-l.clock, 0) }

// LastNumber is the last number that a call would see.
func (l *Lock) LastNumber() uint64 { return l.last }

// Forgets returns from when on Redis may forget the queue as a whole, because all clients are gone, and when it has at the
// latest. In between, Forget tells the model that Redis did.
func (l *Lock) Forgets() (from, by int64) {
	return l.QueueUntil, l.QueueUntil + KeptAtMost - KeptAtLeast
}

// Forget forgets the queue.
func (l *Lock) Forget() { l.Waiters, l.QueueUntil, l.Damaged = nil, 0, false }

// InUse reports whether anyone holds or waits.
func (l *Lock) InUse() bool { return len(l.Holders) > 0 || len(l.Waiters) > 0 }

// Used is the number of permits that are held.
func (l *Lock) Used() (sum int) {
	for _, h := range l.Holders {
		sum += h.Weight
	}
	return sum
}

// Free is the number of permits that are not held.
func (l *Lock) Free() int { return l.Capacity - l.Used() }

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

// named is the token of the holder whose lease ends last. If there is none, it is Quarantined or "".
func (l *Lock) named() string {
	if all := l.FirstToExpire(len(l.Holders)); len(all) > 0 {
		return all[len(all)-1].Token
	} else if l.quarantined() {
		return Quarantined
	}
	return ""
}

// index is the token's index in the queue; -1: it is not queued.
func (l *Lock) index(token string) int {
	return slices.IndexFunc(l.Waiters, func(w Waiter) bool { return w.Token == token })
}

// retryAfter returns after how long another request can help the waiter at that index: when all ahead of it have expired
// and, if nothing is free or it is the head and needs more, a lease has ended; and the quarantine.
func (l *Lock) retryAfter(now int64, at int, queue QueueState) int64 {
	if queue == More {
		return 0
	}
	if at > MaxRead {
		return -1
	}
	until := now
	if l.Free() == 0 || at == 0 && !l.quarantined() {
		if len(l.Holders) == 0 && l.Capacity > 0 {
			return -1 // it wants more than there is
		}
		for i, h := range l.Holders { // after a step back of the clock
			if h.TTL > 0 {
				l.Holders[i].Expires = min(h.Expires, now+h.TTL)
			}
		}
		for _, first := range l.FirstToExpire(1) {
			until = first.Expires
		}
	}
	until = max(until, now+l.Quarantine-l.clock)
	for _, w := range l.Waiters[:at] {
		until = max(until, now+w.Expires-l.clock)
	}
	return max(until-now, 1)
}

// Expires returns when a waiter expires at the earliest, by the server's clock; if nobody asks, it is dropped later.
func (l *Lock) Expires(now int64, w Waiter) int64 {
	return now + w.Expires - l.Clock - max(now-l.ClockAt, 0)
}

func (l *Lock) tail() uint64 {
	if len(l.Waiters) == 0 {
		return 0
	}
	return l.Waiters[len(l.Waiters)-1].Ticket
}
