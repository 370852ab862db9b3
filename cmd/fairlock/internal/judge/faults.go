package judge

import "slices"

// overlaps counts the holdings that began while too much was held for them. One that begins at the very moment at which
// another ends is none.
func (h history) overlaps() int {
	count := 0
	for _, a := range h.grants {
		if a.used > h.capacity {
			count++
		}
	}
	return count
}

// regressions counts the grants whose fence is not above that of every grant that was certainly made before: it had
// returned when this one was asked for, or the two exclude each other. Others may return in any order.
func (h history) regressions() int {
	count, last := 0, uint64(0)
	returned := map[int]int64{} // weight -> when the first one returned, of those whose fences are not below
	for _, a := range slices.Backward(h.grants) {
		early := a.fence == last
		for weight, at := range returned {
			early = early || at < a.asked || at < a.granted && weight+a.weight > h.capacity
		}
		if early {
			count++
		}
		last = a.fence
		if at, any := returned[a.weight]; !any || a.granted < at {
			returned[a.weight] = a.granted
		}
	}
	return count
}

// violations counts the waiters that were overtaken. One that died, or that left before, cannot be.
func (h history) violations() int {
	return overtaken(h.grants) + h.starved()
}

// overtaken counts the grants, given by fence, before which somebody was served who came later.
func overtaken(grants []*acquisition) int {
	count := 0
	var place uint64 // the highest so far
	var asked int64  // the latest so far
	for i, a := range grants {
		suspect := a.place() < place || a.queued < asked // spares comparing every pair
		if suspect && slices.ContainsFunc(grants[:i], a.overtakenBy) {
			count++
		}
		place, asked = max(place, a.place()), max(asked, a.asked)
	}
	return count
}

// starved counts those who were never served although somebody was, meanwhile, who came later. Beside that one they may
// have been granted what they wait for and not know it yet; not any more once there was no room for that.
func (h history) starved() int {
	count := 0
	for _, a := range h.gaveUp {
		passed := int64(never) // when it was for the first time
		for _, g := range h.grants {
			if g.granted < passed && a.overtakenBy(g) {
				passed = g.granted
			}
		}
		if slices.ContainsFunc(h.grants, func(g *acquisition) bool {
			return passed <= g.granted && g.granted < a.left && g.used+a.weight > h.capacity
		}) {
			count++
		}
	}
	return count
}

// overtakenBy reports whether g, which was served before a, should not have been: a was known to be in the queue when
// g was served, with a smaller ticket; or it was there before g asked, then tickets do not matter. Who was served and
// never heard of a ticket may have had one all the same, if the answer to its first request was lost.
func (a *acquisition) overtakenBy(g *acquisition) bool {
	return g.queued != never && a.queued < g.granted && a.ticket < g.ticket || a.queued < g.asked
}
