// Package script sends the scripts that are the lock: one typed method for each. Only this package knows the order of
// KEYS and ARGV and the shape of a reply. Every method can be repeated: the second call finds what the first has done.
//
// It is internal to this module: use package fairlock. Everything here may change in any version.
package script

import (
	"context"
	"strconv"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/token"
)

// Sender sends requests to Redis: a dispatch.Dispatcher, or a dispatch.Direct.
type Sender interface {
	Send(ctx context.Context, r dispatch.Request) (reply any, err error)
}

// Lock is one lock in Redis. It is immutable and safe for concurrent use.
type Lock struct {
	rdb      Sender
	kind     *kind
	name     string
	keys     []string
	fenceTTL time.Duration
	readOnly bool
}

// WithFenceTTL returns the same lock, whose numbers are kept for d.
func (l Lock) WithFenceTTL(d time.Duration) Lock {
	l.fenceTTL = d
	return l
}

// ReadOnly returns the same lock for requests that only read, so that the user needs no right to write.
func (l Lock) ReadOnly() Lock {
	l.readOnly = true
	return l
}

// Of returns the lock of that kind, "mutex", "semaphore", "keyed" or "rwmutex", and name, or false for another kind.
// The number of permits and the key are in the token of a request.
func Of(rdb Sender, kind, namespace, name string) (l Lock, ok bool) {
	k, ok := kinds[kind]
	if !ok {
		return Lock{}, false
	}
	return Lock{rdb: rdb, kind: k, name: name, keys: k.keyNames(namespace, name), fenceTTL: bounds.DefaultFenceTTL}, true
}

// Key identifies the lock: no other lock has the same.
func (l Lock) Key() string { return l.keys[0] }

// Ticket is a waiter's number in the queue: µs of server time, strictly increasing over the waiters of a lock. 0 is
// none.
type Ticket uint64

// Request is an acquire request.
type Request struct {
	Token      token.Token   // it says how long the lease is, and how many permits are requested
	WaiterTTL  time.Duration // how long the waiter keeps its ticket without a heartbeat
	MaxWaiters int           // the request is refused if this many others wait; 0: any number
	MaxLine    int           // the request is refused if this many others of its key wait; 0: any number
	Ticket     Ticket        // the waiter's, if it has one
	Try        bool          // do not queue
}

// Outcome is the outcome of a Request.
type Outcome int

// The outcomes.
const (
	Granted Outcome = iota + 1
	Queued
	Busy
	Full
	Resized // more permits are requested than a resize has set
)

// Why says why a request would wait.
type Why string

// The reasons.
const (
	WhyLock Why = "lock" // Busy: too few permits are free. Full: MaxWaiters
	WhyKey  Why = "key"  // Busy: its key is at its limit. Full: MaxLine
	WhyTurn Why = "turn" // Busy: other waiters come first
)

// Reply is the reply to a Request.
type Reply struct {
	Outcome  Outcome
	Why      Why    // Busy, Full
	Fence    uint64 // Granted: of this grant
	Ticket   Ticket // Queued
	Position int    // Queued: in its line; 1 is the first. Full: how many wait, of the lock or of the key
	Last     uint64 // Queued: the lock's last number; every grant after this reply has a higher fence
	Permits  int    // Resized: the number that was set
	Holder   string // Busy, Queued: the token of a holder; "" if there is none
	More     bool   // Granted, Busy: the script reached a bound before it had served the queue; see Admit
	// Queued: when another request can help; negative: only a notification can. Busy: the same, without releases
	RetryAfter time.Duration
	Ambiguous  bool // a copy of the request may still reach Redis; set whatever the error
}

// Acquire sends a Request. It can be repeated.
func (l Lock) Acquire(ctx context.Context, r Request) (Reply, error) {
	waiterTTL := milliseconds(r.WaiterTTL)
	if r.Try {
		waiterTTL = 0
	}
	reply, ambiguous, err := send(ctx, l,
		l.request("acquire", r.Token.Text(), waiterTTL, r.MaxWaiters, uint64(r.Ticket), r.MaxLine), readReply)
	reply.Ambiguous = ambiguous
	return reply, err
}

// Grant is a lock that Redis has granted.
type Grant struct {
	Token token.Token
	Fence uint64
	Given time.Duration // length of the lease

	// What the token's client knows of it:
	Sent      time.Time // when the request that led to it was sent; the lease is measured from then on
	Handoff   bool      // by a release, without a further request of the waiter
	Ambiguous bool      // an acquire of the token may still reach Redis
}

