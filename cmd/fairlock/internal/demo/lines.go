package demo

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listed is how many holders and how many waiters a line names.
const listed = 4

// showLines writes remarks as they are made, and every second what there is to see, until over is closed.
func showLines(out io.Writer, source func() snapshot, over <-chan struct{}) {
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
func (s snapshot) sayRemarks(out io.Writer, said int) int {
	for _, r := range s.remarks[said:] {
		_, _ = fmt.Fprintf(out, "%5.1fs  ! %s\n", r.at.Seconds(), r.text)
	}
	return len(s.remarks)
}

// say writes one line.
func (s snapshot) say(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%5.1fs  %s; %d wait%s; %d grants, %d violations, %d %s\n", s.elapsed.Seconds(),
		s.holdersText(), s.state.Waiting, s.waitersText(), s.result.Grants, s.result.Violations, s.result.Overlaps, s.cfg.overlaps())
}

func (s snapshot) holdersText() string {
	switch {
	case s.fault != nil:
		return s.fault.Error()
	case !s.state.Held:
		return "nobody holds"
	case s.cfg.Kind == Mutex:
		return fmt.Sprintf("%s holds, fence %d", s.plainName(s.state.Holder.Client), s.state.Holder.Fence)
	}
	var names []string
	for _, h := range s.state.Holders {
		names = append(names, s.plainName(h.Client)+s.share(h.Weight))
	}
	return fmt.Sprintf("%s, fence %d%s", s.cfg.inUse(s.state), s.state.Fence, first(names, len(names)))
}

func (s snapshot) waitersText() string {
	var names []string
	for _, w := range s.state.Waiters {
		name := s.plainName(w.Client) + s.share(w.Weight)
		if w.Writer {
			name += " to write"
		}
		names = append(names, name)
	}
	return first(names, s.state.Waiting)
}

// share is how many permits somebody has or wants, if it is not one.
func (s snapshot) share(weight int) string {
	if weight == 1 {
		return ""
	}
	return " ×" + strconv.Itoa(weight)
}

// first names the first of so many.
func first(names []string, all int) string {
	if len(names) == 0 {
		return ""
	}
	some := names[:min(len(names), listed)]
	if all > len(some) {
		some = append(slices.Clone(some), "…")
	}
	return ": " + strings.Join(some, ", ")
}

// plainName marks the dead.
func (s snapshot) plainName(client string) string {
	if s.dead[client] {
		return s.short(client) + " (dead)"
	}
	return s.short(client)
}
