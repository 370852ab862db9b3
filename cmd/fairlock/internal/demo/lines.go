package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// listed is how many waiters a line names.
const listed = 4

// showLines writes remarks as they are made, and every second what there is to see, until over is closed.
func showLines(out io.Writer, source func() scene, over <-chan struct{}) {
	said := 0
	remarks := time.NewTicker(glance)
	defer remarks.Stop()
	status := time.NewTicker(time.Second)
	defer status.Stop()
	for {
		select {
		case <-over:
			source().sayRemarks(out, said)
			return
		case <-remarks.C:
			said = source().sayRemarks(out, said)
		case <-status.C:
			s := source()
			said = s.sayRemarks(out, said)
			s.say(out)
		}
	}
}

// sayRemarks writes the remarks that were not said yet, and returns how many are said now.
func (s scene) sayRemarks(out io.Writer, said int) int {
	for _, r := range s.remarks[said:] {
		_, _ = fmt.Fprintf(out, "%5.1fs  ! %s\n", r.at.Seconds(), r.text)
	}
	return len(s.remarks)
}

// say writes one line.
func (s scene) say(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%5.1fs  %s; %d wait%s; %d grants, %d violations, %d overlaps\n", s.elapsed.Seconds(),
		s.whoHolds(), s.state.Waiting, s.whoWaits(), s.verdict.Grants, s.verdict.Violations, s.verdict.Overlaps)
}

func (s scene) whoHolds() string {
	switch {
	case s.fault != nil:
		return s.fault.Error()
	case !s.state.Held || s.state.Resting:
		return "nobody holds"
	}
	return fmt.Sprintf("%s holds, fence %d", s.plainName(s.state.Holder.Client), s.state.Holder.Fence)
}

func (s scene) whoWaits() string {
	var names []string
	for _, w := range s.state.Waiters[:min(len(s.state.Waiters), listed)] {
		names = append(names, s.plainName(w.Client))
	}
	if len(names) == 0 {
		return ""
	}
	if s.state.Waiting > len(names) {
		names = append(names, "…")
	}
	return ": " + strings.Join(names, ", ")
}

// plainName marks the dead.
func (s scene) plainName(client string) string {
	if s.dead[client] {
		return s.short(client) + " (dead)"
	}
	return s.short(client)
}
