package admin

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/hold"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// State describes a lock at one moment.
type State struct {
	ID      fairlock.ID
	At      time.Time // the time of Redis's clock
	Holders []Holder  // the first 1,000 of them, ordered by the end of their leases
	Used    int       // permits that are held; of a read-write lock its readers, or 1 for a writer
	// of a semaphore the number set by Resize, else that of the first waiter, else that of the latest grant; 1 for a mutex
	Permits int
	Resized bool   // Permits was set by Resize
	Others  []int  // other numbers that holders and waiters have brought, in ascending order; empty after Resize
	Fence   uint64 // the highest fence so far; 0 if it has been forgotten
	Waiting int    // number of waiters that have not expired
	Expired int    // number of waiters that have expired; the next requests for the lock drop them
	// the first 1,000 of both, in order; of a keyed semaphore in the order in which they came, whatever their keys
	Waiters []Waiter

	// Candidates is how many of Waiting campaign in an election, see package leader: they wait for as long as the leader
	// lives.
	Candidates int

	// OldestWait is how long the first live waiter has waited, candidates excepted. It is 0 if there is none. It is
	// negative if it is unknown, because 1,000 others are before it in the queue.
	OldestWait time.Duration

	// Keys has the first 1,000 keys of a keyed semaphore that have waiters, in the order of their turns. Those at their
	// limits come last.
	Keys []KeyState
}

// KeyState is a key of a keyed semaphore that has waiters. Limit and Share are those of its first waiter.
type KeyState struct {
	Key     string
	Held    int           // number of permits that the key holds
	Waiting int           // number of its waiters that have not expired
	Limit   int           // set by WithKeyLimit; 0: none
	Share   int           // set by WithShare
	Age     time.Duration // time since the first waiter was queued
	AtLimit bool          // the first waiter waits for holders of its own key
	Others  []int         // other limits that holders and waiters of the key have brought, in ascending order; 0: none
}

// Holder holds a lock.
type Holder struct {
	Client   string      // the Name of the holder's client; if another program has written the key, its whole content
	Token    token.Token // zero if another program has written the key
	Key      string      // of a keyed semaphore
	Fence    uint64
	Age      time.Duration // time since the grant; 0 if the server's clock has stepped back since
	TTL      time.Duration // until the lease ends; negative if another program has removed the key's expiry
	Weight   int           // number of permits; 1 except for semaphores
	Writer   bool          // it holds an RWMutex for writing
	Leader   bool          // it leads an election, see package leader
	Released bool          // it has released the lock, which stays taken for TTL, until the minimum hold is over

	// Renewed is the time since the lease was renewed or granted. A live holder renews after about a third of Token.TTL,
	// and half a second after a handoff, when TTL + Renewed is less than Token.TTL. Missed is how many renewals should
	// have followed. Renewed is negative if it is not known, as after a release, or with a minimum hold above TTL.
	Renewed time.Duration
	Missed  int
}

// Waiter waits for a lock in its queue.
type Waiter struct {
	Client string
	Token  token.Token
	Key    string        // of a keyed semaphore
	Ticket uint64        // µs of Redis's clock, strictly increasing over the waiters of a lock
	Age    time.Duration // time since it was queued
	TTL    time.Duration // until it expires without a heartbeat; negative if it has expired, and will be dropped
	Weight int           // number of permits; 1 except for semaphores
	Writer bool          // it waits to hold an RWMutex for writing

	Candidate bool // it campaigns in an election, see package leader
}

// readState reads a lock, and lists at most the given numbers of holders and waiters. If these do not suffice to count
// the candidates and to find the oldest wait, it reads the lock again, with the most waiters that Redis lists.
func readState(ctx context.Context, l script.Lock, id fairlock.ID, holders, waiters int) (State, error) {
	snap, err := l.Inspect(ctx, holders, waiters)
	if err != nil {
		return State{}, err
	}
	s := stateOf(id, snap)
	if s.complete() || waiters >= bounds.MaxInspected {
		return s, nil
	}
	if snap, err = l.Inspect(ctx, holders, bounds.MaxInspected); err != nil {
		return State{}, err
	}
	s = stateOf(id, snap)
	s.Waiters = s.Waiters[:min(waiters, len(s.Waiters))]
	s.Keys = s.Keys[:min(waiters, len(s.Keys))]
	return s, nil
}

