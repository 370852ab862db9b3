package history

import (
	"cmp"
	"slices"
	"time"
)

// stall is for how long a goroutine of a living process may stand still, between two lines of code or on its way out of
// Lock: ten times what Lock may take to return once its ctx has ended.
const stall = int64(time.Second)

type checker struct {
	Run
	*Report
	kills  map[int]Span
	spans  map[int][]Span    // process → its stops and silences
	paused map[int][]Span    // process → what pauses returns
	locks  map[string]*one   // by name
	stood  map[string]uint64 // token → the ticket with which the witness saw it granted its lock
	drawn  int               // pictures
}

// one is what is known of one lock.
type one struct {
	name   string
	all    []*acquisition // in the order in which they asked
	grants []*acquisition // by fence
}

// Check judges the history of a run. Each lock is judged alone. The events need not be sorted; Read sorts them.
func Check(events []Event, run Run) *Report {
	if !slices.IsSortedFunc(events, byTime) {
		events = slices.Clone(events)
		slices.SortStableFunc(events, byTime)
	}
	c := newChecker(events, run)
	c.alive(events)
	for _, l := range c.sort(c.gather(events)) {
		c.exclusion(l)
		c.use(l)
		c.fences(l)
		c.tickets(l)
		c.order(l)
		c.verdicts(l)
	}
	c.linear()
	c.server()
	if c.Grants == 0 {
		c.violate(Nothing, "", nil, "no lock was granted to anybody")
	}
	return c.Report
}

func newChecker(events []Event, run Run) *checker {
	c := &checker{
		Run:   run.withDefaults(),
		kills: map[int]Span{}, spans: map[int][]Span{}, paused: map[int][]Span{}, locks: map[string]*one{}, stood: stood(run.Witness),
		Report: &Report{
			Events: map[Op]int{}, Judged: map[Rule]int{}, Exempted: map[Rule]map[string]int{}, Broken: map[Rule]int{},
			Kills: len(run.Kills), Stops: len(run.Stops), Silences: len(run.Silences), Losses: len(run.Losses),
		},
	}
	if len(events) > 0 {
		c.start = events[0].At
	}
	for _, s := range run.Kills {
		c.kills[s.Process] = s
	}
	for _, s := range slices.Concat(run.Stops, run.Silences) {
		c.spans[s.Process] = append(c.spans[s.Process], s)
	}
	for i := range events {
		c.Events[events[i].Op]++
	}
	return c
}

// sort sorts acquisitions by lock, and counts them.
func (c *checker) sort(all []*acquisition) []*one {
	var list []*one
	for _, a := range all {
		l := c.locks[a.lock]
		if l == nil {
			l = &one{name: a.lock}
			c.locks[a.lock] = l
			list = append(list, l)
		}
		l.all = append(l.all, a)
		switch {
		case a.granted == nil:
			c.Unknown++
			continue
		case a.ticket != 0:
			c.Handed++
		}
		c.Grants++
		l.grants = append(l.grants, a)
		if n := len(a.tries); n > 0 && (a.tries[n-1].answer == nil || a.tries[n-1].answer.Op == Unknown) {
			c.Unknown++
		}
	}
	for _, l := range list {
		slices.SortStableFunc(l.grants, func(a, b *acquisition) int { return cmp.Compare(a.granted.Fence, b.granted.Fence) })
		for i, a := range l.grants {
			a.number = i + 1
		}
	}
	c.Locks = len(list)
	return list
}

// alive: nothing is written by a process after it was seen to be dead, nor while it was seen to stand still. What
// breaks this is the run, or its clock, and then nothing else here means anything.
func (c *checker) alive(events []Event) {
	stops := map[int][]Span{}
	for _, s := range c.Run.Stops {
		stops[s.Process] = append(stops[s.Process], s)
	}
	for i := range events {
		e := &events[i]
		if kill, ok := c.kills[e.Process]; ok && e.At > kill.To {
			c.violate(Alive, e.Lock, []*Event{e},
				"process %d wrote %q at %s and was dead since %s", e.Process, e.Op, c.at(e.At), c.at(kill.To))
		}
		for _, s := range stops[e.Process] {
			if s.From < e.At && e.At < s.To {
				c.violate(Alive, e.Lock, []*Event{e}, "process %d wrote %q at %s and stood still from %s to %s",
					e.Process, e.Op, c.at(e.At), c.at(s.From), c.at(s.To))
			}
		}
	}
	c.judge(Alive, len(events))
}
