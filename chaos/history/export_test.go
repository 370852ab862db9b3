package history

import "time"

// Contradicts reports whether a history has no linear order by a reckoning of its own, without porcupine and without
// pieces: the operations of a lock can be done in one order only, and so there is none if, and only if, one of them was
// called after a later one was answered.
func Contradicts(events []Event, run Run) bool {
	run.Limit = time.Nanosecond // the search is not wanted
	c := newChecker(events, run)
	for _, l := range c.sort(c.gather(events)) {
		var called int64
		for _, p := range c.pieces(l) {
			for _, o := range p.list {
				if o.to < called {
					return true
				}
				called = max(called, o.from)
			}
		}
	}
	return false
}
