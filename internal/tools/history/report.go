package history

import (
	"cmp"
	"errors"
	"fmt"
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
	// a lock is used only while its lease is trusted, and that no longer than Redis lets it last
	Use     Rule = "use"
	Fences  Rule = "fences"  // they are distinct, and rise in the order of the grants
	Tickets Rule = "tickets" // they are unique, kept for life, and rise in the order of arrival
	Order   Rule = "order"   // no grant passes an earlier waiter that still waits
	Results Rule = "results" // a live lease is not reported lost, and no lock of another owner is reported released
	Server  Rule = "server"  // Redis grants to the head of the queue, within the capacity, and drops only the expired
	Empty   Rule = "empty"   // something was granted
)

// Violation is one break of one rule.
type Violation struct {
	Rule Rule
	Text string // with the events concerned
}

// Report is the result of a check.
type Report struct {
	Grants     int
	Violations []Violation
	Excused    map[string]int // what was not held to a rule, "<rule>: <why>"
}

// violate adds a violation. Events that are nil are left out.
func (r *Report) violate(rule Rule, events []*Event, format string, args ...any) {
	lines := []string{fmt.Sprintf(format, args...)}
	for _, e := range events {
		if e != nil {
			lines = append(lines, line(e.At, e))
		}
	}
	r.Violations = append(r.Violations, Violation{rule, strings.Join(lines, "\n    ")})
}

func (r *Report) excuse(rule Rule, why string) { r.Excused[string(rule)+": "+why]++ }

// Err returns nil if no rule was broken, otherwise the first 20 violations of each with the events concerned.
func (r *Report) Err() error {
	var all []error
	found := map[Rule]int{}
	for _, v := range r.Violations {
		if found[v.Rule]++; found[v.Rule] <= 20 {
			all = append(all, fmt.Errorf("%s: %s", v.Rule, v.Text))
		}
	}
	if len(all) < len(r.Violations) {
		all = append(all, fmt.Errorf("%d violations in all", len(r.Violations)))
	}
	return errors.Join(all...)
}

// String returns how much was checked, and what was not.
func (r *Report) String() string {
	lines := []string{fmt.Sprintf("%d grants", r.Grants)}
	for _, why := range slices.Sorted(maps.Keys(r.Excused)) {
		lines = append(lines, fmt.Sprintf("%d not checked: %s", r.Excused[why], why))
	}
	return strings.Join(lines, "\n")
}

// seconds shows a time.
func seconds(at int64) string { return fmt.Sprintf("%.6fs", float64(at)/1e9) }

func line(at int64, what any) string { return fmt.Sprintf("%14s  %v", seconds(at), what) }

// Note is what was done to a run, or seen in it, at some time.
type Note struct {
	At   int64
	Text string
}

// Story tells a history for people, by time: one line per event and per note.
func Story(events []Event, notes []Note) string {
	all := slices.Clone(notes)
	for _, e := range events {
		all = append(all, Note{e.At, e.String()})
	}
	slices.SortStableFunc(all, func(a, b Note) int { return cmp.Compare(a.At, b.At) })
	var text strings.Builder
	for _, n := range all {
		text.WriteString(line(n.At, n.Text) + "\n")
	}
	return text.String()
}
