package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// MaxInspected is how many waiters a State lists; it counts all.
const MaxInspected = 1000

// State is a lock at one moment.
type State struct {
	At      time.Time // by Redis's clock
	Held    bool      // somebody holds it, or it rests
	Resting bool      // Redis had lost its data; the lock is given to nobody until an earlier holder must have noticed
	Holder  Holder    // zero unless held
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
}

// Waiter is a place in the queue.
type Waiter struct {
	Client   string
	Token    token.Token
	Ticket   uint64        // µs of Redis's clock, strictly increasing over the waiters of a lock
	Age      time.Duration // since it joined
	Patience time.Duration // how long it keeps its place if it stays silent; negative: it is dropped when it is its turn
}

func (l lock) inspect(ctx context.Context) (State, error) {
	snap, err := request(ctx, l, "inspect", func(ctx context.Context, redis lua.Lock) (lua.Snapshot, error) {
		return redis.Inspect(ctx, MaxInspected)
	})
	if err != nil {
		return State{}, err
	}
	s := State{At: snap.Now, Fence: snap.Fence, Waiting: snap.Waiting}
	for _, h := range snap.Holders {
		s.Held, s.Resting = true, h.Token == lua.Resting
		s.Holder = Holder{Fence: h.Fence, TTL: h.Left}
		s.Holder.Token, s.Holder.Client = parse(h.Token)
	}
	for _, w := range snap.Waiters {
		joined := time.UnixMicro(int64(w.Ticket))
		waiter := Waiter{Ticket: uint64(w.Ticket), Age: snap.Now.Sub(joined), Patience: w.Alive.Sub(snap.Now)}
		waiter.Token, waiter.Client = parse(w.Token)
		s.Waiters = append(s.Waiters, waiter)
	}
	return s, nil
}

// parse reads what stands in Redis: a token and its client, or something that is not ours.
func parse(text string) (token.Token, string) {
	t, err := token.Parse(text)
	if err != nil {
		return token.Token{}, text
	}
	return t, t.Client()
}
