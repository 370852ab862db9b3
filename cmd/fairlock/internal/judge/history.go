package judge

import (
	"cmp"
	"math"
	"slices"
)

// never is the time of what has not happened.
const never = math.MaxInt64

// acquisition is one call of Lock and what became of it. Times are ns, and never for what did not happen.
type acquisition struct {
	client    string
	asked     int64
	queued    int64
	granted   int64
	unlocking int64
	end       int64 // of the holding: Unlock called, lease lost or client killed, whichever came first
	left      int64
	ticket    uint64
	fence     uint64
	weight    int
	died      bool // while it waited or held

	used   int          // weights of all who held when its holding began, its own included
	beside int          // how many they were
	due    int64        // when it was its turn, and there was room for it
	giver  *acquisition // whose end made that room; nil if there always was some
}

// place is where in the order it belongs: its ticket, or its fence if it never queued. Both count µs of one clock.
func (a *acquisition) place() uint64 {
	if a.queued == never {
		return a.fence
	}
	return a.ticket
}

// history is the events, ordered by acquisition.
type history struct {
	capacity int
	grants   []*acquisition   // by fence
	gaveUp   []*acquisition   // waiters that left or still wait
	dead     []*acquisition   // waiters that died in the queue, by ticket
	killed   map[string]int64 // clients, and when
	fallen   []int64          // when holders died
	lost     int
}

// gather makes a history of events in any order.
func gather(events []Event, capacity int) history {
	h := history{capacity: capacity, killed: map[string]int64{}}
	byID := map[string]*acquisition{}
	for _, e := range events {
		h.note(e, byID)
	}
	for _, a := range byID {
		h.file(a)
	}
	slices.SortFunc(h.grants, func(a, b *acquisition) int { return cmp.Compare(a.fence, b.fence) })
	slices.SortFunc(h.dead, func(a, b *acquisition) int { return cmp.Compare(a.ticket, b.ticket) })
	h.weigh()
	h.queue()
	return h
}

// note adds one event to what is known.
func (h *history) note(e Event, byID map[string]*acquisition) {
	if e.Kind == Killed {
		h.killed[e.Client] = e.At
		return
	}
	a := byID[e.ID]
	if a == nil {
		a = &acquisition{client: e.Client, weight: 1, queued: never, granted: never, unlocking: never, end: never, left: never}
		byID[e.ID] = a
	}
	a.weight = max(a.weight, e.Weight)
	switch e.Kind {
	case Queued:
		if e.At < a.queued {
			a.queued, a.ticket = e.At, e.Ticket
		}
	case Granted:
		a.granted, a.asked, a.fence = e.At, e.Asked, e.Fence
	case Left:
		a.left = e.At
	case Unlocking:
		a.unlocking = e.At
		a.end = min(a.end, e.At)
	case Lost:
		h.lost++
		a.end = min(a.end, e.At)
	}
}

// file puts an acquisition where it belongs, once all its events are known.
func (h *history) file(a *acquisition) {
	killed, dies := h.killed[a.client]
	switch {
	case a.granted != never:
		a.died = dies && killed < a.end
		if a.died {
			a.end = killed
			h.fallen = append(h.fallen, killed)
		}
		h.grants = append(h.grants, a)
	case a.queued == never:
	case dies && killed < a.left:
		a.died = true
		h.dead = append(h.dead, a)
	default:
		h.gaveUp = append(h.gaveUp, a)
	}
}
