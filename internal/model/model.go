// Package model is the lock of docs/protocol.md in plain Go: without Redis, and with time as a number. The tests of
// package script and the simulation (lab/sim) do the same steps to it and to the scripts, and compare. A mutex has one
// permit, a semaphore as many as the token of a request says, a read-write lock 2^30; the model knows no other difference.
package model

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// All times are µs of the server's clock.
const (
	Millisecond  = 1000
	Second       = 1000 * Millisecond
	minute       = 60 * Second
	FenceTTL     = 10 * minute // of callers, unless Lock.FenceTTL says otherwise
	TombstoneTTL = 11 * minute
	Kept         = 11 * minute        // for which the queue is kept beyond the WaiterTTL of the latest join or heartbeat
	soon         = 1500 * Millisecond // a lease that ends within this time is one that the head is told of
)

// The bounds of one call.
const (
	MaxDropped  = 100 // expired waiters
	MaxAdmitted = 64  // waiters
	MaxTooLarge = 100 // heads that ask for more permits than a resize has set, that are dropped
)

// Lock is the whole state of a lock. The zero Lock is idle, and is what a loss of data leaves.
type Lock struct {
	Resized     int              // the number of permits that a resize has set; 0: as many as each token says
	Holders     []Holder         // in the order of their grants
	Highest     uint64           // the highest fence that is recorded with the holders, of permits also of a lease that has ended
	Lost        bool             // permits or their holders were lost: the next call that can grant removes all holders
	Waiters     []Waiter         // in the order of their tickets
	Heartbeats  map[string]int64 // by token: when each waiter expires without a heartbeat, by Clock
	QueueUntil  int64            // until when the queue is kept; 0: nobody waits
	Tombstones  map[string]int64 // tokens that have left, and until when they are refused
	Last        uint64           // the last number that is recorded, of tickets and fences; 0: none is
	NumberUntil int64            // when that is forgotten
	FenceTTL    int64            // of the next caller; 0: FenceTTL
	Clock       int64            // of the queue, as it is recorded. It advances by at most a second at each update
	ClockAt     int64            // when that was
	Notified    []Grant          // what the last call has granted to waiters that did not call, in order; then what it has told the head

	// As the call sees it:
	last     uint64
	clock    int64
	missing  bool // no number was recorded
	waiting  int  // how many were queued when it began
	tooLarge int  // heads that it has dropped
	changed  bool // another waiter may be the head than before, or a lease may end sooner
}

// Holder is a lease.
type Holder struct {
	Token   string
	Fence   uint64
	Expires int64 // the lease has ended from this moment on
}

// Waiter is a waiter in the queue.
type Waiter struct {
	Token  string
	Ticket uint64
}

// Rest is what a lease leaves when it is released: for Left, the token By holds the permits. The zero Rest is none.
type Rest struct {
	Left int64
	By   string
}

// Outcome says what became of a Request.
type Outcome string

// The outcomes.
const (
	Granted Outcome = "granted"
	Queued  Outcome = "queued"
	Busy    Outcome = "busy"
	Full    Outcome = "full"
	Resized Outcome = "resized" // more permits are requested than a resize has set
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
	Token      string
	WaiterTTL  int64 // 0: do not queue
	MaxWaiters int   // 0: any number
	Ticket     uint64
}

