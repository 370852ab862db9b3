package demo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/fairlock/fairlock-go/fairlock"
)

// margin is the empty column on both sides.
const margin = 1

// labelWidth is that of what stands before the holders.
const labelWidth = 9

// shownHolders is how many holders have room.
const shownHolders = 3

// shownRemarks is how many of the latest remarks have room.
const shownRemarks = 4

// draw shows a snapshot on so many columns and rows.
func (s snapshot) draw(width, height int) string {
	inner := max(width-2*margin, 1)
	top := slices.Concat([]string{s.title(inner), quiet.Render(strings.Repeat("─", inner))}, s.holders(), []string{""})
	bottom := slices.Concat([]string{""}, s.remarkLines(), []string{""}, s.counters(), []string{quiet.Render("q ends it")})
	middle := s.columns(inner, max(height-len(top)-len(bottom), 0))
	lines := slices.Concat(top, middle, bottom)
	for i, line := range lines {
		lines[i] = strings.Repeat(" ", margin) + pad(line, inner)
	}
	return strings.Join(lines[:min(len(lines), max(height, 1))], "\n")
}

func (s snapshot) title(width int) string {
	left := strong.Render("fairlock") + quiet.Render(fmt.Sprintf("   %s · %d clients × %d workers · %s · %s",
		s.cfg.title(), s.cfg.Clients, s.cfg.Workers, s.where, s.lock))
	right := fmt.Sprintf("%.1fs", s.elapsed.Seconds())
	return pad(left, width-lipgloss.Width(right)-1) + " " + right
}

// holders are the lock in one line and, if several can hold it, the first of them below.
func (s snapshot) holders() []string {
	if s.cfg.Kind == Mutex {
		return []string{s.holder()}
	}
	lines := make([]string, 1+shownHolders)
	lines[0] = strong.Render(pad("HOLDERS", labelWidth)) + s.use()
	for i, h := range s.state.Holders[:min(len(s.state.Holders), shownHolders)] {
		if s.fault == nil {
			lines[1+i] = pad("", labelWidth) + s.holding(h)
		}
	}
	return lines
}

// holder is that of a mutex.
func (s snapshot) holder() string {
	text := s.use()
	if s.state.Held && s.fault == nil {
		text = s.holding(s.state.Holder)
	}
	return strong.Render(pad("HOLDER", labelWidth)) + text
}

// use says how much is held, or why that cannot be said.
func (s snapshot) use() string {
	switch {
	case s.fault != nil:
		return bad.Render(s.fault.Error())
	case !s.state.Held && s.state.Quarantine > 0:
		return bad.Render("nobody: Redis lost its data, the lock rests for " + brief(s.state.Quarantine))
	case !s.state.Held:
		return quiet.Render("nobody")
	}
	text := s.cfg.inUse(s.state)
	if more := len(s.state.Holders) - shownHolders; more > 0 {
		text += quiet.Render(fmt.Sprintf("   the last %d of %d holders are not shown", more, len(s.state.Holders)))
	}
	return text
}

func (s snapshot) holding(h fairlock.Holder) string {
	held := pad("", 12)
	if d, known := s.held(h.Fence); known {
		held = pad("held "+brief(d), 12)
	}
	return s.name(h.Client) + fmt.Sprintf("%-3s fence %d  ", s.cfg.mark(h.Weight, h.Writer), h.Fence) + held +
		"lease " + bar(h.TTL, s.cfg.TTL, 6) + " " + brief(h.TTL)
}

// columns are the queue and the grants, side by side.
func (s snapshot) columns(width, rows int) []string {
	left := width * 13 / 25
	queue, grants := s.queue(rows), s.recent(rows)
	lines := make([]string, rows)
	for i := range lines {
		lines[i] = pad(at(queue, i), left) + at(grants, i)
	}
	return lines
}

func (s snapshot) queue(rows int) []string {
	waiting := fmt.Sprintf("%d wait", s.state.Waiting)
	lines := []string{strong.Render("QUEUE") + quiet.Render(fmt.Sprintf("  %-11s%6s  left", waiting, "age"))}
	for i, w := range s.state.Waiters {
		lines = append(lines, fmt.Sprintf("%2d  %s%-3s%6s  %s %s",
			i+1, s.name(w.Client), s.cfg.mark(w.Weight, w.Writer), brief(w.Age), bar(w.TTL, s.cfg.WaiterTTL, 6), brief(max(w.TTL, 0))))
	}
	if len(lines) > rows && rows > 1 {
		lines = append(lines[:rows-1], quiet.Render(fmt.Sprintf("     and %d more", s.state.Waiting-(rows-2))))
	}
	return lines
}

func (s snapshot) recent(rows int) []string {
	lines := []string{strong.Render("GRANTS") + quiet.Render(fmt.Sprintf("        %-16s %6s", "fence", "waited"))}
	for _, g := range s.grants[:min(len(s.grants), max(rows-1, 0))] {
		mark := s.cfg.mark(g.weight, g.weight == everything)
		lines = append(lines, fmt.Sprintf("%s%-3s%d %6s", s.name(g.client), mark, g.fence, brief(g.wait)))
	}
	return lines
}

func (s snapshot) remarkLines() []string {
	lines := make([]string, shownRemarks)
	shown := s.remarks[max(0, len(s.remarks)-shownRemarks):]
	for i, r := range shown {
		lines[i] = quiet.Render(fmt.Sprintf("%6.1fs  ", r.at.Seconds())) + r.text
	}
	return lines
}

func (s snapshot) counters() []string {
	v := s.result
	return []string{
		fmt.Sprintf("%s grants    order violations %s    %s %s    leases lost %s",
			strong.Render(strconv.Itoa(v.Grants)), flag(v.Violations), s.cfg.overlaps(), flag(v.Overlaps), flag(v.Lost)),
		fmt.Sprintf("handoff %s    wait %s", spreadText(v.Handoff), spreadText(v.Wait)),
		quiet.Render(shares(v.ByClient, s.short)),
	}
}

// at is the i-th line, if there is one.
func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}
