package fairlock

import (
	"context"
	"math"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// MaxInspected is how many holders and how many waiters a State lists; it counts all.
const MaxInspected = 1000

// State is a lock at one moment.
type State struct {
	At   time.Time // by Redis's clock
	Held bool      // somebody holds it

	// Quarantine is for how long Redis still grants the lock to nobody, because it had lost data, and an earlier holder may not
	// have noticed yet. It counts down only with heartbeats and with requests for the lock, at most a second with each.
	Quarantine time.Duration

	Holder  Holder   // the first of Holders; a mutex has no other. Zero unless held
	Holders []Holder // at most MaxInspected of them, ordered by the end of their leases
	Used    int      // permits that are held: of a mutex 0 or 1, of an RWMutex the number of readers, or 1 for a writer
	Permits int      // of a semaphore in use, its number of permits; of a mutex 1; 0 for others
	Fence   uint64   // the lock's last number: no fence is higher. 0 if none is kept any more
	Waiting int      // number of waiters
	Waiters []Waiter // the first MaxInspected of them, in order
}

// Holder holds a lock.
type Holder struct {
	Client string      // its Name, or the key's whole content if another program has written that
	Token  token.Token // zero if another program has written the key
	Fence  uint64
	Age    time.Duration // since the grant, by its fence; 0 if the server's clock has stepped back since
	TTL    time.Duration // what is left of its lease; negative if the key has no expiry, which only another program can cause
	Weight int           // number of permits: 1, but for semaphores
	Writer bool          // it writes, under an RWMutex

	// Renewed is how long ago its lease was renewed, or granted if it was not renewed since; negative: not known. A holder
	// that is alive and reaches Redis renews it after about a third of Token.TTL, unless its Config has NoRenewal. Missed is
	// how many renewals should have followed.
	Renewed time.Duration
	Missed  int
}

// Waiter is queued for a lock.
type Waiter struct {
	Client string
	Token  token.Token
	Ticket uint64        // µs of Redis's clock, strictly increasing over the waiters of a lock
	Age    time.Duration // since it was queued
	TTL    time.Duration // after which it expires without a heartbeat; negative: it is dropped by a sweep, or at the head
	Weight int           // number of permits that it waits for: 1, but for semaphores
	Writer bool          // it waits to write, under an RWMutex
}

// Inspect reads a lock without a Client, for a program that looks at many locks. It lists at most limit holders and at
// most limit waiters. ctx bounds it. The error is one of Redis or of ctx.
func Inspect(ctx context.Context, l lua.Lock, limit int) (State, error) {
	snap, err := l.Inspect(ctx, limit)
	if err != nil {
		return State{}, err
	}
	s := State{At: snap.Now, Fence: snap.Fence, Used: snap.Used, Permits: snap.Capacity, Waiting: snap.Waiting, Quarantine: snap.Quarantine}
	for _, h := range snap.Holders {
		s.Held = true
		holder := Holder{Fence: h.Fence, Age: age(h.Fence, snap.Now), TTL: h.Left}
		holder.Token, holder.Client = parse(h.Token)
		holder.Weight, holder.Writer = share(l, h.Weight)
		holder.Renewed, holder.Missed = renewals(holder)
		s.Holders = append(s.Holders, holder)
	}
	if s.Held {
		s.Holder = s.Holders[0]
	}
	if l.ReadWrite() {
		s.Permits = 0
		if s.Used == lua.WriterWeight {
			s.Used = 1
		}
	}
	for _, w := range snap.Waiters {
		ticket := uint64(w.Ticket)
		waiter := Waiter{Ticket: ticket, Age: age(ticket, snap.Now), TTL: w.Expires.Sub(snap.Now)}
		waiter.Token, waiter.Client = parse(w.Token)
		waiter.Weight, waiter.Writer = share(l, w.Weight)
		s.Waiters = append(s.Waiters, waiter)
	}
	return s, nil
}

// age is how long ago a ticket or a fence was given: a little more, if it was not alone in its microsecond; 0 of none.
func age(number uint64, now time.Time) time.Duration {
	if number == 0 {
		return 0
	}
	return max(now.Sub(time.UnixMicro(int64(number))), 0)
}

// renewals returns how long ago a lease was renewed, and how many renewals should have followed: each when a third of what
// was left then had passed. One that is late by less than the least time between two is on its way.
func renewals(h Holder) (ago time.Duration, missed int) {
	ttl := h.Token.TTL()
	if h.Token.IsZero() || h.TTL < 0 || h.TTL > ttl {
		return -1, 0
	}
	ago = ttl - h.TTL
	if h.Fence > 0 && h.Age < ago { // it was handed over, for less than its TTL
		ago = h.Age
	}
	lasted := float64(h.TTL + ago)
	left := min((float64(h.TTL)+float64(ttl)/30)/lasted, 1)
	return ago, int(math.Log(left) / math.Log(2.0/3))
}

// share returns what a weight means to a user.
func share(l lua.Lock, weight int) (permits int, writer bool) {
	if l.ReadWrite() {
		return 1, weight == lua.WriterWeight
	}
	return weight, false
}

// parse reads a token of Redis, and its client; or text that is not ours.
func parse(text string) (token.Token, string) {
	t, err := token.Parse(text)
	if err != nil {
		return token.Token{}, text
	}
	return t, t.Client()
}
