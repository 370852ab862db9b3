package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tell returns what happened in a run, in the order of time: faults, what clients did, and what changed in the server.
func tell(r *Result) string {
	var out strings.Builder
	fmt.Fprintf(&out, "seed %d: %v of simulated time, %v\n", r.Config.Seed, r.Length.Round(time.Millisecond), r.Report)
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, f := range r.Faults {
		lines = append(lines, line{f.At, "FAULT   " + f.Text})
	}
	for _, e := range r.Events {
		text := fmt.Sprintf("client  %d worker %d call %d: %s %s", e.Process, e.Worker, e.Call, e.Op, e.Lock)
		if e.Weight > 1 {
			text += fmt.Sprintf(" weight %d", e.Weight)
		}
		if e.Token != "" {
			text += " token " + e.Token
		}
		if e.Ticket != 0 {
			text += fmt.Sprintf(" ticket %d", e.Ticket)
		}
		if e.Fence != 0 {
			text += fmt.Sprintf(" fence %d", e.Fence)
		}
		if e.Until != 0 {
			text += fmt.Sprintf(" until %v", time.Duration(e.Until))
		}
		if e.Err != "" {
			text += ": " + e.Err
		}
		lines = append(lines, line{time.Duration(e.At), text})
	}
	for i, e := range r.Run.Server {
		text := fmt.Sprintf("server  %s %s %s", e.Lock, e.Op, e.Token)
		if e.Ticket != 0 {
			text += fmt.Sprintf(" ticket %d", e.Ticket)
		}
		if e.Until != 0 {
			text += fmt.Sprintf(" until %v", time.Duration(e.Until-e.At)*time.Microsecond)
		}
		lines = append(lines, line{time.Duration(r.serverAt[i]), text})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.at - b.at) })
	for _, l := range lines {
		fmt.Fprintf(&out, "%12.6f  %s\n", l.at.Seconds(), l.text)
	}
	for _, err := range r.Known {
		fmt.Fprintf(&out, "known: %v\n", err)
	}
	for _, err := range r.Errs {
		fmt.Fprintf(&out, "FAILED: %v\n", err)
	}
	return out.String()
}