// Handoff is the reply to a release: what became of the lock.
type Handoff struct {
	Released  bool    // the token held the lock until now
	Grants    []Grant // the waiters that hold it now
	More      bool    // the script reached a bound before it had served the queue; see Admit
	Ambiguous bool    // a copy of the request may have released the lock already; set whatever the error
	Next      uint64  // of ForceRelease: where the next call goes on; 0: there are no more holders
}

// Rest is the remaining part of a minimum hold after a release. Another token holds the lock for that time. The zero
// Rest is none.
type Rest struct {
	Left time.Duration // none if it is not above 0
	By   token.Token   // of the same weight as the lease's token
}

func (r Rest) milliseconds() int64 { return max(0, milliseconds(r.Left)) }

// Release releases the lock, if the token holds it by the lease with that fence. It hands the lock to the next waiter,
// or passes it to the token of the rest. Repeated with the same Rest, it finds what it has done.
func (l Lock) Release(ctx context.Context, t token.Token, fence uint64, rest Rest) (Handoff, error) {
	return l.handoff(ctx, l.request("release", t.Text(), fence, rest.milliseconds(), rest.By.Text()), readHandoff)
}

// QueueKept is how long beyond WaiterTTL Redis keeps a queue without heartbeats.
const QueueKept = 11 * time.Minute

// Leaving is a waiter that leaves the queue. With a Tombstone, Redis refuses the token from then on, for 11 minutes, so
// that a delayed request cannot acquire the lock for nobody.
type Leaving struct {
	Token     token.Token
	Tombstone bool
	Urgent    bool // it holds the lock, and others wait
}

// Leave removes at most MaxLeave waiters from the queue, and ends the leases of those that hold the lock. With a rest,
// it takes one waiter.
func (l Lock) Leave(ctx context.Context, rest Rest, leaving ...Leaving) (Handoff, error) {
	var refused, others []any
	urgent := false
	for _, w := range leaving {
		urgent = urgent || w.Urgent
		if w.Tombstone {
			refused = append(refused, w.Token.Text())
		} else {
			others = append(others, w.Token.Text())
		}
	}
	args := append([]any{rest.milliseconds(), rest.By.Text(), len(refused)}, append(refused, others...)...)
	r := l.request("leave", args...)
	r.Urgent = urgent
	return l.handoff(ctx, r, readHandoff)
}

// ForceRelease takes the lock from holders whose fence is not above seen, and hands it to the next waiter. Because of
// seen, a repeated or late request cannot take the lock from a later holder. One call looks at some of the holders.
// Pass 0 as from in the first call, and then the Next of the previous one, until that is 0.
func (l Lock) ForceRelease(ctx context.Context, seen, from uint64) (Handoff, error) {
	return l.handoff(ctx, l.request("force_release", seen, from), readForced)
}

// handoff sends a request that can release the lock.
func (l Lock) handoff(ctx context.Context, r dispatch.Request, read func(*reader) Handoff) (Handoff, error) {
	h, ambiguous, err := send(ctx, l, r, read)
	h.Ambiguous = ambiguous || Aborted(err)
	return h, err
}

// Renew extends the lease with that fence to ttl from now, at most to the TTL of its token. It returns false if there
// is no such lease.
func (l Lock) Renew(ctx context.Context, t token.Token, ttl time.Duration, fence uint64) (bool, error) {
	renewed, _, err := send(ctx, l, l.request("renew", t.Text(), milliseconds(ttl), fence), readRenewed)
	return renewed, err
}

// Resume passes the lease with that fence from this token to another one of the same weight, for ttl from now. It
// returns the fence of the new lease, or 0 if there is no such lease or the other token has left. Repeated, it finds
// what it has done.
func (l Lock) Resume(ctx context.Context, t token.Token, fence uint64, ttl time.Duration,
	by token.Token) (resumed uint64, ambiguous bool, err error) {
	return send(ctx, l, l.request("resume", t.Text(), fence, milliseconds(ttl), by.Text()), readResumed)
}

