package judge

import (
	"cmp"
	"slices"
)

// overlaps counts the holdings that began while another had not ended. A holding that begins at the very moment at
// which another ends is none.
func overlaps(grants []*acquisition) int {
	count, end := 0, int64(0)
	for _, a := range byTime(grants) {
		if a.granted < end {
			count++
		}
		end = max(end, a.end)
	}
	return count
}

// regressions counts the grants whose fence is not above that of every grant before.
func regressions(grants []*acquisition) int {
	count, last := 0, uint64(0)
	for _, a := range byTime(grants) {
		if a.fence <= last {
			count++
		}
		last = max(last, a.fence)
	}
	return count
}

func byTime(grants []*acquisition) []*acquisition {
	return slices.SortedFunc(slices.Values(grants), func(a, b *acquisition) int { return cmp.Compare(a.granted, b.granted) })
}

// violations counts the waiters that were overtaken. One that died, or that left before, cannot be.
func (h history) violations() int {
	return overtaken(h.grants) + starved(h.grants, h.gaveUp)
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

// starved counts those who were never served although somebody was, meanwhile, who came later.
func starved(grants, gaveUp []*acquisition) int {
	count := 0
	for _, a := range gaveUp {
		if slices.ContainsFunc(grants, func(g *acquisition) bool { return g.granted < a.left && a.overtakenBy(g) }) {
			count++
		}
	}
	return count
}

// overtakenBy reports whether g, which was served before a, should not have been: a was known to be in the queue when
// g was served, with a smaller ticket; or it was there before g asked, then tickets do not matter.
func (a *acquisition) overtakenBy(g *acquisition) bool {
	return a.queued < g.granted && a.ticket < g.place() || a.queued < g.asked
}
