package history

import (
	"cmp"
	"slices"
	"time"
)

// stall is for how long a goroutine of a running process may stand still: between two lines of code, or between the end
// of its ctx and the record of it. Grain is how exact deadlines are that had to be converted into times of events.
const (
	stall = int64(time.Second)
	grain = int64(time.Microsecond)
)

type checker struct {
	*Run
	*Report
	kills  map[int]*Span  // by process
	silent map[int][]Span // by process: what silences returns
	locks  []*lock        // in the order of their first events
}

// lock is what is known of one lock.
type lock struct {
	name     string
	capacity int
	all      []*acquisition // in the order of their requests
	grants   []*acquisition // by fence
	seen     *seen          // what was seen in the server
}

// Check checks the history of a run against all rules but Linear, for which see package linear. Each lock is checked
// alone. The events need not be sorted.
func Check(events []Event, run Run) *Report {
	c := newChecker(events, run)
	c.replay()
	for _, l := range c.locks {
		c.exclusion(l)
		for _, a := range l.grants {
			c.use(a)
			c.results(a)
		}
		c.fences(l)
		c.tickets(l)
		c.order(l)
	}
	if c.Grants == 0 {
		c.Violate(Empty, "", nil, "no lock was granted to anyone")
	}
	return c.Report
}

func newChecker(events []Event, run Run) *checker {
	events = sorted(events)
	c := &checker{Run: &run, Report: newReport(events), kills: map[int]*Span{}, silent: map[int][]Span{}}
	for i := range run.Kills {
		c.kills[run.Kills[i].Process] = &run.Kills[i]
	}
	c.alive(events)
	for _, a := range c.gather(events) {
		l := c.lock(a.lock)
		l.all = append(l.all, a)
		if c.conclude(a); a.granted != nil {
			c.Grants++
			l.grants = append(l.grants, a)
		}
	}
	for _, l := range c.locks {
		slices.SortStableFunc(l.grants, func(a, b *acquisition) int { return cmp.Compare(a.granted.Fence, b.granted.Fence) })
		for i, a := range l.grants {
			a.number = i
		}
	}
	return c
}

// lock returns what is known of a lock.
func (c *checker) lock(name string) *lock {
	if i := slices.IndexFunc(c.locks, func(l *lock) bool { return l.name == name }); i >= 0 {
		return c.locks[i]
	}
	l := &lock{name: name, capacity: max(1, c.Capacity[name])}
	l.seen = &seen{tickets: map[string]uint64{}, had: map[claim]bool{}, keeps: map[string]int64{}, holders: map[string]int{}}
	c.locks = append(c.locks, l)
	return l
}

// sorted returns events by time; those of one time in the order in which they were recorded.
func sorted(events []Event) []Event {
	return slices.SortedStableFunc(slices.Values(events), func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// alive: a process records nothing after it was seen to be dead, nor while it was seen to stand still. If this is
// broken, the run or its clock is wrong, and no other rule means anything.
func (c *checker) alive(events []Event) {
	spans := slices.Clone(c.Pauses)
	for _, kill := range c.Kills {
		spans = append(spans, Span{kill.Process, kill.To, never})
	}
	for i := range events {
		for _, s := range spans {
			if e := &events[i]; s.Process == e.Process && s.From < e.At && e.At < s.To {
				c.Violate(Alive, e.Lock, []*Event{e}, "client %d was dead or paused from %s to %s", e.Process, c.Time(s.From), c.Time(s.To))
			}
		}
	}
}

// gather sorts events by acquisition, and checks the form of each record. What has no request is left out.
func (c *checker) gather(events []Event) []*acquisition {
	type id struct{ process, call int }
	byID := map[id]*acquisition{}
	var all []*acquisition
	for i := range events {
		e := &events[i]
		a := byID[id{e.Process, e.Call}]
		if a == nil {
			a = &acquisition{process: e.Process, call: e.Call, worker: e.Worker, lock: e.Lock}
			byID[id{e.Process, e.Call}] = a
			all = append(all, a)
		}
		if wrong := a.add(e); wrong != "" {
			c.Violate(Form, e.Lock, []*Event{e}, "%v: %q %s", a, e.Op, wrong)
		}
	}
	return slices.DeleteFunc(all, func(a *acquisition) bool { return a.request == nil })
}
