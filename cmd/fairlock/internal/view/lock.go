package view

import (
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Lock is what there is to see of a lock at one moment.
type Lock struct {
	ID
	At      time.Time     // by Redis's clock
	Used    int           // permits held: of a mutex 0 or 1, of an rw as many as read, or 1 who writes
	Permits int           // of a semaphore in use how many there are; of a mutex 1; 0: unknown, or any number
	Fence   uint64        // of the last grant; 0 if none is known
	Resting bool          // Redis had lost its data: nobody is given the lock for so long
	Rest    time.Duration // what is left of that
	Holders []Holder      // some, those first whose leases end first
	Waiting int           // how many wait
	Waiters []Waiter      // the first of them, in order; nil: not looked at
}

// Holder is who holds a lock.
type Holder struct {
	Token  token.Token // zero: what stands in Redis is not ours
	Fence  uint64
	Since  time.Time     // by the fence, the time of the grant unless Redis's clock was stepped; zero: unknown
	Left   time.Duration // of its lease; negative: it never ends, which only a stranger causes
	Weight int           // how many permits it holds
	Writer bool          // of an rw
}

// Waiter is a place in a queue.
type Waiter struct {
	Token    token.Token
	Since    time.Time     // by its ticket, as Holder.Since
	Patience time.Duration // how long it keeps its place if it stays silent; not positive: it is dropped at its turn
	Heard    bool          // false: nothing is known of its patience
	Weight   int           // how many permits it waits for
	Writer   bool          // of an rw
}

// Alive reports whether a waiter keeps its place.
func (w Waiter) Alive() bool { return w.Patience > 0 }

// Held reports whether anybody holds the lock.
func (l Lock) Held() bool { return len(l.Holders) > 0 }

// InUse reports whether anybody holds the lock or waits, or it rests.
func (l Lock) InUse() bool { return l.Held() || l.Resting || l.Waiting > 0 }

// Free reports whether the next one who asks gets some of it.
func (l Lock) Free() bool { return !l.Held() && !l.Resting }

func lockOf(id ID, snap lua.Snapshot) Lock {
	l := Lock{
		ID: id, At: snap.Now, Used: snap.Used, Permits: snap.Capacity, Fence: snap.Fence,
		Waiting: snap.Waiting, Waiters: []Waiter{}, Resting: snap.Quarantine > 0, Rest: snap.Quarantine,
	}
	for _, h := range snap.Holders {
		holder := Holder{Fence: h.Fence, Since: moment(h.Fence, snap.Now), Left: h.Left}
		holder.Token, _ = token.Parse(h.Token)
		holder.Weight, holder.Writer = share(id.Kind, h.Weight)
		l.Holders = append(l.Holders, holder)
	}
	for _, w := range snap.Waiters {
		ticket := uint64(w.Ticket)
		waiter := Waiter{Since: moment(ticket, snap.Now), Patience: w.Expires.Sub(snap.Now), Heard: w.Expires.UnixMicro() > 0}
		waiter.Token, _ = token.Parse(w.Token)
		waiter.Weight, waiter.Writer = share(id.Kind, w.Weight)
		l.Waiters = append(l.Waiters, waiter)
	}
	if id.Kind == RW {
		l.Permits = 0
		if l.Used == lua.WriterWeight { // a writer
			l.Used = 1
		}
	}
	return l
}

// share tells what a weight means.
func share(kind Kind, weight int) (permits int, writer bool) {
	if kind == RW {
		return 1, weight == lua.WriterWeight
	}
	return weight, false
}

// moment is when a fence or a ticket was given. They are made from the time, and are above it only if that has stepped
// back.
func moment(number uint64, now time.Time) time.Time {
	if number == 0 || number > uint64(now.UnixMicro()) {
		return time.Time{}
	}
	return time.UnixMicro(int64(number))
}

// hidden is how much is held by holders that are not listed, in permits.
func (l Lock) hidden() int {
	n := l.Used
	for _, h := range l.Holders {
		n -= h.Weight
	}
	return max(n, 0)
}
