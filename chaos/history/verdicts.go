package history

// verdicts: who holds a lock is not told that it is lost, and who does not is not told that it has released it.
//
//   - Redis says of a lease that it is over (Lost or Denied, no longer the owner) only after its last Until, for Redis
//     keeps it for longer than its holder believes, unless it lost its data.
//   - A holder finds by its own clock that its lease is over only after every Until that it told. A renewal that was
//     answered in that very moment may come too late to be believed; so what was told a moment before does not count.
//   - Released is not told if somebody else had been granted the lock, with a higher fence, before Unlock was called.
func (c *checker) verdicts(l *one) {
	next := make([]*acquisition, len(l.grants)) // of those with a higher fence, the one that was provably granted first
	var first *acquisition
	for i := len(l.grants) - 1; i >= 0; i-- {
		next[i] = first
		if a := l.grants[i]; first == nil || a.latest() < first.latest() {
			first = a
		}
	}
	for i, a := range l.grants {
		if a.lost != nil {
			c.over(a, a.lost)
		}
		for _, try := range a.tries {
			if try.answer != nil && try.answer.Op == Denied {
				c.over(a, try.answer)
			}
		}
		e, b := a.released(), next[i]
		if e == nil {
			continue
		}
		c.judge(Verdicts, 1)
		if b == nil || b.latest() >= a.unlock() {
			continue
		}
		if _, ok := c.lost(l.name, a.ask.At, b.latest()); ok {
			c.exempt(Verdicts, dataLost)
			continue
		}
		c.violate(Verdicts, l.name, []*Event{a.granted, a.tries[0].unlock, e, b.granted},
			"%v released it by an Unlock that was called at %s, and %v had been granted it by %s",
			a, c.at(a.unlock()), b, c.at(b.latest()))
	}
}

// over judges that a is told by e that its lease is over.
func (c *checker) over(a *acquisition, e *Event) {
	until, who := a.until, "Redis"
	switch {
	case byClose(e):
		return
	case !byServer(e):
		until, who = a.told(e.At-stall), "its own clock"
	}
	c.judge(Verdicts, 1)
	if e.At >= until-grain {
		return
	}
	if _, ok := c.lost(a.lock, a.ask.At, e.At); ok && byServer(e) {
		c.exempt(Verdicts, "Redis lost its data while it was held")
		return
	}
	c.violate(Verdicts, a.lock, []*Event{a.granted, e},
		"%v was told at %s by %s that its lease is over, which lasts until %s",
		a, c.at(e.At), who, c.at(until))
}
