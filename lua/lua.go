// Package lua holds the scripts that are the lock, and one typed method for each. It is the only place that knows the
// order of KEYS and ARGV and the shape of a reply. Every method may be called twice for the same purpose: the second
// call finds what the first has done.
package lua

import (
	"context"
	"encoding"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/token"
)

// Lock is one lock's place in Redis. It is a value and safe for concurrent use.
type Lock struct {
	rdb      redis.Scripter
	keys     []string
	kind     *kind
	capacity int // of permits; 0: a mutex
}

// Mutex returns the mutex with that name.
func Mutex(rdb redis.Scripter, namespace, name string) Lock {
	return Lock{rdb: rdb, keys: MutexKeys(namespace, name).list(), kind: &mutex}
}

// Semaphore returns the semaphore with that name, which is to have so many permits.
func Semaphore(rdb redis.Scripter, namespace, name string, capacity int) Lock {
	return Lock{rdb: rdb, keys: SemaphoreKeys(namespace, name).list(), kind: &permits, capacity: capacity}
}

// Everybody is how many may read under a read-write lock at once. A writer asks for so many permits, a reader for one.
const Everybody = 1 << 30

// RWMutex returns the read-write lock with that name.
func RWMutex(rdb redis.Scripter, namespace, name string) Lock {
	return Lock{rdb: rdb, keys: RWMutexKeys(namespace, name).list(), kind: &permits, capacity: Everybody}
}

// Via returns the same lock, reached by another client of the same server.
func (l Lock) Via(rdb redis.Scripter) Lock {
	l.rdb = rdb
	return l
}

// Ask is what a waiter asks for.
type Ask struct {
	Token    token.Token
	TTL      time.Duration // of the lease
	Patience time.Duration // how long the place in the queue is kept
	Bound    int           // refuse to be one more than so many waiters; 0: any number
	Ticket   Ticket        // the place it had before, if it had one
	Try      bool          // do not wait
	Weight   int           // how many permits; of no meaning for a mutex
}

// Ticket is a waiter's place: µs of server time, strictly increasing over the waiters of a lock. 0 is none.
type Ticket uint64

// Outcome is the answer's kind.
type Outcome int

// The outcomes of asking.
const (
	Granted Outcome = iota + 1
	Queued
	Busy
	Full
	Capacity // it is in use with another capacity
)

// Answer is the reply to an Ask.
type Answer struct {
	Outcome  Outcome
	Fence    uint64        // Granted: of this grant. Queued: of the last one
	Ticket   Ticket        // Queued
	Position int           // Queued: 1 is the head. Full: how many wait
	Capacity int           // Capacity: the one in use
	More     bool          // Granted, Busy: a bound was reached before the queue was served; see Admit
	Resent   bool          // an earlier copy of this question was written and not answered: it may arrive late
	Helps    time.Duration // Queued: after which asking again can help; negative: nobody knows
}

// Acquire asks for the lock. Resent holds whatever the error.
func (l Lock) Acquire(ctx context.Context, a Ask) (Answer, error) {
	patience := milliseconds(a.Patience)
	if a.Try {
		patience = 0
	}
	t := &Leaving{Token: a.Token} // counts how often it is written
	args := []any{encoding.BinaryMarshaler(t), milliseconds(a.TTL), patience, a.Bound, uint64(a.Ticket)}
	if l.capacity > 0 {
		args = append(args, a.Weight, l.capacity)
	}
	reply, err := l.run(ctx, l.kind.acquire, args...)
	var answer Answer
	if err == nil {
		answer, err = decode(reply, readAnswer)
	}
	answer.Resent = t.sent.Load() > 1
	return answer, err
}

// Grant is a lock handed over to a waiter: to whom, with which fence, and for how long.
type Grant struct {
	Token token.Token
	Fence uint64
	Given time.Duration
}

// Handover is what became of a lock that a script may have set free.
type Handover struct {
	Released bool    // the token held the lock, until now
	Grants   []Grant // who holds it now
	More     bool    // a bound was reached before the queue was served; see Admit
	Resent   bool    // not the first time that this release was sent: an earlier one may have been the one that worked
}

// Release gives the lock back, if the token holds it, and hands it over.
func (l Lock) Release(ctx context.Context, t *Leaving, ttl time.Duration) (Handover, error) {
	h, err := l.handover(ctx, l.kind.release, encoding.BinaryMarshaler(t), milliseconds(ttl))
	h.Resent = t.sent.Load() > 1
	return h, err
}

// Leave takes a waiter out of the queue, and releases the lock if the token holds it. If bury is not 0, an acquire of
// this token that went astray and arrives within bury is refused: nobody would hear of the grant.
func (l Lock) Leave(ctx context.Context, t *Leaving, ttl, bury time.Duration) (Handover, error) {
	h, err := l.handover(ctx, l.kind.leave, encoding.BinaryMarshaler(t), milliseconds(ttl), milliseconds(bury))
	h.Resent = t.sent.Load() > 1
	return h, err
}

