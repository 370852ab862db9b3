package demo

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/internal/history"
)

// Result is what came of a demo: what the checker of histories says, and how long things took.
type Result struct {
	Grants     int
	ByClient   map[string]int // grants
	ByWeight   map[int]int    // grants
	Peak       int            // the most that was held at once: weights
	Together   int            // and how many held it at once, at most
	Violations int            // of the order
	Overlaps   int            // grants that exceeded the capacity
	Fences     int            // that did not rise
	Lost       int            // leases that ended before their holders ended them, without those of crashes
	Handoff    Spread         // from the Unlock that made room for a waiter until its Lock returned
	Wait       Spread         // of Lock
	Crashes    []Crash        // in order

	err error
}

// Err returns nil if the lock kept its promises, and was granted at all.
func (r Result) Err() error { return r.err }

// Spread is how long something took.
type Spread struct {
	N        int
	P50, P99 time.Duration // nearest rank; 0 if N is 0
}

func spread(all []time.Duration) Spread {
	if len(all) == 0 {
		return Spread{}
	}
	slices.Sort(all)
	rank := func(percent int) time.Duration { return all[(len(all)*percent+99)/100-1] }
	return Spread{N: len(all), P50: rank(50), P99: rank(99)}
}

// Crash is the crash of a client and what it cost the others.
type Crash struct {
	Client  string
	At      int64         // ns
	Held    int           // the weights of what it held
	Waiters int           // how many of its waiters were in the queue
	Served  int           // grants afterwards
	Stall   time.Duration // the longest that a grant came later than the Unlock or the request that it needed
}

const never = math.MaxInt64

// turn is one acquisition. Times are ns, and never if something did not happen.
type turn struct {
	process, weight                         int
	requested, queued, granted, freed, gone int64
	fence                                   uint64
	unlocked                                bool // it was freed by Unlock
}

// turns sorts events by acquisition.
func turns(events []history.Event, kills map[int]int64) (all []*turn, lost int) {
	byCall := map[[2]int]*turn{}
	for _, e := range events {
		t := byCall[[2]int{e.Process, e.Call}]
		if t == nil {
			end := int64(never)
			if at, ok := kills[e.Process]; ok {
				end = at
			}
			t = &turn{process: e.Process, requested: e.At, queued: never, granted: never, freed: end, gone: end}
			byCall[[2]int{e.Process, e.Call}] = t
			all = append(all, t)
		}
		switch e.Op {
		case history.Request:
			t.weight = max(1, e.Weight)
		case history.Queued:
			t.queued = min(t.queued, e.At)
		case history.Granted:
			t.granted, t.fence = e.At, e.Fence
		case history.Failed:
			t.gone = e.At
		case history.Unlock:
			t.freed, t.unlocked = min(t.freed, e.At), e.At < t.freed
		case history.Lost, history.NotHeld:
			t.freed, lost = min(t.freed, e.At), lost+1
		}
	}
	return all, lost
}

// result checks a history and measures it.
func result(events []history.Event, run history.Run, kills map[int]int64, name func(process int) string) Result {
	report := history.Check(events, run)
	r := Result{Grants: report.Grants, ByClient: map[string]int{}, ByWeight: map[int]int{}, err: report.Err()}
	for _, v := range report.Violations {
		switch v.Rule {
		case history.Order, history.Tickets:
			r.Violations++
		case history.Exclusion, history.Results, history.Linear:
			r.Overlaps++
		case history.Fences:
			r.Fences++
		}
	}
	all, lost := turns(events, kills)
	r.Lost = lost
	grants := slices.DeleteFunc(slices.Clone(all), func(t *turn) bool { return t.granted == never })
	var waits []time.Duration
	for _, t := range grants {
		r.ByClient[name(t.process)]++
		r.ByWeight[t.weight]++
		waits = append(waits, time.Duration(t.granted-t.requested))
	}
	r.Wait = spread(waits)
	r.peak(grants)
	r.crashes(all, grants, run, kills, name)
	return r
}

// peak finds the most that was held at once.
func (r *Result) peak(grants []*turn) {
	slices.SortFunc(grants, func(a, b *turn) int { return cmp.Compare(a.granted, b.granted) })
	var holders []*turn
	for _, t := range grants {
		holders = append(slices.DeleteFunc(holders, func(h *turn) bool { return h.freed <= t.granted }), t)
		used := 0
		for _, h := range holders {
			used += h.weight
		}
		r.Peak, r.Together = max(r.Peak, used), max(r.Together, len(holders))
	}
}

// crashes measures each grant by when there was room for it: a handoff, or, after a crash, what the crash has cost.
func (r *Result) crashes(all, grants []*turn, run history.Run, kills map[int]int64, name func(int) string) {
	for process, at := range kills {
		c := Crash{Client: name(process), At: at}
		for _, t := range all {
			switch {
			case t.process != process:
			case t.granted == never && t.queued != never && t.gone >= at:
				c.Waiters++
			case t.granted != never && t.freed >= at:
				c.Held += t.weight
			}
		}
		r.Crashes = append(r.Crashes, c)
	}
	slices.SortFunc(r.Crashes, func(a, b Crash) int { return cmp.Compare(a.At, b.At) })
	slices.SortFunc(grants, func(a, b *turn) int { return cmp.Compare(a.fence, b.fence) })
	var handoffs []time.Duration
	var holders []*turn // granted before, by when they freed it
	used, capacity, room, giver := 0, 1, int64(0), (*turn)(nil)
	for _, c := range run.Capacity {
		capacity = c
	}
	for _, t := range grants {
		for len(holders) > 0 && (used+t.weight > capacity || holders[0].freed <= t.requested) {
			giver, room = holders[0], holders[0].freed
			holders, used = holders[1:], used-giver.weight
		}
		i, _ := slices.BinarySearchFunc(holders, t, func(a, b *turn) int { return cmp.Compare(a.freed, b.freed) })
		holders, used = slices.Insert(holders, i, t), used+t.weight
		disturbed := false
		for i := range r.Crashes {
			c := &r.Crashes[i]
			next := int64(never)
			if i+1 < len(r.Crashes) {
				next = r.Crashes[i+1].At
			}
			if t.granted <= c.At {
				continue
			}
			c.Served++
			if ready := max(c.At, t.queued, room); ready < min(t.granted, next) {
				c.Stall = max(c.Stall, time.Duration(t.granted-ready))
			}
			// What it held, or was granted while it was dead, ends by then.
			disturbed = disturbed || t.granted <= c.At+int64(run.TTL+run.WaiterTTL)
		}
		if !disturbed && giver != nil && giver.unlocked && t.queued < room && room <= t.granted {
			handoffs = append(handoffs, time.Duration(t.granted-room))
		}
	}
	r.Handoff = spread(handoffs)
}
