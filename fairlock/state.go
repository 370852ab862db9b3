package fairlock

import (
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
	// have noticed yet. It passes while somebody uses the lock, waits or tries: at most a second with each request.
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
	Client string      // its Name, or the key's whole content if that is not ours
	Token  token.Token // zero if the key's content is not ours
	Fence  uint64
	TTL    time.Duration // what is left of its lease; negative if the key does not expire, which is never our doing
	Weight int           // number of permits: 1, but for semaphores
	Writer bool          // it writes, under an RWMutex
}

// Waiter is queued for a lock.
type Waiter struct {
	Client string
	Token  token.Token
	Ticket uint64        // µs of Redis's clock, strictly increasing over the waiters of a lock
	Age    time.Duration // since it was queued
	TTL    time.Duration // after which it expires without a heartbeat; negative: it is dropped when it is at the head
	Weight int           // number of permits that it waits for: 1, but for semaphores
	Writer bool          // it waits to write, under an RWMutex
}

// state is what a snapshot of the lock means.
func (l *lock) state(snap lua.Snapshot) State {
	s := State{At: snap.Now, Fence: snap.Fence, Used: snap.Used, Permits: snap.Capacity, Waiting: snap.Waiting, Quarantine: snap.Quarantine}
	for _, h := range snap.Holders {
		s.Held = true
		holder := Holder{Fence: h.Fence, TTL: h.Left}
		holder.Token, holder.Client = parse(h.Token)
		holder.Weight, holder.Writer = l.share(h.Weight)
		s.Holders = append(s.Holders, holder)
	}
	if s.Held {
		s.Holder = s.Holders[0]
	}
	if l.kind == rwMutex {
		s.Permits = 0
		if s.Used == lua.WriterWeight {
			s.Used = 1
		}
	}
	for _, w := range snap.Waiters {
		queued := time.UnixMicro(int64(w.Ticket)) // a little later, if it was not alone in its microsecond
		waiter := Waiter{Ticket: uint64(w.Ticket), Age: max(snap.Now.Sub(queued), 0), TTL: w.Expires.Sub(snap.Now)}
		waiter.Token, waiter.Client = parse(w.Token)
		waiter.Weight, waiter.Writer = l.share(w.Weight)
		s.Waiters = append(s.Waiters, waiter)
	}
	return s
}

// share returns what a weight means to a user.
func (l *lock) share(weight int) (permits int, writer bool) {
	if l.kind == rwMutex {
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
