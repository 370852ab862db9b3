package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// MaxInspected is how many holders and how many waiters a State lists; it counts all.
const MaxInspected = 1000

// State is a lock at one moment.
type State struct {
	At      time.Time // by Redis's clock
	Held    bool      // somebody holds it, or it rests
	Resting bool      // Redis had lost its data; the lock is given to nobody until an earlier holder must have noticed
	Holder  Holder    // the first of Holders; a mutex has no other. Zero unless held
	Holders []Holder  // MaxInspected of them, those first whose leases end first
	Used    int       // permits held by all of them: of a mutex 0 or 1, of an RWMutex as many as read, or 1 who writes
	Permits int       // of a semaphore in use, its number of permits; of a mutex 1; 0 for others
	Fence   uint64    // of the last grant; 0 if there was none for a day
	Waiting int       // how many wait
	Waiters []Waiter  // the first MaxInspected of them, in order
}

// Holder is who holds a lock.
type Holder struct {
	Client string      // its readable id, or the key's whole content if that is not ours
	Token  token.Token // zero if the key's content is not ours
	Fence  uint64
	TTL    time.Duration // what is left of its lease; negative if the key does not expire, which only a stranger causes
	Weight int           // how many permits it holds: one, but for semaphores
	Writer bool          // it writes, under an RWMutex
}

// Waiter is a place in the queue.
type Waiter struct {
	Client   string
	Token    token.Token
	Ticket   uint64        // µs of Redis's clock, strictly increasing over the waiters of a lock
	Age      time.Duration // since it joined
	Patience time.Duration // how long it keeps its place if it stays silent; negative: it is dropped when it is its turn
	Weight   int           // how many permits it waits for: one, but for semaphores
	Writer   bool          // it wants to write, under an RWMutex
}

func (l lock) inspect(ctx context.Context) (State, error) {
	snap, err := request(ctx, l, "inspect", func(ctx context.Context, redis lua.Lock) (lua.Snapshot, error) {
		return redis.Inspect(ctx, MaxInspected)
	})
	if err != nil {
		return State{}, err
	}
	s := State{At: snap.Now, Fence: snap.Fence, Used: snap.Used, Permits: snap.Capacity, Waiting: snap.Waiting}
	for _, h := range snap.Holders {
		s.Held, s.Resting = true, h.Token == lua.Resting
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
		if s.Used == lua.Everybody { // a writer
			s.Used = 1
		}
	}
	for _, w := range snap.Waiters {
		joined := time.UnixMicro(int64(w.Ticket))
		waiter := Waiter{Ticket: uint64(w.Ticket), Age: snap.Now.Sub(joined), Patience: w.Alive.Sub(snap.Now)}
		waiter.Token, waiter.Client = parse(w.Token)
		waiter.Weight, waiter.Writer = l.share(w.Weight)
		s.Waiters = append(s.Waiters, waiter)
	}
	return s, nil
}

// share tells what a weight means.
func (l lock) share(weight int) (int, bool) {
	if l.kind == rwMutex {
		return 1, weight == lua.Everybody
	}
	return weight, false
}

// parse reads what stands in Redis: a token and its client, or something that is not ours.
func parse(text string) (token.Token, string) {
	t, err := token.Parse(text)
	if err != nil {
		return token.Token{}, text
	}
	return t, t.Client()
}
