package history

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// stall is how long a goroutine of a running process may pause between two lines of code, or between the end of its ctx
// and its record. Grain is how exact deadlines are that had to be converted into times of events.
const (
	stall    = int64(time.Second)
	grain    = int64(time.Microsecond)
	dataLost = "Redis may have lost its data in between"
)

type checker struct {
	Run
	*Report
	processes map[int]*process
	locks     []*lock // in the order of their first events
	byToken   map[string]*acquisition
	lasts     map[string][]ServerEvent // by token
	missed    bool                     // something was missed in the server so far
}

// process is what was done to one process.
type process struct {
	number   int
	kill     Span
	absences []Span // when it was paused or could not reach Redis, in order; two without a heartbeat in between are one
}

// lock is what is known of one lock.
type lock struct {
	name     string
	capacity int
	sizes    []size         // where the number of permits has changed
	all      []*acquisition // in the order of their requests
	highest  *acquisition   // of those that know their ticket so far
	grants   []*acquisition // by fence; if the server's clock was stepped back, those between two losses of data
	seen     *seen          // what was seen in the server
}

// size is the number of permits that a lock has from a moment on, whatever requests say; 0: as many as each request
// says.
type size struct {
	at      int64
	permits int
}

// most is the highest number of permits at any moment of a span, for a request with that limit.
func (l *lock) most(from, to int64, permits int) int {
	n := 0
	for s := range l.sizesIn(from, to) {
		n = max(n, cmp.Or(s.permits, permits))
	}
	return n
}

// sizesIn are the sizes in a span: the first is from the beginning of the span or before.
func (l *lock) sizesIn(from, to int64) iter.Seq[size] {
	return func(yield func(size) bool) {
		now := size{}
		for _, next := range l.sizes {
			if next.at > to {
				break
			}
			if next.at >= from && !yield(now) {
				return
			}
			now = next
		}
		yield(now)
	}
}

// Check checks the history of a run against all rules. Each lock is checked alone. The events need not be sorted.
func Check(events []Event, run Run) *Report {
	events = slices.SortedStableFunc(slices.Values(events), func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	c := &checker{Run: run, Report: &Report{Excused: map[string]int{}}}
	c.processes, c.byToken, c.lasts = map[int]*process{}, map[string]*acquisition{}, map[string][]ServerEvent{}
	for _, e := range c.Server {
		if e.Op == Resizes {
			l := c.lock(e.Lock)
			l.sizes = append(l.sizes, size{e.Seen, int(e.Ticket)})
		}
	}
	c.gather(events)
	c.replay()
	for _, l := range c.locks {
		c.exclusion(l)
		for _, a := range l.grants {
			c.use(a)
			c.results(a)
		}
		c.fences(l) // it moves earliest, which order uses
		c.tickets(l)
		if c.Server == nil { // else replay has checked it
			c.order(l)
		}
	}
	if c.Grants == 0 {
		c.violate(Empty, nil, "no lock was granted to anyone")
	}
	return c.Report
}

// gather sorts events by acquisition and lock, and checks the form of each record. What has no request is left out.
//
// Alive: a killed or paused process records nothing. Else the run or its clock is wrong, and no other rule means
// anything.
func (c *checker) gather(events []Event) {
	type id struct{ process, call int }
	byID := map[id]*acquisition{}
	for i := range events {
		e := &events[i]
		a := byID[id{e.Process, e.Call}]
		if a == nil {
			a = &acquisition{process: c.process(e.Process), call: e.Call, worker: e.Worker, lock: c.lock(e.Lock),
				first: map[Op]*Event{}}
			byID[id{e.Process, e.Call}] = a
		}
		if a.process.kill.To < e.At || slices.ContainsFunc(c.Pauses, func(s Span) bool {
			return s.Process == e.Process && s.From < e.At && e.At < s.To
		}) {
			c.violate(Alive, []*Event{e}, "%v was killed or paused", a)
		}
		if wrong := a.add(e); wrong != "" {
			c.violate(Form, []*Event{e}, "%v: %q %s", a, e.Op, wrong)
		}
	}
	for _, l := range c.locks {
		for _, a := range l.all {
			if c.conclude(a); a.granted != nil {
				c.Grants++
				l.grants = append(l.grants, a)
			}
		}
		slices.SortStableFunc(l.grants, func(a, b *acquisition) int {
			return cmp.Or(cmp.Compare(a.losses, b.losses), cmp.Compare(a.granted.Fence, b.granted.Fence))
		})
	}
}

// lock returns what is known of a lock.
func (c *checker) lock(name string) *lock {
	if i := slices.IndexFunc(c.locks, func(l *lock) bool { return l.name == name }); i >= 0 {
		return c.locks[i]
	}
	l := &lock{name: name, capacity: max(1, c.Capacity[name]), seen: &seen{
		tickets: map[string]uint64{}, keys: map[string]string{}, had: map[string][]uint64{},
		brought: map[grant]int{},
	}}
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
	if i := slices.IndexFunc(c.Kills, func(s Span) bool { return s.Process == number }); i >= 0 {
		p.kill = c.Kills[i]
	}
	all := slices.Values(slices.Concat(c.Pauses, c.Unreachable))
	for _, s := range slices.SortedFunc(all, func(a, b Span) int { return cmp.Compare(a.From, b.From) }) {
		if s.Process != number && s.Process != All {
			continue
		}
		if n := len(p.absences) - 1; n >= 0 && s.From-p.absences[n].To < c.kept()/3 {
			p.absences[n].To = max(p.absences[n].To, s.To)
		} else {
			p.absences = append(p.absences, s)
		}
	}
	return p
}

// concerns reports whether everything of a lock may be lost, or one of these parts.
func (s Loss) concerns(l *lock, parts ...Part) bool {
	return (s.Lock == "" || s.Lock == l.name) && (s.Part == "" || slices.Contains(parts, s.Part))
}

// firstLoss returns the first possible loss of a lock's data, or of one of these parts, in a span of time, or nil.
func (c *checker) firstLoss(l *lock, from, to int64, parts ...Part) (first *Loss) {
	for i := range c.Losses {
		if s := &c.Losses[i]; s.concerns(l, parts...) && s.From <= to && s.To >= from &&
			(first == nil || s.From < first.From) {
			first = s
		}
	}
	return first
}

// kept is how long Redis keeps the ticket of a waiter that sends no heartbeat. One is sent each third of it.
func (c *checker) kept() int64 { return int64(min(c.WaiterTTL, c.TTL)) }
