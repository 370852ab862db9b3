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
	Held    bool          // it held the lock
	Waiters int           // how many of its waiters were in the queue
	Stall   time.Duration // how long the lock served nobody because of it; 0 if that cannot be told
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
		h.measure(&c)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Crash) int { return cmp.Compare(a.At, b.At) })
	return all
}

// measure finds whether the client held, and the longest time between two holdings that its dead lie between.
func (h history) measure(c *Crash) {
	for i, a := range h.grants {
		held := a.died && a.client == c.Client
		c.Held = c.Held || held
		if i+1 == len(h.grants) {
			break
		}
		next := h.grants[i+1]
		if held || h.buried(a, next, c.Client) {
			c.Stall = max(c.Stall, time.Duration(next.granted-max(a.end, c.At)))
		}
	}
}

// buried reports whether a waiter that died stood between two that were served; client "" means anybody's.
func (h history) buried(a, b *acquisition, client string) bool {
	i, _ := slices.BinarySearchFunc(h.dead, a.place(), func(d *acquisition, place uint64) int { return cmp.Compare(d.ticket, place) })
	for _, d := range h.dead[i:] {
		if d.ticket > b.place() {
			return false
		}
		if client == "" || d.client == client {
			return true
		}
	}
	return false
}