// Leaving is a token on its way out (or in). It counts how often go-redis has written it: go-redis resends a command whose
// reply was lost and does not tell, but it marshals the arguments anew each time. The count goes over all releases of
// one acquisition.
type Leaving struct {
	token.Token
	Unsure bool // Redis may know more of this token than its owner does: a reply did not come, or too late
	sent   atomic.Int32
}

// MarshalBinary returns the token's text, and counts.
func (t *Leaving) MarshalBinary() ([]byte, error) {
	t.sent.Add(1)
	return []byte(t.Text()), nil
}

// ForceRelease takes the lock from whoever holds it with a fence not above seen, and hands it over. So a resend, or a
// call that comes late, does not rob the next one. If it has Released, and there is More, it is to be called again.
func (l Lock) ForceRelease(ctx context.Context, ttl time.Duration, seen uint64) (Handover, error) {
	return l.handover(ctx, l.kind.forceRelease, milliseconds(ttl), seen)
}

func (l Lock) handover(ctx context.Context, script *redis.Script, args ...any) (Handover, error) {
	reply, err := l.run(ctx, script, args...)
	if err != nil {
		return Handover{}, err
	}
	return decode(reply, readHandover)
}

// Renew extends a holding to ttl from now; it never shortens it. A fence of 0 is one that the caller does not know.
// It returns the fence, and false if the token does not hold the lock.
func (l Lock) Renew(ctx context.Context, t token.Token, ttl time.Duration, fence uint64) (uint64, bool, error) {
	reply, err := l.run(ctx, l.kind.renew, t.Text(), milliseconds(ttl), fence)
	if err != nil {
		return 0, false, err
	}
	fence, err = decode(reply, readRenewal)
	return fence, err == nil && fence != 0, err
}

// MostBeats is how many waiters one Beat takes; more would keep Redis for longer than a beat should.
const MostBeats = 1000

// State is where a waiter stands.
type State int

// The states that a beat reports.
const (
	Gone     State = iota // not in the queue
	Waiting               // in the queue
	Holding               // granted before this beat: the message did not arrive, or not yet
	Admitted              // granted by this beat
)

// Pulse is the reply to a beat.
type Pulse struct {
	Fence  uint64        // the last one before the beat
	Best   int           // index of the foremost waiter; -1 if none waits
	Helps  time.Duration // after which asking can help that one; negative: nobody knows
	States []State       // one for each token
}

// Beat keeps the places of one client's waiters and tells how they stand. At most MostBeats tokens.
func (l Lock) Beat(ctx context.Context, ttl, patience time.Duration, tokens []token.Token) (Pulse, error) {
	args := make([]any, 2, 2+len(tokens))
	args[0], args[1] = milliseconds(ttl), milliseconds(patience)
	for _, t := range tokens {
		args = append(args, t.Text())
	}
	reply, err := l.run(ctx, l.kind.beat, args...)
	if err != nil {
		return Pulse{}, err
	}
	return decode(reply, readPulse(len(tokens)))
}

// Admit admits waiters, and reports whether a bound was reached before the queue was served: then it is to be called
// again.
func (l Lock) Admit(ctx context.Context, ttl time.Duration) (more bool, err error) {
	pulse, err := l.Beat(ctx, ttl, 0, nil)
	return err == nil && pulse.Helps == 0, err
}

// Snapshot is a lock at one moment.
type Snapshot struct {
	Now      time.Time // the server's
	Fence    uint64    // the last one; 0 if none is known
	Used     int       // the weights of all holders; of a mutex 0 or 1
	Capacity int       // what it can be at most; 0 if none is set
	Holders  []Holder  // some of them
	Waiting  int       // all of them
	Waiters  []Waiter  // the first of them, in order
}

// Holder is who holds a lock. Token is what stands in Redis; it does not parse as one when the lock rests, or when
// something else took the key.
type Holder struct {
	Token  string
	Fence  uint64
	Left   time.Duration // of its lease; negative: for ever
	Weight int
}

// Waiter is one place in the queue.
type Waiter struct {
	Token  string
	Ticket Ticket
	Alive  time.Time // until when it keeps its place, by the server's clock
	Weight int
}

// Resting is what holds a lock that rests after its data was lost.
const Resting = "nobody:resting"

// Inspect reads the lock and at most limit of its holders and of its waiters.
func (l Lock) Inspect(ctx context.Context, limit int) (Snapshot, error) {
	reply, err := l.run(ctx, l.kind.inspect, limit)
	if err != nil {
		return Snapshot{}, err
	}
	return decode(reply, readSnapshot)
}

// milliseconds rounds up: a time given must not become shorter on the wire, nor nothing.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Capacity is how many permits there are to be; 0: it is a mutex.
func (l Lock) Capacity() int { return l.capacity }

// Key identifies the lock: no other lock has the same.
func (l Lock) Key() string { return l.keys[0] }
