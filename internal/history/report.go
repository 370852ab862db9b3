package history

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Rule names what is checked. The functions that check it say what exactly.
type Rule string

// The rules.
const (
	Form      Rule = "form"      // the record of an acquisition has a possible form
	Alive     Rule = "alive"     // a killed or paused process records nothing
	Exclusion Rule = "exclusion" // the weights of leases that are trusted at the same time never exceed the capacity
	Use       Rule = "use"       // a lock is used only while its lease is trusted
	Fences    Rule = "fences"    // they are distinct, and rise in the order of the grants
	Tickets   Rule = "tickets"   // they are unique, kept for life, and rise in the order of arrival
	Order     Rule = "order"     // no grant passes an earlier waiter that still waits
	Results   Rule = "results"   // a live lease is not reported lost, and no lock of another owner is reported released
	Server    Rule = "server"    // Redis grants to the head of the queue, within the capacity, and drops only the expired
	Linear    Rule = "linear"    // all operations have one order that a lock allows
	Empty     Rule = "empty"     // something was granted
)

// Violation is one break of one rule.
type Violation struct {
	Rule   Rule
	Lock   string
	Text   string
	Events []Event // those concerned
}

// Report is the result of a check.
type Report struct {
	Grants     int
	Violations []Violation
	Excused    map[string]int // what was not held to a rule, "<rule>: <why>"

	events map[Op]int
	start  int64 // of the run
}

// mostShown is how many violations of one rule Err shows.
const mostShown = 20

func newReport(events []Event) *Report {
	r := &Report{Excused: map[string]int{}, events: map[Op]int{}}
	if len(events) > 0 {
		r.start = events[0].At
	}
	for i := range events {
		r.events[events[i].Op]++
	}
	return r
}

// Violate adds a violation. Events may be nil.
func (r *Report) Violate(rule Rule, lock string, events []*Event, format string, args ...any) {
	v := Violation{Rule: rule, Lock: lock, Text: fmt.Sprintf(format, args...)}
	for _, e := range events {
		if e != nil {
			v.Events = append(v.Events, *e)
		}
	}
	r.Violations = append(r.Violations, v)
}

func (r *Report) excuse(rule Rule, why string) { r.Excused[string(rule)+": "+why]++ }

// Err returns nil if no rule was broken, otherwise the first violations of each with the events concerned.
func (r *Report) Err() error {
	var all []error
	shown := map[Rule]int{}
	for _, v := range r.Violations {
		if shown[v.Rule]++; shown[v.Rule] > mostShown {
			continue
		}
		lines := []string{fmt.Sprintf("%s: lock %q: %s", v.Rule, v.Lock, v.Text)}
		for i := range v.Events {
			lines = append(lines, "    "+r.line(&v.Events[i]))
		}
		all = append(all, errors.New(strings.Join(lines, "\n")))
	}
	for _, rule := range slices.Sorted(maps.Keys(shown)) {
		if more := shown[rule] - mostShown; more > 0 {
			all = append(all, fmt.Errorf("%s: %d more", rule, more))
		}
	}
	return errors.Join(all...)
}

// String returns the counts.
func (r *Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d grants; events:", r.Grants)
	for _, op := range slices.Sorted(maps.Keys(r.events)) {
		fmt.Fprintf(&text, " %d %s", r.events[op], op)
	}
	for _, why := range slices.Sorted(maps.Keys(r.Excused)) {
		fmt.Fprintf(&text, "\n%d not checked: %s", r.Excused[why], why)
	}
	return text.String()
}

// Time shows a time as seconds since the start of the run.
func (r *Report) Time(t int64) string {
	if t == never {
		return "the end"
	}
	return fmt.Sprintf("%.6fs", float64(t-r.start)/1e9)
}

// line shows an event.
func (r *Report) line(e *Event) string {
	text := fmt.Sprintf("%12s  client %d worker %d call %d  %-9s  %s", r.Time(e.At), e.Process, e.Worker, e.Call, e.Op, e.Lock)
	field := func(there bool, name string, value any) {
		if there {
			text += fmt.Sprintf("  %s %v", name, value)
		}
	}
	field(e.Weight > 1, "weight", e.Weight)
	field(e.Ticket != 0, "ticket", e.Ticket)
	field(e.Fence != 0, "fence", e.Fence)
	field(e.Until != 0, "until", r.Time(e.Until))
	field(e.Token != "", "token", e.Token)
	field(e.Err != "", "error", e.Err)
	return text
}

// Story writes a history for people: one line per event, and per thing done to the run, by time; then what was seen in
// the server, in its order.
func Story(w io.Writer, events []Event, run Run) error {
	events = sorted(events)
	r := newReport(events)
	type line struct {
		at   int64
		text string
	}
	var lines []line
	add := func(what string, spans []Span) {
		for _, s := range spans {
			who := fmt.Sprintf("client %d", s.Process)
			if s.Process == All {
				who = "every client"
			}
			lines = append(lines, line{s.From, fmt.Sprintf("%12s  %s %s until %s", r.Time(s.From), who, what, r.Time(s.To))})
		}
	}
	add("is killed", run.Kills)
	add("is paused", run.Pauses)
	add("cannot reach Redis", run.Unreachable)
	for _, l := range run.Losses {
		text := fmt.Sprintf("%12s  data lost until %s  %s", r.Time(l.From), r.Time(l.To), l.Lock)
		lines = append(lines, line{l.From, strings.TrimRight(text, " ")})
	}
	for i := range events {
		lines = append(lines, line{events[i].At, r.line(&events[i])})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	for _, s := range run.Server {
		text := fmt.Sprintf("server %d µs  %-7s  %s  %s", s.At, s.Op, s.Lock, s.Token)
		if s.Ticket != 0 || s.Until != 0 {
			text += fmt.Sprintf("  ticket %d  until %d", s.Ticket, s.Until)
		}
		lines = append(lines, line{never, text})
	}
	out := bufio.NewWriter(w)
	for _, l := range lines {
		_, _ = fmt.Fprintln(out, l.text) // Flush returns the error
	}
	return out.Flush()
}