// Reply answers a Request.
type Reply struct {
	Outcome    Outcome
	Fence      uint64 // Granted: of this grant
	Ticket     uint64 // Queued
	Position   int    // Queued: 1 is the head; Full: number of waiters
	Last       uint64 // Queued: the last number
	Permits    int    // Resized: the number that was set
	Holder     string // Busy, Queued: the holder whose lease ends last; "" if there is none
	Queue      QueueState
	RetryAfter int64 // Queued: after which another request can help; negative: it is not the head, or none will. Busy: when a lease ends
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

// parse reads a token. A text that is none asks for no permits.
func parse(text string) token.Token {
	t, _ := token.Parse(text)
	return t
}

func ttlOf(text string) int64 { return parse(text).TTL().Microseconds() }

// Acquire does a Request.
func (l *Lock) Acquire(now int64, r Request) Reply {
	l.Advance(now)
	if l.Tombstones[r.Token] > now {
		return Reply{Outcome: Busy, Queue: Blocked, RetryAfter: -1}
	}
	l.last = max(l.last, r.Ticket)
	if h := l.holder(r.Token); h != nil {
		h.Expires = now + ttlOf(r.Token)
		return Reply{Outcome: Granted, Fence: h.Fence, Queue: Blocked}
	}
	l.open(now)
	if r.WaiterTTL > 0 && (r.Ticket > 0 || l.index(r.Token) >= 0) {
		l.join(now, r)
	}
	l.dropExpired()
	queue := l.admit(now, r.Token)
	if queue == Empty && l.holder(r.Token) == nil && l.Fits(r.Token) {
		l.grant(now, r.Token, ttlOf(r.Token))
	}
	l.tellHead(now, r.Token)
	if h := l.holder(r.Token); h != nil {
		return Reply{Outcome: Granted, Fence: h.Fence, Queue: queue}
	}
	queued := l.index(r.Token) >= 0
	var reply Reply
	switch {
	case !queued && l.isTooLarge(r.Token):
		reply = Reply{Outcome: Resized, Permits: l.Resized}
	case r.WaiterTTL == 0:
		reply = Reply{Outcome: Busy, Holder: l.named(), Queue: queue, RetryAfter: l.nextEnd(now)}
	case !queued && r.MaxWaiters > 0 && len(l.Waiters) >= r.MaxWaiters:
		reply = Reply{Outcome: Full, Position: len(l.Waiters)}
	default:
		if !queued {
			r.Ticket = l.nextNumber(now)
			l.join(now, r)
		}
		l.record(now, 0)
		at := l.index(r.Token)
		return Reply{
			Outcome: Queued, Ticket: l.Waiters[at].Ticket, Position: at + 1, Last: l.last, Holder: l.named(),
			Queue: queue, RetryAfter: l.retryAfter(now, r.Token, queue),
		}
	}
	if l.waiting > 0 {
		l.record(now, 0)
	}
	return reply
}

// Release ends the token's lease, if it has that fence.
func (l *Lock) Release(now int64, token string, fence uint64, rest Rest) Handoff {
	l.Advance(now)
	h := l.holder(token)
	return l.handOff(now, l.release(now, h, h != nil && h.Fence == fence, rest))
}

// Leave removes waiters, and ends the leases of those that were granted the lock. The first of the tokens, so many as there are
// tombstones, are refused from now on.
func (l *Lock) Leave(now int64, rest Rest, tokens []string, tombstones int) Handoff {
	l.Advance(now)
	released := false
	for _, token := range tokens {
		h := l.holder(token)
		released = l.release(now, h, h != nil, rest) || released
		l.dequeue(token)
	}
	for _, token := range tokens[:tombstones] {
		l.setTombstone(now, token)
	}
	return l.handOff(now, released)
}

// release ends a lease if it is the one that is meant. It reports whether it did, now or before.
func (l *Lock) release(now int64, h *Holder, meant bool, rest Rest) bool {
	switch {
	case !meant:
		return l.holder(rest.By) != nil
	case rest.Left > 0:
		l.takeOver(now, h.Token, rest.By, rest.Left)
	default:
		l.remove(h.Token)
	}
	return true
}

// takeOver has another token hold the permits in place of this one, for ttl.
func (l *Lock) takeOver(now int64, token, by string, ttl int64) uint64 {
	fence := l.grant(now, by, ttl)
	l.remove(token)
	return fence
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

// Resize sets the number of permits for all callers; 0: there are again as many as tokens say.
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
	h.Expires = now + min(ttl, ttlOf(token))
	return true
}

// Resume has another token of the same weight hold the permits in place of this one, if this one has the lease with that fence, for
// ttl from now. It returns the fence of the new lease, also if that was done before; 0: there is none.
func (l *Lock) Resume(now int64, token string, fence uint64, ttl int64, by string) uint64 {
	l.Advance(now)
	if l.Tombstones[by] > now {
		return 0
	}
	l.open(now)
	if h := l.holder(by); h != nil {
		h.Expires = now + ttl
		return h.Fence
	}
	h := l.holder(token)
	if h == nil || h.Fence != fence || parse(token).Weight() != parse(by).Weight() {
		return 0
	}
	l.setTombstone(now, token)
	return l.takeOver(now, token, by, ttl)
}

// Heartbeat keeps the tickets of waiters, and tells their states.
func (l *Lock) Heartbeat(now, waiterTTL int64, tokens []string) HeartbeatReply {
	l.Advance(now)
	l.open(now)
	if l.waiting > 0 && len(tokens) > 0 {
		l.QueueUntil = now + waiterTTL + Kept
		for _, t := range tokens {
			if l.index(t) >= 0 {
				l.Heartbeats[t] = l.clock + waiterTTL
			}
		}
	}
	l.dropExpired()
	queue := l.admit(now, "")
	if l.waiting > 0 {
		l.record(now, 0)
	}
	reply, first := HeartbeatReply{Last: l.last}, ""
	for _, t := range tokens {
		state := NotQueued
		if l.holder(t) != nil {
			state = Holding
		} else if l.index(t) >= 0 {
			state, first = StillQueued, cmp.Or(first, t)
		}
		reply.States = append(reply.States, state)
	}
	l.tellHead(now, first)
	reply.RetryAfter = l.retryAfter(now, first, queue)
	return reply
}

// Waiting counts the waiters, also those that have expired.
func (l *Lock) Waiting(now int64) int {
	l.Advance(now)
	return len(l.Waiters)
}

// open removes the holders if it is not known any more what they hold. It forgets a queue of which a part was lost: the times of
// some waiters, or the number, and with it the clock that their times go by.
func (l *Lock) open(now int64) {
	if l.Lost {
		l.Holders, l.Lost = nil, false
	}
	if len(l.Heartbeats) != len(l.Waiters) || l.missing && len(l.Waiters) > 0 {
		l.Waiters, l.Heartbeats, l.QueueUntil = nil, nil, 0
		l.record(now, 0)
	}
	l.waiting = len(l.Waiters)
}

// dropExpired drops expired waiters, wherever they stand, the longest expired first.
func (l *Lock) dropExpired() {
	var expired []string
	for t, expires := range l.Heartbeats {
		if expires < l.clock+Millisecond {
			expired = append(expired, t)
		}
	}
	slices.SortFunc(expired, func(a, b string) int {
		return cmp.Or(cmp.Compare(l.Heartbeats[a], l.Heartbeats[b]), cmp.Compare(a, b))
	})
	for _, t := range expired[:min(len(expired), MaxDropped)] {
		l.dequeue(t)
	}
}

// admit is the only rule of admission. The head of the queue is granted what it asks for if so much is free, for what is left
// until it expires, at most its TTL; otherwise it blocks all behind it. The requester is the waiter that sends this request: it
// is not expired. Heads that ask for more than a resize has set are dropped: they would block all behind them.
func (l *Lock) admit(now int64, requester string) QueueState {
	for admitted := 0; !l.full(); admitted++ {
		for len(l.Waiters) > 0 && l.isTooLarge(l.Waiters[0].Token) && l.tooLarge < MaxTooLarge {
			l.dequeue(l.Waiters[0].Token)
			l.tooLarge++
		}
		if len(l.Waiters) == 0 {
			return Empty
		}
		head := l.Waiters[0].Token
		given := ttlOf(head)
		if head != requester {
			given = min(given, (l.Heartbeats[head]-l.clock)/Millisecond*Millisecond)
		}
		if given <= 0 || admitted == MaxAdmitted {
			return More
		}
		if !l.Fits(head) {
			break
		}
		fence := l.grant(now, head, given)
		l.dequeue(head)
		if head != requester {
			l.Notified = append(l.Notified, Grant{head, fence, given})
		}
	}
	if l.tooLarge == MaxTooLarge {
		return More
	}
	return Blocked
}

// full reports whether a mutex is held.
func (l *Lock) full() bool {
	return len(l.Holders) > 0 && tokens.Permits(parse(l.Holders[0].Token).Text()) == 0
}

// Fits reports whether as many permits are free as the token asks for: of the number that it says, unless the lock was resized.
func (l *Lock) Fits(text string) bool {
	t := parse(text)
	return l.Used()+t.Weight() <= cmp.Or(l.Resized, tokens.Permits(t.Text()), 1)
}

// isTooLarge reports whether the token asks for more permits than a resize has set.
func (l *Lock) isTooLarge(text string) bool { return l.Resized > 0 && parse(text).Weight() > l.Resized }

// tellHead tells the head when a lease ends, if that is soon: perhaps nobody will release it.
func (l *Lock) tellHead(now int64, requester string) {
	if !l.changed || len(l.Waiters) == 0 || l.Waiters[0].Token == requester {
		return
	}
	if after := l.nextEnd(now); after >= 0 && after <= soon {
		l.Notified = append(l.Notified, Grant{Token: l.Waiters[0].Token, Given: after})
	}
}

func (l *Lock) handOff(now int64, released bool) Handoff {
	l.open(now)
	l.changed = true
	l.dropExpired()
	queue := l.admit(now, "")
	grants := slices.Clone(l.Notified)
	if len(grants) == 0 && (l.waiting > 0 || l.missing && l.last > 0) {
		l.record(now, 0)
	}
	l.tellHead(now, "")
	return Handoff{released, grants, queue}
}

func (l *Lock) grant(now int64, token string, given int64) uint64 {
	fence := l.nextNumber(now)
	l.record(now, given)
	l.Holders = append(l.Holders, Holder{Token: token, Fence: fence, Expires: now + given})
	return fence
}

// nextNumber returns the next number.
func (l *Lock) nextNumber(now int64) uint64 {
	l.last = max(uint64(now), l.last+1)
	return l.last
}

// record records the number and the queue's clock. They last for FenceTTL longer than d and than the queue, and until the server's
// clock has reached the number.
func (l *Lock) record(now, d int64) {
	l.last = max(l.last, uint64(now))
	l.Last, l.Clock, l.ClockAt = l.last, l.clock, now
	ahead := (int64(l.last) - now + Millisecond - 1) / Millisecond * Millisecond
	queue := (l.QueueUntil - now) / Millisecond * Millisecond
	l.NumberUntil = now + max(max(d, queue)+cmp.Or(l.FenceTTL, FenceTTL), ahead)
}

// join puts a waiter into the queue with its ticket; one that is queued keeps the lower of two tickets.
func (l *Lock) join(now int64, r Request) {
	w := Waiter{r.Token, r.Ticket}
	if at := l.index(r.Token); at >= 0 {
		if had := l.Waiters[at].Ticket; w.Ticket == 0 || had < w.Ticket {
			w.Ticket = had
		}
		l.Waiters = slices.Delete(l.Waiters, at, at+1)
	}
	at, _ := slices.BinarySearchFunc(l.Waiters, w, func(a, b Waiter) int { // two with one ticket: by name, as in Redis
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Token, b.Token))
	})
	l.Waiters = slices.Insert(l.Waiters, at, w)
	if l.Heartbeats == nil {
		l.Heartbeats = map[string]int64{}
	}
	l.Heartbeats[r.Token], l.QueueUntil = l.clock+r.WaiterTTL, now+r.WaiterTTL+Kept
}

