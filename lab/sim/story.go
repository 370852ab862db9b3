package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/tools/history"
)

// tell returns what happened in a run, in the order of time: faults, what clients did, and what changed in the server.
func tell(r *Result) string {
	var out strings.Builder
	fmt.Fprintf(&out, "seed %d: %v of simulated time, %v\nkinds of faults: %s\n",
		r.Config.Seed, r.Length.Round(time.Millisecond), r.Report, strings.Join(r.Config.Faults, ", "))
	var notes []history.Note
	for _, f := range r.Faults {
		notes = append(notes, history.Note{At: int64(f.At), Text: "FAULT   " + f.Text})
	}
	for _, e := range r.Run.Server {
		notes = append(notes, history.Note{At: e.Seen, Text: change(e)})
	}
	out.WriteString(history.Story(r.Events, notes))
	for _, err := range r.Errs {
		fmt.Fprintf(&out, "FAILED: %v\n", err)
	}
	return out.String()
}

// change is what changed in the server.
func change(e history.ServerEvent) string {
	number, until := "ticket", fmt.Sprintf("%d µs of the queue's clock", e.Until)
	switch {
	case e.Op == history.Lasts: // its numbers have another meaning
		number, until = "fence", time.Duration(e.Until).String()
	case e.Until == 0:
		until = ""
	}
	return fmt.Sprintf("server  %-9s  %s", e.Op, e.Lock) + history.Details(number, e.Ticket, "until", until, "token",
		e.Token)
}
