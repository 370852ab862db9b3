package history

import (
	"cmp"
	"slices"
	"sort"
)

const dataLost = "Redis lost its data between the two grants"

// beliefs are those that are proved, by their beginning.
func (l *one) beliefs() []*acquisition {
	list := make([]*acquisition, 0, len(l.grants))
	for _, a := range l.grants {
		if a.believed() {
			list = append(list, a)
		}
	}
	slices.SortStableFunc(list, func(a, b *acquisition) int { return cmp.Compare(a.granted.At, b.granted.At) })
	return list
}

// exclusion: no two acquisitions of a lock believe at the same time that they hold it.
//
// It is proved that a worker believes from Granted.At, which is after Lock returned, to the first of: Unlock.At, which
// is before the call; Lost.At; the kill of its process; and the last Until that it told. Until then Redis has to keep
// the lock for it, whether it was renewed in time or found out after a pause that it was. A stop ends no belief: the
// lease ends by itself. Where Redis lost its data after the first was granted and before the second was, nothing is
// promised.
func (c *checker) exclusion(l *one) {
	var open []*acquisition // beliefs that have not ended
	for _, b := range l.beliefs() {
		open = slices.DeleteFunc(open, func(a *acquisition) bool { return a.end <= b.granted.At })
		for _, a := range open {
			first, then := a, b // as they were granted
			if first.number > then.number {
				first, then = then, first
			}
			if _, ok := c.lost(l.name, first.ask.At, then.latest()); ok {
				c.exempt(Exclusion, dataLost)
				continue
			}
			c.violate(Exclusion, l.name, []*Event{a.granted, b.granted},
				"%v believed to hold it from %s to %s, and %v from %s to %s",
				a, c.at(a.granted.At), c.at(a.end), b, c.at(b.granted.At), c.at(b.end))
		}
		open = append(open, b)
		c.judge(Exclusion, 1)
	}
}

// use: a worker uses a lock within its own belief and within nobody else's.
//
// At is read before Err is asked, so a stop between the two, or between them and the line, changes nothing: at At the
// lease was not over, and its deadline, the last that it ever told, not reached. Of a process that was killed the line
// of the last renewal may be missing.
func (c *checker) use(l *one) {
	list := l.beliefs()
	ends := make([]int64, len(list)) // the last end so far
	for i, a := range list {
		ends[i] = a.end
		if i > 0 {
			ends[i] = max(ends[i], ends[i-1])
		}
	}
	for _, a := range l.grants {
		for _, e := range a.used {
			c.judge(Use, 1)
			c.ownUse(a, e)
			later := sort.Search(len(list), func(i int) bool { return list[i].granted.At >= e.At })
			for i := later - 1; i >= 0 && ends[i] > e.At; i-- {
				b := list[i]
				if b == a || b.end <= e.At {
					continue
				}
				if _, ok := c.lost(l.name, min(a.ask.At, b.ask.At), e.At); ok {
					c.exempt(Use, dataLost)
					continue
				}
				c.violate(Use, l.name, []*Event{e, b.granted}, "%v used it at %s, when %v believed to hold it, from %s to %s",
					a, c.at(e.At), b, c.at(b.granted.At), c.at(b.end))
			}
		}
	}
}

// ownUse holds a use to the belief of the one who used it.
func (c *checker) ownUse(a *acquisition, e *Event) {
	switch {
	case e.At > a.unlock():
		c.violate(Use, a.lock, []*Event{e, a.tries[0].unlock},
			"%v used it at %s, after it began to unlock it at %s", a, c.at(e.At), c.at(a.unlock()))
	case a.lost != nil && e.At > a.lost.At:
		c.violate(Use, a.lock, []*Event{e, a.lost},
			"%v used it at %s, after it had found it lost at %s", a, c.at(e.At), c.at(a.lost.At))
	case e.Until != 0 && e.At > e.Until+grain:
		c.violate(Use, a.lock, []*Event{e}, "%v used it at %s, and its deadline was %s", a, c.at(e.At), c.at(e.Until))
	case e.At > a.until+grain:
		if kill, ok := c.kills[a.process]; ok && kill.To-e.At < stall {
			c.exempt(Use, "its process was killed and may not have told its last renewal")
			return
		}
		c.violate(Use, a.lock, []*Event{e, a.granted},
			"%v used it at %s, and its belief ended at %s", a, c.at(e.At), c.at(a.until))
	}
}
