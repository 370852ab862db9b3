package history

import (
	"cmp"
	"slices"
)

// rising returns the grants of a lock in lists by fence. If Redis's clock was stepped back, fences may fall across a loss
// of data: each loss begins a new list, and what may have been granted before or after it is in none.
func (c *checker) rising(l *lock) [][]*acquisition {
	if !c.ClockBack {
		return [][]*acquisition{l.grants}
	}
	lists := make([][]*acquisition, len(c.Losses)+1)
	for _, a := range l.grants {
		before := 0
		for _, loss := range c.Losses {
			if loss.To < a.request.At {
				before++
			}
		}
		if c.lost(l.name, a.request.At, a.latest()) == nil {
			lists[before] = append(lists[before], a)
		}
	}
	return lists
}

// linear: all operations, each at one moment of its interval, have one order that a lock allows. A grant follows on the
// one with the next lower fence, and needs room for its weight; a lease is renewed, and ends, while it is held. If the
// grants alone have no such order, or two have the same fence, their fences are wrong.
//
// Only the order in which each operation is as early as possible has to be tried: if an operation is later, none becomes
// possible earlier. A Lock that failed may have been granted the lock for a while. It is left out: if there is an order
// with it, there is one without it.
func (c *checker) linear(l *lock, grants []*acquisition) {
	now, free := int64(0), l.capacity
	var last *acquisition
	var holders []*acquisition // by when they free it
	for _, a := range grants {
		now = max(now, a.request.At)
		if last != nil && (now > a.latest() || a.granted.Fence == last.granted.Fence) {
			c.violate(Fences, l.name, []*Event{a.granted, last.granted}, "%v was granted it before %v, or has the same fence", a, last)
			now = min(now, a.latest())
		}
		for free < a.weight && len(holders) > 0 {
			b := holders[0]
			if b.freed > a.latest() {
				c.violate(Linear, l.name, []*Event{b.granted, a.granted}, "%v was granted it while %v held it until %s", a, b, c.time(b.freed))
				break
			}
			now, free, holders = max(now, b.freed), free+b.weight, holders[1:]
		}
		renewed, answered := c.renewal(a)
		if renewed = max(now, renewed); renewed > min(answered, a.time(Released)) {
			c.violate(Linear, l.name, []*Event{a.granted, a.first[Released]}, "%v was renewed not before %s, and not after %s",
				a, c.time(renewed), c.time(min(answered, a.time(Released))))
		}
		last, a.earliest, a.freed = a, now, max(renewed, a.freed)
		i, _ := slices.BinarySearchFunc(holders, a, func(a, b *acquisition) int { return cmp.Compare(a.freed, b.freed) })
		free, holders = free-a.weight, slices.Insert(holders, i, a)
	}
}

// renewal returns when the last renewal of a lease took effect: not earlier than TTL before its Until, and not later than
// it was recorded. After a loss of data it may be unknown, because a replica may have had it.
func (c *checker) renewal(a *acquisition) (from, to int64) {
	var last *Event
	for _, e := range a.events {
		if e.Op == Renewed && (last == nil || e.Until > last.Until) {
			last = e
		}
	}
	if last == nil || c.lost(a.lock, a.request.At, last.At) != nil {
		return 0, never
	}
	return last.Until - int64(c.TTL), last.At
}