// complete reports whether the listed waiters suffice to count the candidates and to find the oldest wait. In an
// election all waiters are candidates, and other locks have none.
func (s State) complete() bool {
	all := s.Waiting == 0 || len(s.Waiters) == s.Waiting+s.Expired
	election := len(s.Holders) > 0 && s.Holders[0].Leader || s.Candidates > 0
	keyed := len(s.Keys) > 0 && s.Expired > 0
	return all || s.OldestWait >= 0 && !election && !keyed
}

func stateOf(id fairlock.ID, snap script.Snapshot) State {
	alive := min(snap.Alive, snap.Waiting)
	s := State{ID: id, At: snap.Now, Fence: snap.Fence, Used: snap.Used, Waiting: alive, Expired: snap.Waiting - alive}
	for _, h := range snap.Holders {
		holder := Holder{Fence: h.Fence, Age: age(h.Fence, snap.Now), TTL: h.Left}
		holder.Token, holder.Client = parse(h.Token)
		holder.Key = holder.Token.Terms().Key
		holder.Weight, holder.Writer = meaning(id, holder.Token)
		flags := holder.Token.Terms().Flags
		holder.Released, holder.Leader = flags&tokens.Released != 0, flags&tokens.Leader != 0
		holder.Renewed, holder.Missed = renewals(holder)
		s.Holders = append(s.Holders, holder)
	}
	if id.Kind == fairlock.KindRWMutex && s.Used == tokens.WriterWeight {
		s.Used = 1
	}
	for _, w := range snap.Waiters {
		ticket := uint64(w.Ticket)
		waiter := Waiter{Ticket: ticket, Age: age(ticket, snap.Now), TTL: w.Expires.Sub(snap.Now)}
		waiter.Token, waiter.Client = parse(w.Token)
		waiter.Key = waiter.Token.Terms().Key
		waiter.Weight, waiter.Writer = meaning(id, waiter.Token)
		waiter.Candidate = waiter.Token.Terms().Flags&tokens.Leader != 0
		s.Waiters = append(s.Waiters, waiter)
	}
	s.Candidates, s.OldestWait = waits(s)
	s.Keys = keys(s, snap)
	if s.Permits = 1; id.Kind != fairlock.KindMutex {
		s.Permits, s.Others = permits(s, snap.Resized)
		s.Resized = snap.Resized > 0
	}
	if id.Kind == fairlock.KindRWMutex {
		s.Permits = 0
	}
	return s
}

// waits returns the number of listed candidates, and how long the first live waiter has waited, candidates excepted. If
// that waiter is not listed, oldest is negative.
func waits(s State) (candidates int, oldest time.Duration) {
	alive := 0
	oldest = -1
	for _, w := range s.Waiters {
		switch {
		case w.TTL <= 0:
			continue
		case w.Candidate:
			candidates++
		case oldest < 0:
			oldest = w.Age
		}
		alive++
	}
	if oldest < 0 && alive >= s.Waiting {
		oldest = 0
	}
	return candidates, oldest
}

// keys returns the keys of a snapshot that have waiters. If all waiters are listed, expired ones are not counted.
func keys(s State, snap script.Snapshot) (all []KeyState) {
	limits := keyLimits(s)
	alive := map[string][]Waiter{}
	for _, w := range s.Waiters {
		if w.TTL > 0 {
			alive[w.Key] = append(alive[w.Key], w)
		}
	}
	known := len(s.Waiters) == snap.Waiting
	for _, k := range snap.Keys {
		// nil if there is none
		others := append([]int(nil), slices.DeleteFunc(limits[k.Key], func(n int) bool { return n == k.Limit })...)
		key := KeyState{k.Key, k.Held, k.Waiting, k.Limit, k.Share, age(uint64(k.Ticket), snap.Now), k.AtLimit, others}
		if waiters := alive[k.Key]; known && len(waiters) > 0 {
			key.Waiting, key.Age = len(waiters), waiters[0].Age
		} else if known || s.Waiting == 0 {
			continue
		}
		all = append(all, key)
	}
	return all
}

