package view

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
)

// table is columns of text, with a head. The last column is not padded, so it may be as wide as it likes.
type table struct {
	head []string
	rows [][]string
}

// lines are its lines.
func (t table) lines(p Paint) []string {
	widths := make([]int, len(t.head))
	for _, row := range append(t.rows, t.head) {
		for i, cell := range row {
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	lines := []string{p.in(strong, line(t.head, widths))}
	for _, row := range t.rows {
		lines = append(lines, line(row, widths))
	}
	return lines
}

func line(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		b.WriteString(cell)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-lipgloss.Width(cell)+2))
		}
	}
	return b.String()
}

// holderWidth is how wide a client's id may be in a list of locks.
const holderWidth = 40

// Table lists locks, one on a line, below a head. The name comes last, for it may be long.
func Table(p Paint, locks []Lock) []string {
	t := table{head: []string{"KIND", "IN USE", "HOLDER", "HELD FOR", "LEASE LEFT", "WAITING", "NAME"}}
	for _, l := range locks {
		holder, held, left := l.first()
		t.rows = append(t.rows, []string{
			string(l.Kind), l.use(p), holder, held, left, fmt.Sprint(l.Waiting), Plain(l.Name),
		})
	}
	return t.lines(p)
}

// first tells of the holder whose lease ends first: who it is, for how long it has held the lock, what is left of its
// lease.
func (l Lock) first() (holder, held, left string) {
	if !l.Held() {
		return "-", "-", "-"
	}
	h := l.Holders[0]
	holder = "(not ours)"
	if !h.Token.IsZero() {
		holder = shorten(h.Token.Client(), holderWidth)
	}
	switch more, hidden := len(l.Holders)-1, l.hidden(); {
	case l.Kind == RW && more+hidden > 0:
		holder += fmt.Sprintf(" +%d", more+hidden) // a reader is one permit
	case hidden > 0:
		holder += fmt.Sprintf(" +%d…", more)
	case more > 0:
		holder += fmt.Sprintf(" +%d", more)
	}
	return holder, l.ago(h.Since), h.left()
}

// use says how much of the lock is held, in a word or two.
func (l Lock) use(p Paint) string {
	switch {
	case l.Resting:
		return p.in(bad, "rests")
	case l.Kind == Semaphore && l.Permits > 0:
		return fmt.Sprintf("%d/%d", l.Used, l.Permits)
	case l.Free():
		return p.in(good, "free")
	case l.Kind == RW && l.Holders[0].Writer:
		return "writer"
	case l.Kind == RW:
		return count(l.Used, "reader")
	}
	return "held"
}

// left is what is left of a lease.
func (h Holder) left() string {
	if h.Left < 0 {
		return "never ends"
	}
	return span(h.Left)
}
