package view

import (
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/x/ansi"

	"github.com/fairlock/fairlock-go/internal/tools/words"
)

// Paint says how to write for a terminal. The colours are its own sixteen, so that they suit its background.
type Paint struct {
	Colours bool
	Width   int // 0: any
}

var (
	strong = lipgloss.NewStyle().Bold(true)
	quiet  = lipgloss.NewStyle().Faint(true)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	warn   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
)

func (p Paint) in(style lipgloss.Style, text string) string {
	if !p.Colours || text == "" {
		return text
	}
	return style.Render(text)
}

// say is a phrase in the colour of its level.
func (p Paint) say(phrase words.Phrase) string { return p.mark(phrase, phrase.Text) }

// mark is a text in the colour of a phrase's level, as far as it begins with the phrase.
func (p Paint) mark(phrase words.Phrase, text string) string {
	rest, begins := strings.CutPrefix(text, phrase.Text)
	style, coloured := levels[phrase.Level]
	if !begins || !coloured {
		return text
	}
	return p.in(style, phrase.Text) + rest
}

var levels = map[words.Level]lipgloss.Style{words.Good: good, words.Warn: warn, words.Bad: bad}

// Header says where what follows was read, and when, if that is not zero.
func (p Paint) Header(server, namespace string, at time.Time) string {
	text := server + ", namespace " + namespace
	if !at.IsZero() {
		text += at.Local().Format(", " + time.DateTime + " MST")
	}
	return p.in(quiet, p.Fold(text, 0))
}

// column is one of a table. On a narrow terminal, texts are broken into lines, and columns are left out: first those
// with ranks above 4, then those without which nothing needs more than two lines, the highest ranks first. The first
// column always stays. In a table whose first column is cut, no column is left out as long as cuts suffice, and none
// with a rank below 5 as long as shorter cuts suffice.
type column struct {
	head  string
	rank  int
	least int  // the width to which its texts may be broken into lines; 0: they may not
	cut   bool // they are cut in the middle instead, and to a third of the width at most
	cells []string
}

func (c column) width() int {
	width := lipgloss.Width(c.head)
	for _, cell := range c.cells {
		width = max(width, lipgloss.Width(cell))
	}
	return width
}

// shorten makes a text fit into a width.
func (c column) shorten(text string, width int) string {
	if !c.cut {
		return Paint{Width: width}.Fold(text, 2)
	}
	have := lipgloss.Width(text)
	if have <= width {
		return text
	}
	head := max(width-1, 0) / 2
	start := ansi.Truncate(text, head, "") + "…"
	for tail := max(width-1-head, 0); ; tail-- { // a character can be wider than one column
		if short := start + ansi.TruncateLeft(text, have-tail, ""); lipgloss.Width(short) <= width || tail <= 0 {
			return short
		}
	}
}

type columns []column

// add adds a row.
func (cs columns) add(cells ...string) {
	for i, cell := range cells {
		cs[i].cells = append(cs[i].cells, cell)
	}
}

// fit returns the columns that fit into the width.
func (cs columns) fit(width int) columns {
	over, last := -width-2, 0 // behind the last column is no gap
	for i, c := range cs {
		over += c.width() + 2
		if c.rank >= cs[last].rank {
			last = i
		}
	}
	least, spare := make([]int, len(cs)), 0
	for i, c := range cs {
		switch least[i] = c.least; {
		case i == 0 && c.cut && cs[last].rank < 5:
			least[i] = 12
		case cs[last].rank > 1 && c.least > 0 && !c.cut:
			least[i] = max(c.least, (c.width()+1)/2)
		}
		if c.least > 0 {
			spare += max(c.width()-least[i], 0)
		}
	}
	switch {
	case width == 0 || over <= 0:
		return cs
	case (over > spare || cs[last].rank > 4 && !cs[0].cut) && len(cs) > 1:
		return slices.Delete(slices.Clone(cs), last, last+1).fit(width)
	case over > spare:
		least[0] = 3
	}
	for i, c := range slices.Backward(cs) {
		if to := max(c.width()-over, least[i]); c.least > 0 && to < c.width() && over > 0 {
			over -= c.width() - to
			for row, cell := range c.cells {
				cs[i].cells[row] = c.shorten(cell, to)
			}
		}
	}
	return cs
}

// lines are the table's lines, the head first; a column without one is left out.
func (cs columns) lines(p Paint) []string {
	cs = slices.DeleteFunc(cs, func(c column) bool { return c.head == "" })
	for _, c := range cs {
		for row, cell := range c.cells {
			if c.cut && p.Width > 0 {
				c.cells[row] = c.shorten(cell, max(p.Width/3, c.least))
			}
		}
	}
	cs = cs.fit(p.Width)
	t := table.New().Border(lipgloss.Border{}).BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		BorderHeader(false).BorderColumn(false).StyleFunc(func(row, _ int) lipgloss.Style {
		if row == table.HeaderRow && p.Colours {
			return strong.PaddingRight(2)
		}
		return lipgloss.NewStyle().PaddingRight(2)
	})
	heads, rows := make([]string, len(cs)), make([][]string, len(cs[0].cells))
	for i, c := range cs {
		heads[i] = c.head
		for row, cell := range c.cells {
			rows[row] = append(rows[row], cell)
		}
	}
	lines := strings.Split(t.Headers(heads...).Rows(rows...).String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// Indented is a text below a lock; nothing if it is empty.
func Indented(p Paint, text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split("  "+Paint{Width: max(p.Width-2, 0)}.Fold(text, 2), "\n")
}

// Fold breaks a text that is too long into lines: at spaces, hyphens and what else separates the parts of a name. The
// further lines are indented.
func (p Paint) Fold(text string, indent int) string {
	if p.Width <= indent || lipgloss.Width(text) <= p.Width {
		return text
	}
	text = ansi.Wrap(text, p.Width-indent, "/:@")
	text = ansi.Hardwrap(text, p.Width-indent, true) // the other puts a separator behind a full line
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", indent))
}
