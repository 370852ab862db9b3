package history

// fences: no two grants of a lock have the same fence, and a grant has a higher one than every earlier grant.
//
// Of two grants one was provably later than the other if it was still believed in, or only asked for, when the other
// one had been granted at the latest: while the one is held the other cannot be granted, unless Redis has lost its
// data. The rule itself holds whatever Redis has lost, for fences start from its time.
func (c *checker) fences(l *one) {
	var last *acquisition // of those with a lower fence, the one that was provably granted last
	since := func(a *acquisition) int64 {
		if _, ok := c.lost(l.name, a.ask.At, a.granted.At); !ok && a.believed() {
			return a.granted.At
		}
		return a.ask.At
	}
	for i, b := range l.grants {
		c.judge(Fences, 1)
		if i > 0 && l.grants[i-1].granted.Fence == b.granted.Fence {
			a := l.grants[i-1]
			c.violate(Fences, l.name, []*Event{a.granted, b.granted},
				"fence %d was given to %v and to %v", b.granted.Fence, a, b)
		}
		if last != nil && last.granted.Fence != b.granted.Fence && since(last) > b.latest() {
			c.violate(Fences, l.name, []*Event{last.granted, b.granted},
				"%v was granted it after %v, which was at %s at the latest, and has a lower fence",
				last, b, c.at(b.latest()))
		}
		if last == nil || since(b) > since(last) {
			last = b
		}
	}
}