// keyLimits returns the key limits that holders and waiters have brought, by key, each once, in ascending order.
// Holders and waiters are listed already.
func keyLimits(s State) map[string][]int {
	all := map[string][]int{}
	add := func(key string, t token.Token) {
		if key != "" {
			all[key] = append(all[key], t.Terms().KeyLimit)
		}
	}
	for _, h := range s.Holders {
		add(h.Key, h.Token)
	}
	for _, w := range s.Waiters {
		add(w.Key, w.Token)
	}
	for key, limits := range all {
		slices.Sort(limits)
		all[key] = slices.Compact(limits)
	}
	return all
}

// permits returns the number of permits that counts next, and the others that holders and waiters have brought. Holders
// and waiters are listed already. Holders are listed by the ends of their leases, whose order changes with each
// renewal.
func permits(s State, resized int) (next int, others []int) {
	if resized > 0 {
		return resized, nil
	}
	var brought []int
	for _, w := range s.Waiters {
		if n := w.Token.Terms().Permits; n > 0 && w.TTL > 0 { // else it has expired, or is no token of ours
			brought = append(brought, n)
		}
	}
	latest := func(a, b Holder) int { // of two that hold, the later grant; of others, the later release
		if a.Released != b.Released {
			return map[bool]int{true: 1, false: -1}[a.Released]
		}
		return cmp.Compare(b.Fence, a.Fence)
	}
	for _, h := range slices.SortedStableFunc(slices.Values(s.Holders), latest) {
		if n := h.Token.Terms().Permits; n > 0 {
			brought = append(brought, n)
		}
	}
	if len(brought) == 0 {
		return 0, nil
	}
	next = brought[0]
	slices.Sort(brought)
	return next, slices.DeleteFunc(slices.Compact(brought), func(n int) bool { return n == next })
}

// age returns how long ago a ticket or a fence was assigned. It is 0 for number 0, and for a number ahead of the clock.
// Such a number exists if others were assigned in the same microsecond.
func age(number uint64, now time.Time) time.Duration {
	if number == 0 {
		return 0
	}
	return max(now.Sub(time.UnixMicro(int64(number))), 0)
}

// renewals returns how long ago a lease was renewed, and how many renewals should have followed. Each is due after a
// third of the time that the lease had left. After a handoff, the first is due within hold.MaxFirst. A renewal counts
// as missed once it is late by a thirtieth of that time.
func renewals(h Holder) (ago time.Duration, missed int) {
	ttl := h.Token.TTL()
	if h.Token.IsZero() || h.TTL < 0 || h.TTL > ttl ||
		h.Token.Terms().Flags&(tokens.MinHold|tokens.Released) != 0 {
		return -1, 0
	}
	ago = ttl - h.TTL
	handoff := h.Fence > 0 && h.Age < ago-ttl/30 // for less than its TTL; the two are not read at the same moment
	if handoff {
		ago = h.Age
	}
	lasted := h.TTL + ago
	first := lasted / 3
	if handoff {
		first = min(first, hold.MaxFirst)
	}
	left, then := h.TTL+lasted/30, lasted-first
	if left >= then {
		return ago, 0
	}
	return ago, 1 + int(math.Log(float64(left)/float64(then))/math.Log(2.0/3))
}

// meaning returns the number of permits that a user sees for a token, and whether it is a writer's. The number is 1 for
// a token of another program.
func meaning(id fairlock.ID, t token.Token) (permits int, writer bool) {
	if id.Kind == fairlock.KindRWMutex {
		return 1, t.Weight() == tokens.WriterWeight
	}
	return max(t.Weight(), 1), false
}

// parse returns the token in text and its client's Name. If text is not a token of this library, it returns text itself
// as the name.
func parse(text string) (token.Token, string) {
	t, err := token.Parse(text)
	if err != nil {
		return token.Token{}, text
	}
	return t, t.Client()
}