func (l *Lock) dequeue(token string) {
	l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool { return w.Token == token })
	delete(l.Heartbeats, token)
	l.changed = true
	if len(l.Waiters) == 0 {
		l.QueueUntil = 0
	}
}

func (l *Lock) remove(token string) {
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Token == token })
}

// Advance brings the lock to the time now: leases end, and an old number is forgotten. Every call begins with it.
func (l *Lock) Advance(now int64) {
	l.Notified, l.changed, l.tooLarge = nil, false, 0
	l.Holders = slices.DeleteFunc(l.Holders, func(h Holder) bool { return h.Expires <= now })
	if l.NumberUntil <= now {
		l.Last, l.NumberUntil = 0, 0
	}
	l.missing = l.Last == 0
	l.last, l.clock = l.Last, l.Clock+min(max(now-l.ClockAt, 0), Second)
	if l.missing { // of what is there, no number is given again
		l.last, l.clock = l.Highest, 0
		for _, w := range l.Waiters {
			l.last = max(l.last, w.Ticket)
		}
	}
}

// LastNumber is the last number that a call would see.
func (l *Lock) LastNumber() uint64 { return l.last }

// InUse reports whether anyone holds or waits.
func (l *Lock) InUse() bool { return len(l.Holders) > 0 || len(l.Waiters) > 0 }

// Used is the number of permits that are held.
func (l *Lock) Used() (sum int) {
	for _, h := range l.Holders {
		sum += parse(h.Token).Weight()
	}
	return sum
}

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

// nextEnd returns after how many whole milliseconds a lease has ended; negative: none will.
func (l *Lock) nextEnd(now int64) int64 {
	if len(l.Holders) == 0 {
		return -1
	}
	return (l.FirstToExpire(1)[0].Expires-now)/Millisecond*Millisecond + Millisecond
}

// retryAfter returns after how long another request can help that waiter; negative: it is not the head, or none will.
func (l *Lock) retryAfter(now int64, token string, queue QueueState) int64 {
	switch {
	case queue == More:
		return 0
	case l.index(token) != 0:
		return -1
	default:
		return l.nextEnd(now)
	}
}

// Expires returns when a waiter expires at the earliest, by the server's clock; if nobody asks, it is dropped later.
func (l *Lock) Expires(now int64, w Waiter) int64 {
	ends, timed := l.Heartbeats[w.Token]
	if !timed {
		ends = l.clock // the next call forgets the queue
	}
	behind := int64(0)
	if !l.missing {
		behind = max(now-l.ClockAt-Second, 0)
	}
	return now + ends - l.clock - behind
}
