package demo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"
)

// margin is the empty column on both sides.
const margin = 1

// shownRemarks is how many of the latest remarks have room.
const shownRemarks = 4

// draw shows a scene on so many columns and rows.
func (s scene) draw(width, height int) string {
	inner := max(width-2*margin, 1)
	top := []string{s.title(inner), quiet.Render(strings.Repeat("─", inner)), s.holder(), ""}
	bottom := slices.Concat([]string{""}, s.remarkLines(), []string{""}, s.counters(), []string{quiet.Render("q ends it")})
	middle := s.columns(inner, max(height-len(top)-len(bottom), 0))
	lines := slices.Concat(top, middle, bottom)
	for i, line := range lines {
		lines[i] = strings.Repeat(" ", margin) + pad(line, inner)
	}
	return strings.Join(lines[:min(len(lines), max(height, 1))], "\n")
}

func (s scene) title(width int) string {
	left := strong.Render("fairlock demo") + quiet.Render(fmt.Sprintf("   %d clients × %d workers · %s · %s",
		s.cfg.Clients, s.cfg.Workers, s.lock, s.where))
	right := fmt.Sprintf("%.1fs", s.elapsed.Seconds())
	return pad(left, width-lipgloss.Width(right)-1) + " " + right
}

func (s scene) holder() string {
	label := strong.Render(pad("HOLDER", 9))
	h := s.state.Holder
	switch {
	case s.fault != nil:
		return label + bad.Render(s.fault.Error())
	case s.state.Resting:
		return label + bad.Render("nobody: Redis lost its data, the lock rests for "+brief(h.TTL))
	case !s.state.Held:
		return label + quiet.Render("nobody")
	}
	held := pad("", 12)
	if s.held >= 0 {
		held = pad("held "+brief(s.held), 12)
	}
	return label + s.name(h.Client) + fmt.Sprintf(" fence %d   ", h.Fence) + held +
		"lease " + bar(h.TTL, s.cfg.TTL, 8) + " " + brief(h.TTL)
}

// columns are the queue and the grants, side by side.
func (s scene) columns(width, rows int) []string {
	left := width * 11 / 20
	queue, grants := s.queue(rows), s.recent(rows)
	lines := make([]string, rows)
	for i := range lines {
		lines[i] = pad(at(queue, i), left) + at(grants, i)
	}
	return lines
}

func (s scene) queue(rows int) []string {
	waiting := fmt.Sprintf("%d wait", s.state.Waiting)
	lines := []string{strong.Render("QUEUE") + quiet.Render(fmt.Sprintf("  %-10s%6s  patience", waiting, "age"))}
	for i, w := range s.state.Waiters {
		lines = append(lines, fmt.Sprintf("%3d  %s %6s  %s %s",
			i+1, s.name(w.Client), brief(w.Age), bar(w.Patience, s.cfg.Patience, 6), brief(max(w.Patience, 0))))
	}
	if len(lines) > rows && rows > 1 {
		lines = append(lines[:rows-1], quiet.Render(fmt.Sprintf("     and %d more", s.state.Waiting-(rows-2))))
	}
	return lines
}

func (s scene) recent(rows int) []string {
	lines := []string{strong.Render("GRANTS") + quiet.Render(fmt.Sprintf("      %-16s %6s", "fence", "waited"))}
	for _, g := range s.grants[:min(len(s.grants), max(rows-1, 0))] {
		lines = append(lines, fmt.Sprintf("%s %d %6s", s.name(g.client), g.fence, brief(g.wait)))
	}
	return lines
}

func (s scene) remarkLines() []string {
	lines := make([]string, shownRemarks)
	shown := s.remarks[max(0, len(s.remarks)-shownRemarks):]
	for i, r := range shown {
		lines[i] = quiet.Render(fmt.Sprintf("%6.1fs  ", r.at.Seconds())) + r.text
	}
	return lines
}

func (s scene) counters() []string {
	v := s.verdict
	return []string{
		fmt.Sprintf("%s grants    order violations %s    overlaps %s    leases lost %s",
			strong.Render(strconv.Itoa(v.Grants)), flag(v.Violations), flag(v.Overlaps), flag(v.Lost)),
		fmt.Sprintf("hand-off %s    wait %s", spreadText(v.HandOff), spreadText(v.Wait)),
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
