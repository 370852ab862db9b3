package judge

import (
	"cmp"
	"slices"
)

// weigh notes with every grant what was held when its holder began to believe in it.
func (h history) weigh() {
	var holders []*acquisition
	for _, a := range byTime(h.grants) {
		holders = slices.DeleteFunc(holders, func(b *acquisition) bool { return b.end <= a.granted })
		holders = append(holders, a)
		for _, b := range holders {
			a.used += b.weight
		}
		a.beside = len(holders)
	}
}

// queue notes with every grant when it could have been made: everybody before it had been, and enough was given back.
func (h history) queue() {
	var (
		holders []*acquisition // those served before, by the end of their holdings
		used    int            // their weights
		due     int64
		giver   *acquisition
	)
	for _, a := range h.grants {
		// Who was gone when it asked is in nobody's way any more, and must not pile up.
		for len(holders) > 0 && (used+a.weight > h.capacity || holders[0].end <= a.asked) {
			first := holders[0]
			holders, used = holders[1:], used-first.weight
			due, giver = first.end, first
		}
		a.due, a.giver = due, giver
		i, _ := slices.BinarySearchFunc(holders, a, func(b, a *acquisition) int { return cmp.Compare(b.end, a.end) })
		holders, used = slices.Insert(holders, i, a), used+a.weight
	}
}

func byTime(grants []*acquisition) []*acquisition {
	return slices.SortedFunc(slices.Values(grants), func(a, b *acquisition) int { return cmp.Compare(a.granted, b.granted) })
}
