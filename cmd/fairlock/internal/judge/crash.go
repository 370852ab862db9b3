package judge

import (
	"cmp"
	"slices"
	"time"
)

// Crash is the death of a client and what it cost the others.
type Crash struct {
	Client  string
	At      int64         // ns
	Held    int           // the weights of what it held
	Waiters int           // how many of its waiters were in the queue
	Served  int           // grants afterwards
	Stall   time.Duration // the longest that anybody was kept waiting afterwards though nobody alive was in the way
}

// crashes returns the deaths, in order.
func (h history) crashes() []Crash {
	var all []Crash
	for client, at := range h.killed {
		c := Crash{Client: client, At: at}
		for _, a := range h.dead {
			if a.client == client {
				c.Waiters++
			}
		}
		for _, a := range h.grants {
			if a.died && a.client == client {
				c.Held += a.weight
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Crash) int { return cmp.Compare(a.At, b.At) })
	for i := range all {
		next := int64(never)
		if i+1 < len(all) {
			next = all[i+1].At
		}
		h.measure(&all[i], next)
	}
	return all
}

// measure finds what a crash has cost. What begins after the next one is that one's.
func (h history) measure(c *Crash, next int64) {
	for _, a := range h.grants {
		if a.granted <= c.At {
			continue
		}
		c.Served++
		if ready := max(c.At, a.queued, a.due); ready < min(a.granted, next) {
			c.Stall = max(c.Stall, time.Duration(a.granted-ready))
		}
	}
}