// Resize sets the number of permits of a semaphore for all its users, whatever number their tokens say. With 0, the
// numbers of the tokens count again. It grants the lock to waiters that now fit, and drops those at the head that want
// more than there are. It can be repeated.
func (l Lock) Resize(ctx context.Context, permits int) (Handoff, error) {
	return l.handoff(ctx, l.request("resize", permits), readHandoff)
}

// MaxHeartbeat is how many waiters one heartbeat takes, and MaxLeave how many one Leave takes. More would block Redis
// for too long. In a queue of 10,000, 50 waiters of a mutex leave in 0.5 ms, and 50 waiters of 50 keys in 2 ms.
const (
	MaxHeartbeat = 250
	MaxLeave     = 50
)

// WaiterState is the state of a waiter that a heartbeat finds.
type WaiterState int

// The states.
const (
	NotQueued   WaiterState = iota // it is not in the queue, and does not hold the lock
	StillQueued                    // it is in the queue
	Holding                        // it holds the lock
)

// HeartbeatReply is the reply to a heartbeat.
type HeartbeatReply struct {
	Last uint64 // the lock's last number; every grant after this reply has a higher fence
	// when another request can help, if one of the tokens is the head; negative: only a notification can
	RetryAfter time.Duration
	States     []WaiterState // one for each token
}

// Heartbeat keeps the tickets of at most MaxHeartbeat waiters of a client, and returns their states. The tokens are in
// the order of their tickets.
func (l Lock) Heartbeat(ctx context.Context, waiterTTL time.Duration, tokens []token.Token) (HeartbeatReply, error) {
	args := make([]any, 1, 1+len(tokens))
	args[0] = milliseconds(waiterTTL)
	for _, t := range tokens {
		args = append(args, t.Text())
	}
	reply, _, err := send(ctx, l, l.request("heartbeat", args...), readHeartbeat(len(tokens)))
	return reply, err
}

// Admit grants the lock to waiters that fit. It reports whether the script stopped at a bound before it had served the
// queue. Call it again then.
func (l Lock) Admit(ctx context.Context) (more bool, err error) {
	reply, err := l.Heartbeat(ctx, 0, nil)
	return err == nil && reply.RetryAfter == 0, err
}

// Snapshot is a lock at one moment.
type Snapshot struct {
	Now     time.Time // by the server's clock
	Fence   uint64    // the highest fence so far; 0 if it is unknown
	Used    int       // the weights of all holders; of a mutex 0 or 1
	Resized int       // the number of permits that a resize has set; 0: none has
	Holders []Holder  // some of them
	Waiting int       // number of all waiters
	Alive   int       // number of those that have not expired
	Waiters []Waiter  // the first of them, by their tickets
	// some of those that have waiters, in the order of their turns, those at their limits last
	Keys []Key
}

// Key is a key of a keyed semaphore that has waiters.
type Key struct {
	Key     string // not encoded
	Held    int    // permits
	Waiting int
	Limit   int    // of its first waiter; 0: none
	Share   int    // of its first waiter
	Ticket  Ticket // of its first waiter
	AtLimit bool   // its first waiter waits for holders of its own key
}

// Holder holds a lock. Token is the text in Redis. It does not parse as a token if another program has written the key.
type Holder struct {
	Token string
	Fence uint64
	Left  time.Duration // until its lease ends; negative: it does not end
}

// Waiter is queued for a lock.
type Waiter struct {
	Token   string
	Ticket  Ticket
	Expires time.Time // the earliest time at which it expires without a heartbeat, by the server's clock
}

// Inspect reads the lock, with at most the given numbers of holders and waiters.
func (l Lock) Inspect(ctx context.Context, holders, waiters int) (Snapshot, error) {
	snapshot, _, err := send(ctx, l, l.request("inspect", holders, waiters), readSnapshot)
	return snapshot, err
}

// request returns the request of a verb. Its first argument counts how often it is written.
func (l Lock) request(verb string, args ...any) dispatch.Request {
	s, v := l.kind.built[verb](), verbs[verb]
	fenceTTL := dispatch.Count(strconv.FormatInt(milliseconds(l.fenceTTL), 10))
	return dispatch.Request{
		Lock: l.name, Script: s.Script, Keys: l.keys[s.from:s.to], Args: append([]any{fenceTTL}, args...),
		ReadOnly: l.readOnly, Urgent: v.urgent, Repeatable: v.repeatable,
	}
}

// milliseconds rounds up, so that no duration becomes shorter or 0.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
