package history

import (
	"cmp"
	"slices"
)

// linear: all operations, each at one moment of its interval, have one order that a lock allows. A grant follows on the
// one with the next lower fence, and needs room for its weight. A lease is renewed, and ends, while it is held; a renewal
// was sent at the earliest one TTL before its Until. If the grants alone have no such order, or two have the same fence,
// the fences are wrong. (If Redis's clock was stepped back, they may fall across a loss of data.)
//
// Only the order in which each operation is as early as possible has to be tried: if an operation is later, none becomes
// possible earlier. A Lock that failed may have been granted the lock for a while. It is left out: if there is an order
// with it, there is one without it.
func (c *checker) linear(l *lock) {
	now, used := int64(0), 0
	var last *acquisition
	var holders []*acquisition // by when they free it
	for _, a := range l.grants {
		if c.ClockBack && c.firstLoss(l, a.request.At, a.latest()) != nil {
			continue // its fence may be from before or after the loss
		}
		now = max(now, a.request.At)
		if last != nil && (now > a.latest() || a.granted.Fence == last.granted.Fence && a.losses == last.losses) {
			c.violate(Fences, []*Event{a.granted, last.granted}, "%v was granted it before %v, or has the same fence", a, last)
			now = min(now, a.latest())
		}
		for used+a.weight > l.most(now, a.latest()) && len(holders) > 0 {
			b := holders[0]
			if b.freed > a.latest() {
				c.violate(Linear, []*Event{b.granted, a.granted}, "%v was granted it while %v held it until %s", a, b, seconds(b.freed))
				break
			}
			now, used, holders = max(now, b.freed), used-b.weight, holders[1:]
		}
		last, a.earliest, a.freed = a, now, max(now, a.freed)
		for _, e := range a.events {
			if e.Op != Renewed || c.firstLoss(l, a.request.At, e.At) != nil { // a replica may have given it back what it had lost
				continue
			}
			from, to := max(now, e.Until-int64(cmp.Or(a.request.TTL, c.TTL))), min(e.At, a.time(Released))
			if from > to {
				c.violate(Linear, []*Event{a.granted, e, a.first[Released]}, "%v was renewed not before %s", a, seconds(from))
			}
			a.freed = max(a.freed, from)
		}
		i, _ := slices.BinarySearchFunc(holders, a, func(a, b *acquisition) int { return cmp.Compare(a.freed, b.freed) })
		used, holders = used+a.weight, slices.Insert(holders, i, a)
	}
}
