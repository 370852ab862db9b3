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
	processes map[int]*process
	locks     []*lock // in the order of their first events
	missed    bool    // something was missed in the server so far
}

// process is what was done to one process.
type process struct {
	number   int
	kill     Span
	silences []Span // when it was paused or could not reach Redis, in order; two without a heartbeat in between are one
}

// lock is what is known of one lock.
type lock struct {
	name     string
	capacity int
	all      []*acquisition // in the order of their requests
	grants   []*acquisition // by fence
	seen     *seen          // what was seen in the server
}

// Check checks the history of a run against all rules. Each lock is checked alone. The events need not be sorted.
func Check(events []Event, run Run) *Report {
	events = sorted(events)
	c := &checker{Run: &run, Report: newReport(events), processes: map[int]*process{}}
	c.alive(events)
	c.gather(events)
	c.replay()
	for _, l := range c.locks {
		c.exclusion(l)
		for _, a := range l.grants {
			c.use(a)
			c.results(a)
		}
		for _, grants := range c.rising(l) {
			c.linear(l, grants)
		}
		c.tickets(l)
		c.order(l)
	}
	if c.Grants == 0 {
		c.violate(Empty, "", nil, "no lock was granted to anyone")
	}
	return c.Report
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
				c.violate(Alive, e.Lock, []*Event{e}, "client %d was dead or paused from %s to %s", e.Process, c.time(s.From), c.time(s.To))
			}
		}
	}
}

// gather sorts events by acquisition and lock, and checks the form of each record. What has no request is left out.
func (c *checker) gather(events []Event) {
	type id struct{ process, call int }
	byID := map[id]*acquisition{}
	var all []*acquisition
	for i := range events {
		e := &events[i]
		a := byID[id{e.Process, e.Call}]
		if a == nil {
			a = &acquisition{process: c.process(e.Process), call: e.Call, worker: e.Worker, lock: e.Lock, first: map[Op]*Event{}}
			byID[id{e.Process, e.Call}] = a
			all = append(all, a)
		}
		if wrong := a.add(e); wrong != "" {
			c.violate(Form, e.Lock, []*Event{e}, "%v: %q %s", a, e.Op, wrong)
		}
	}
	for _, a := range all {
		if a.first[Request] == nil {
			continue
		}
		l := c.lock(a.lock)
		l.all = append(l.all, a)
		if c.conclude(a); a.granted != nil {
			c.Grants++
			l.grants = append(l.grants, a)
		}
	}
	for _, l := range c.locks {
		slices.SortStableFunc(l.grants, func(a, b *acquisition) int { return cmp.Compare(a.granted.Fence, b.granted.Fence) })
	}
}

// lock returns what is known of a lock.
func (c *checker) lock(name string) *lock {
	if i := slices.IndexFunc(c.locks, func(l *lock) bool { return l.name == name }); i >= 0 {
		return c.locks[i]
	}
	l := &lock{name: name, capacity: max(1, c.Capacity[name]), seen: &seen{tickets: map[string][]uint64{}}}
	l.seen.forget()
	c.locks = append(c.locks, l)
	return l
}

// process returns what was done to a process.
func (c *checker) process(number int) *process {
	if p := c.processes[number]; p != nil {
		return p
	}
	p := &process{number: number, kill: Span{From: never, To: never}}
	c.processes[number] = p
	for _, kill := range c.Kills {
		if kill.Process == number {
			p.kill = kill
		}
	}
	all := slices.Concat(c.Pauses, c.Unreachable)
	slices.SortFunc(all, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range all {
		if s.Process != number && s.Process != All {
			continue
		}
		if n := len(p.silences) - 1; n >= 0 && s.From-p.silences[n].To < c.kept()/3 {
			p.silences[n].To = max(p.silences[n].To, s.To)
		} else {
			p.silences = append(p.silences, s)
		}
	}
	return p
}

// kept is for how long Redis keeps the ticket of a waiter that sends no heartbeat. One is sent each third of it.
func (c *checker) kept() int64 { return int64(min(c.WaiterTTL, c.TTL)) }
