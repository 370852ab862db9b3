package history

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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

	events int
	start  int64 // of the run
}

const dataLost = "Redis may have lost its data in between"

// mostShown is how many violations of one rule Err shows.
const mostShown = 20

func newReport(events []Event) *Report {
	r := &Report{Excused: map[string]int{}, events: len(events)}
	if len(events) > 0 {
		r.start = events[0].At
	}
	return r
}

// violate adds a violation. Events that are nil are left out.
func (r *Report) violate(rule Rule, lock string, events []*Event, format string, args ...any) {
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
	found := map[Rule]int{}
	for _, v := range r.Violations {
		if found[v.Rule]++; found[v.Rule] > mostShown {
			continue
		}
		text := fmt.Sprintf("%s: lock %q: %s", v.Rule, v.Lock, v.Text)
		for i := range v.Events {
			text += "\n    " + r.line(&v.Events[i])
		}
		all = append(all, errors.New(text))
	}
	for _, rule := range slices.Sorted(maps.Keys(found)) {
		if more := found[rule] - mostShown; more > 0 {
			all = append(all, fmt.Errorf("%s: %d more", rule, more))
		}
	}
	return errors.Join(all...)
}

// String returns how much was checked, and what was not.
func (r *Report) String() string {
	text := fmt.Sprintf("%d grants, %d events", r.Grants, r.events)
	for _, why := range slices.Sorted(maps.Keys(r.Excused)) {
		text += fmt.Sprintf("\n%d not checked: %s", r.Excused[why], why)
	}
	return text
}

// time shows a time as seconds since the start of the run.
func (r *Report) time(t int64) string {
	if t == never {
		return "the end"
	}
	return fmt.Sprintf("%.6fs", float64(t-r.start)/1e9)
}

// line shows an event.
func (r *Report) line(e *Event) string {
	text := fmt.Sprintf("%12s  client %d worker %d call %d  %-9s  %s", r.time(e.At), e.Process, e.Worker, e.Call, e.Op, e.Lock)
	field := func(there bool, name string, value any) {
		if there {
			text += fmt.Sprintf("  %s %v", name, value)
		}
	}
	field(e.Weight > 1, "weight", e.Weight)
	field(e.Ticket != 0, "ticket", e.Ticket)
	field(e.Fence != 0, "fence", e.Fence)
	field(e.Until != 0, "until", r.time(e.Until))
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
	span := func(from, to int64, what string) {
		lines = append(lines, line{from, fmt.Sprintf("%12s  %s until %s", r.time(from), what, r.time(to))})
	}
	for what, spans := range map[string][]Span{"killed": run.Kills, "paused": run.Pauses, "cannot reach Redis": run.Unreachable} {
		for _, s := range spans {
			span(s.From, s.To, fmt.Sprintf("client %d (%d: all): %s", s.Process, All, what))
		}
	}
	for _, l := range run.Losses {
		span(l.From, l.To, fmt.Sprintf("data lost of %q", l.Lock))
	}
	for i := range events {
		lines = append(lines, line{events[i].At, r.line(&events[i])})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	out := bufio.NewWriter(w)
	for _, l := range lines {
		_, _ = fmt.Fprintln(out, l.text) // Flush returns the error
	}
	for _, s := range run.Server {
		_, _ = fmt.Fprintf(out, "server %d µs  %-7s  %s  %s  ticket %d  until %d\n", s.At, s.Op, s.Lock, s.Token, s.Ticket, s.Until)
	}
	return out.Flush()
}
