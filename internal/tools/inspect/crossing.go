package inspect

import (
	"cmp"
	"context"
	"slices"

	"github.com/fairlock/fairlock-go/admin"
)

// Crossing is a lock that is waited for by a client that holds another one, and held by a client that waits for that.
// If one task of each client does both, they wait for each other.
type Crossing struct {
	ID
	Holder string // the client that holds the other lock, and waits for this one
	Other  string // the client that holds this lock, and waits for the other one
}

// Crossing finds, among locks that list their waiters, the first one that crosses this lock; false: none does. Of
// several holders of a semaphore, another one may go on, so nothing is said of them.
func (l Lock) Crossing(others []Lock) (Crossing, bool) {
	for _, m := range others {
		for _, h := range l.blocking() {
			for _, g := range m.blocking() {
				if m.ID != l.ID && l.waitsWhileHolding(g) && m.waitsWhileHolding(h) && g.Token.Client() != h.Token.Client() {
					return Crossing{m.ID, h.Token.Client(), g.Token.Client()}, true
				}
			}
		}
	}
	return Crossing{}, false
}

// crossed reports for each lock whether another one crosses it. It sees the waiters that are listed.
func crossed(all []Lock) []bool {
	held := map[string][]Lock{} // by the client
	for _, l := range all {
		for _, h := range l.blocking() {
			held[h.Token.Client()] = append(held[h.Token.Client()], l)
		}
	}
	crosses := make([]bool, len(all))
	for i, l := range all {
		for _, w := range l.Living() {
			_, found := l.Crossing(held[w.Token.Client()])
			crosses[i] = crosses[i] || found
		}
	}
	return crosses
}

// SortByTrouble sorts locks: first unreadable ones, then those with missed renewals, then those that may be in a
// deadlock (Crossing), then by the oldest wait.
func SortByTrouble(all []Lock) {
	type rated struct {
		Lock
		trouble int
	}
	crosses, sorted := crossed(all), make([]rated, len(all))
	for i, l := range all {
		sorted[i].Lock = l
		switch late, _ := l.Late(); {
		case l.Err != nil:
			sorted[i].trouble = 3
		case late > 0:
			sorted[i].trouble = 2
		case crosses[i]:
			sorted[i].trouble = 1
		}
	}
	used := func(l Lock) int { return map[bool]int{true: 1}[l.InUse()] }
	slices.SortStableFunc(sorted, func(a, b rated) int {
		return cmp.Or(b.trouble-a.trouble, ByWait(a.Lock, b.Lock), used(b.Lock)-used(a.Lock))
	})
	for i, r := range sorted {
		all[i] = r.Lock
	}
}

// MayCross are those of the locks that are worth reading with their waiters for that. Their lists may have none.
func (l Lock) MayCross(others []Lock) (ids []ID) {
	for _, m := range others {
		if m.ID != l.ID && m.Waiting > 0 && l.Held() && slices.ContainsFunc(m.blocking(), l.waitsWhileHolding) {
			ids = append(ids, m.ID)
		}
	}
	return ids[:min(crossings, len(ids))]
}

// crossings is how many locks are read for one at most.
const crossings = 8

// blocking are the holders that every waiter waits for.
func (l Lock) blocking() []admin.Holder {
	if HasPermits(l.Kind) && (len(l.Holders) > 1 || l.Unlisted() > 0) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(l.Holders), func(h admin.Holder) bool { return h.Released || h.Fence == 0 })
}

// waitsWhileHolding reports whether the client of a holder of another lock waits for this one, and began after it was
// granted the other one.
func (l Lock) waitsWhileHolding(h admin.Holder) bool {
	return slices.ContainsFunc(l.Living(), func(w admin.Waiter) bool {
		return !w.Candidate && w.Ticket > h.Fence && w.Token.Client() == h.Token.Client()
	})
}

// Crossing searches for a lock that crosses this one, which lists its waiters. It takes no longer than guessing.
func (s *Server) Crossing(ctx context.Context, l Lock) (Crossing, bool) {
	if !l.Held() || l.Waiting == 0 {
		return Crossing{}, false
	}
	searched, cancel := context.WithTimeout(ctx, guessing) //nolint:forbidigo // the command has no other clock
	defer cancel()
	found, _ := s.Find(searched, Want{}) // what was found tells enough, or nothing
	ids := l.MayCross(found)
	if len(ids) == 0 {
		return Crossing{}, false
	}
	// both at one moment: what was read before may be over
	read, _ := s.Read(ctx, Most, append(ids, l.ID)...)
	i := slices.IndexFunc(read, func(m Lock) bool { return m.ID == l.ID })
	if i < 0 {
		return Crossing{}, false
	}
	return read[i].Crossing(read)
}
