package doctor

import "fmt"

// Result is what became of a check.
type Result string

// The results. Unchecked is neither good nor bad.
const (
	OK        Result = "ok"
	Warning   Result = "warning"
	Problem   Result = "problem"
	Unchecked Result = "unchecked"
)

// Finding is what one check found on one server.
type Finding struct {
	Check  string         `json:"check"`
	Server string         `json:"server"`
	Result Result         `json:"result"`
	Found  string         `json:"found"`            // why it could not be checked, if it could not
	Advice string         `json:"advice,omitempty"` // what to do, if there is something to do
	Values map[string]any `json:"values,omitempty"` // the figures behind it
}

func ok(format string, args ...any) Finding {
	return Finding{Result: OK, Found: fmt.Sprintf(format, args...)}
}

func warn(advice, format string, args ...any) Finding {
	return Finding{Result: Warning, Found: fmt.Sprintf(format, args...), Advice: advice}
}

func problem(advice, format string, args ...any) Finding {
	return Finding{Result: Problem, Found: fmt.Sprintf(format, args...), Advice: advice}
}

func unchecked(advice, format string, args ...any) Finding {
	return Finding{Result: Unchecked, Found: fmt.Sprintf(format, args...), Advice: advice}
}

// with adds figures.
func (f Finding) with(values map[string]any) Finding {
	f.Values = values
	return f
}

// Report is what all checks found, server by server.
type Report struct {
	Namespace string    `json:"namespace"`
	ACL       string    `json:"acl"` // the line that gives a user the least rights that locks need
	Checks    []Finding `json:"checks"`
	Problems  int       `json:"problems"`
	Warnings  int       `json:"warnings"`
	Unchecked int       `json:"unchecked"`
}

func (r *Report) add(f Finding) {
	r.Checks = append(r.Checks, f)
	switch f.Result {
	case OK:
	case Warning:
		r.Warnings++
	case Problem:
		r.Problems++
	case Unchecked:
		r.Unchecked++
	}
}
