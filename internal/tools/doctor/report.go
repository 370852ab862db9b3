package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// Result is what became of a check.
type Result string

// The results. Unchecked means that the result is unknown.
const (
	OK        Result = "ok"
	Warning   Result = "warning"
	Problem   Result = "problem"
	Unchecked Result = "unchecked"
)

// Finding is what one check has found on one server.
type Finding struct {
	Check  string `json:"check"`
	Server string `json:"server"`
	Result Result `json:"result"`
	Found  string `json:"found"`            // why it could not be checked, if it could not
	Advice string `json:"advice,omitempty"` // what to do, unless it is ok
	Paste  string `json:"paste,omitempty"`  // the lines for redis-cli that do it, if there are some that can work
	Own    bool   `json:"-"`                // it is about the user of Redis that looks, not about the server
}

func is(r Result, format string, args ...any) Finding {
	return Finding{Result: r, Found: fmt.Sprintf(format, args...)}
}

// advise says what helps for this finding, if what its check advises does not. paste is "" if there is no line for it.
func (f Finding) advise(advice, paste string) Finding {
	f.Advice, f.Paste = advice, paste
	return f
}

// asAdmin is the advice if a check needs rights that the user lacks.
const asAdmin = "run this as a user with more rights, such as an admin"

// broken is what a check has found when the connection failed.
func broken(err error) Finding {
	own := strings.HasPrefix(inspect.Message(err), "NOAUTH") || strings.Contains(inspect.Message(err), "WRONGPASS")
	return Finding{Result: Problem, Found: inspect.Message(err), Advice: cure(err), Own: own}
}

// Report is what all checks have found, server by server.
type Report struct {
	Namespace string    `json:"namespace"`
	Rights    []Rights  `json:"rights"`
	Checks    []Finding `json:"checks"`
}

func (r *Report) add(check, server string, f Finding) {
	f.Check, f.Server = check, server
	r.Checks = append(r.Checks, f)
}

// Away reports whether no server could be reached.
func (r Report) Away() bool {
	return len(r.Checks) == 1 && r.Checks[0].Check == checks[0].name && r.Checks[0].Result == Problem
}

// Servers are the reports on each server.
func (r Report) Servers() (all []Report) {
	for i, f := range r.Checks {
		if i == 0 || f.Server != r.Checks[i-1].Server {
			all = append(all, Report{Namespace: r.Namespace, Rights: r.Rights})
		}
		last := &all[len(all)-1]
		last.Checks = append(last.Checks, f)
	}
	return all
}

// Lacking are the least rights for a purpose if the user lacks some, else none.
func (r Report) Lacking(purpose Purpose) []Rights {
	i := slices.Index(Purposes, purpose)
	if i < len(r.Rights) && slices.ContainsFunc(r.Checks, func(f Finding) bool { return f.Check == "rights" && f.Own }) {
		return r.Rights[i : i+1]
	}
	return nil
}

// Sorted are the findings that are not ok, the worst first, and then the others.
func (r Report) Sorted() (bad, well []Finding) {
	rank := map[Result]int{Problem: 0, Warning: 1, Unchecked: 2}
	for _, f := range r.Checks {
		if f.Result == OK {
			well = append(well, f)
		} else {
			bad = append(bad, f)
		}
	}
	slices.SortStableFunc(bad, func(a, b Finding) int { return rank[a.Result] - rank[b.Result] })
	return bad, well
}

// Blind reports whether something is unchecked because the user lacks rights.
func (r Report) Blind() bool {
	return slices.ContainsFunc(r.Checks, func(f Finding) bool { return f.Result == Unchecked && f.Advice == asAdmin })
}

// Count is how many checks have that result.
func (r Report) Count(result Result) (n int) {
	for _, f := range r.Checks {
		if f.Result == result {
			n++
		}
	}
	return n
}
