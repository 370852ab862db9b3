package history

import "sort"

// line is a queue of which anybody can leave: a Fenwick tree over places.
type line struct {
	tickets []uint64 // sorted
	there   []bool
	sums    []int // sums[i] is of the places from i-lowbit(i) up to i-1
}

func newLine(waiters []*waiter) *line {
	l := &line{tickets: make([]uint64, len(waiters)), there: make([]bool, len(waiters)), sums: make([]int, len(waiters)+1)}
	for i, w := range waiters {
		l.tickets[i], l.there[i] = w.ticket, true
		l.add(i, 1)
	}
	return l
}

func (l *line) add(place, n int) {
	for i := place + 1; i < len(l.sums); i += i & -i {
		l.sums[i] += n
	}
}

// leave takes somebody out.
func (l *line) leave(place int) {
	if l.there[place] {
		l.there[place] = false
		l.add(place, -1)
	}
}

// before counts those with a lower ticket.
func (l *line) before(ticket uint64) (n int) {
	for i := sort.Search(len(l.tickets), func(i int) bool { return l.tickets[i] >= ticket }); i > 0; i -= i & -i {
		n += l.sums[i]
	}
	return n
}

// nth is the place of the n-th who is there, from 0.
func (l *line) nth(n int) int {
	place := 0
	step := 1
	for step*2 < len(l.sums) {
		step *= 2
	}
	for ; step > 0; step /= 2 {
		if next := place + step; next < len(l.sums) && l.sums[next] <= n {
			place, n = next, n-l.sums[next]
		}
	}
	return place
}
