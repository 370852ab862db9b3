package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rule names what is judged.
type Rule string

// The rules. The functions that judge them say what exactly is proved.
const (
	Form      Rule = "form"      // the log of an acquisition tells a possible life
	Alive     Rule = "alive"     // the dead and the stopped write nothing
	Exclusion Rule = "exclusion" // beliefs of two acquisitions of a lock do not overlap
	Use       Rule = "use"       // a lock is used within its own belief and within nobody else's
	Fences    Rule = "fences"    // they are distinct, and rise in the order of the grants
	Tickets   Rule = "tickets"   // they are kept for life, and rise in the order of arrival
	Order     Rule = "order"     // nobody is granted a lock before somebody who came earlier and waits
	Verdicts  Rule = "verdicts"  // a live lease is not lost, and nobody releases what another has
	Linear    Rule = "linear"    // what was done and heard can be put into one order that a lock allows
	Undecided Rule = "undecided" // … which was not found, nor its absence, in time
	Server    Rule = "server"    // the witness saw the queue served in order
	Nothing   Rule = "nothing"   // something was granted, and so there is something to judge
)

// Violation is one break of one rule.
type Violation struct {
	Rule    Rule
	Lock    string
	Text    string  // one sentence
	Events  []Event // those concerned
	Picture string  // a file, if one was drawn
}

func (v Violation) String() string {
	text := fmt.Sprintf("%s: lock %q: %s", v.Rule, v.Lock, v.Text)
	if v.Picture != "" {
		text += " (" + v.Picture + ")"
	}
	return text
}

// Report is what Check has found.
type Report struct {
	Events     map[Op]int // how many of each kind
	Locks      int
	Grants     int
	Handed     int // grants to somebody who had queued
	Unknown    int // acquisitions of which it is not known whether they were granted, or whether they were released
	Kills      int
	Stops      int
	Silences   int
	Losses     int
	Judged     map[Rule]int            // how many things were held to a rule: beliefs, uses, pairs, answers …
	Exempted   map[Rule]map[string]int // how many were not, by reason
	Violations []Violation
	// Broken counts all violations. No more than MostListed of each rule are listed.
	Broken map[Rule]int

	start int64 // of the run, from which sentences count the time
}

// MostListed is how many violations of one rule a report lists, of which Err tells mostTold.
const (
	MostListed = 10000
	mostTold   = 20
)

func (r *Report) judge(rule Rule, n int) { r.Judged[rule] += n }

func (r *Report) exempt(rule Rule, why string) {
	if r.Exempted[rule] == nil {
		r.Exempted[rule] = map[string]int{}
	}
	r.Exempted[rule][why]++
}

// violate notes a violation, and returns it if it is listed.
func (r *Report) violate(rule Rule, lock string, events []*Event, format string, args ...any) *Violation {
	r.Broken[rule]++
	if r.Broken[rule] > MostListed {
		return nil
	}
	v := Violation{Rule: rule, Lock: lock, Text: fmt.Sprintf(format, args...)}
	for _, e := range events {
		if e != nil {
			v.Events = append(v.Events, *e)
		}
	}
	r.Violations = append(r.Violations, v)
	return &r.Violations[len(r.Violations)-1]
}

// at shows a time.
func (r *Report) at(t int64) string {
	if t == never {
		return "the end of time"
	}
	return fmt.Sprintf("%.6f s", float64(t-r.start)/1e9)
}

// Err returns nil if no rule was broken, or else the first violations of each.
func (r *Report) Err() error {
	var all []error
	told := map[Rule]int{}
	for _, v := range r.Violations {
		if told[v.Rule]++; told[v.Rule] <= mostTold {
			all = append(all, errors.New(v.String()))
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(r.Broken)) {
		if more := r.Broken[rule] - mostTold; more > 0 {
			all = append(all, fmt.Errorf("%s: %d more", rule, more))
		}
	}
	return errors.Join(all...)
}

// TB is what Assert needs of a testing.TB.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Assert logs the counts, fails the test for every violation, and reports whether there is none.
func (r *Report) Assert(t TB) bool {
	t.Helper()
	t.Logf("%v", r)
	err := r.Err()
	if err != nil {
		t.Errorf("%v", err)
	}
	return err == nil
}

// String tells the counts.
func (r *Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d locks, %d grants (%d to who queued), %d unknown outcomes",
		r.Locks, r.Grants, r.Handed, r.Unknown)
	fmt.Fprintf(&text, ", %d kills, %d stops, %d silences, %d losses", r.Kills, r.Stops, r.Silences, r.Losses)
	text.WriteString("\nevents:")
	for _, op := range slices.Sorted(maps.Keys(r.Events)) {
		fmt.Fprintf(&text, " %d %s", r.Events[op], op)
	}
	rules := maps.Clone(r.Judged)
	for rule := range r.Exempted {
		rules[rule] += 0
	}
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		fmt.Fprintf(&text, "\n%s: %d judged", rule, r.Judged[rule])
		for _, why := range slices.Sorted(maps.Keys(r.Exempted[rule])) {
			fmt.Fprintf(&text, ", %d not: %s", r.Exempted[rule][why], why)
		}
	}
	return text.String()
}
