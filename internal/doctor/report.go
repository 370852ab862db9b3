package doctor

import (
	"fmt"

	"github.com/fairlock/fairlock-go/internal/inspect"
)

// Result is what became of a check.
type Result string

// The results. Unchecked is neither good nor bad.
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
}

func is(r Result, format string, args ...any) Finding {
	return Finding{Result: r, Found: fmt.Sprintf(format, args...)}
}

// broken is what a check has found when the connection failed.
func broken(err error) Finding {
	return Finding{Result: Problem, Found: inspect.Message(err), Advice: cure(err)}
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

// Count is how many checks have that result.
func (r Report) Count(result Result) (n int) {
	for _, f := range r.Checks {
		if f.Result == result {
			n++
		}
	}
	return n
}
