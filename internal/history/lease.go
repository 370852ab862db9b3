package history

import (
	"cmp"
	"slices"
)

const dataLost = "Redis may have lost its data in between"

// lostBetween reports whether Redis may have lost its data after the one and before the other of two was granted.
func (c *checker) lostBetween(a, b *acquisition) bool {
	if a.number > b.number {
		a, b = b, a
	}
	from, to := a.request.At, b.latest()
	if c.ClockBack { // fences do not say which was the first
		from, to = min(from, b.request.At), max(to, a.latest())
	}
	return c.lost(a.lock, from, to) != nil
}

// exclusion: the weights of all that hold the lock at one moment never exceed its capacity.
//
// An acquisition is known to hold the lock from Granted, which is recorded after Lock has returned, to the first of:
// Unlock, which is recorded before the call; Lost; the kill of its process; the last recorded Until. A pause changes
// nothing. If Unlock has returned nil, it held the lock until Unlock was called. Those between whose grants Redis may
// have lost its data are not added up.
func (c *checker) exclusion(l *lock) {
	var holders []*acquisition
	grants := slices.DeleteFunc(slices.Clone(l.grants), func(a *acquisition) bool { return !a.holds() })
	slices.SortStableFunc(grants, func(a, b *acquisition) int { return cmp.Compare(a.granted.At, b.granted.At) })
	for _, b := range grants {
		holders = slices.DeleteFunc(holders, func(a *acquisition) bool { return a.end <= b.granted.At })
		sum, apart, rule, events := b.weight, 0, Exclusion, []*Event{b.granted}
		for _, a := range holders {
			if c.lostBetween(a, b) {
				apart += a.weight
				continue
			}
			sum += a.weight
			events = append(events, a.granted)
			if a.until <= b.granted.At {
				rule, events = Results, append(events, a.answers[len(a.answers)-1])
			}
		}
		b.beside = sum + apart
		if sum > l.capacity {
			c.Violate(rule, l.name, events, "%d of %d are held when %v is granted it", sum, l.capacity, b)
		} else if b.beside > l.capacity {
			c.excuse(Exclusion, dataLost)
		}
		holders = append(holders, b)
	}
}

// use: a lock is used only until the last Until, before Unlock and before Lost. At of Used is read before Err is, so a
// pause between the two changes nothing.
func (c *checker) use(a *acquisition) {
	for _, e := range a.used {
		switch {
		case e.At > a.unlockedAt():
			c.Violate(Use, a.lock, []*Event{e, a.unlocks[0]}, "%v used it after it began to unlock it", a)
		case a.lost != nil && e.At > a.lost.At:
			c.Violate(Use, a.lock, []*Event{e, a.lost}, "%v used it after it had lost it", a)
		case e.At > a.until+grain:
			c.Violate(Use, a.lock, []*Event{e, a.granted}, "%v used it after its lease ended at %s", a, c.Time(a.until))
		}
	}
}

// results: a live lease is not reported lost. Redis says so (Lost or NotHeld) only after its last Until, or if its data
// may be lost. A client finds it by its own clock after every Until; but a renewal may be answered in that very moment,
// so those of the last second do not count.
func (c *checker) results(a *acquisition) {
	for _, e := range append([]*Event{a.lost}, a.answers...) {
		if e == nil || e.Op != Lost && e.Op != NotHeld || byClose(e) {
			continue
		}
		until := a.until
		if !byRedis(e) {
			until = a.trustedUntil(e.At - stall)
		}
		switch {
		case e.At >= until-grain:
		case byRedis(e) && c.lost(a.lock, a.request.At, e.At) != nil:
			c.excuse(Results, dataLost)
		default:
			c.Violate(Results, a.lock, []*Event{a.granted, e}, "%v was told that its lease is over, which lasts until %s", a, c.Time(until))
		}
	}
}
