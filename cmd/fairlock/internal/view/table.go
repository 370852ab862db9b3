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

// Paint says how to write for a terminal. It uses the terminal's own sixteen colours, so that they suit its background.
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

// say returns a phrase in the colour of its level.
func (p Paint) say(phrase words.Phrase) string { return p.mark(phrase, phrase.Text) }

// mark returns text with the phrase that it begins with in the colour of the phrase's level.
func (p Paint) mark(phrase words.Phrase, text string) string {
	rest, begins := strings.CutPrefix(text, phrase.Text)
	style, coloured := levels[phrase.Level]
	if !begins || !coloured {
		return text
	}
	return p.in(style, phrase.Text) + rest
}

var levels = map[words.Level]lipgloss.Style{words.Good: good, words.Warn: warn, words.Bad: bad}

// Header says from which server and which namespaces the following was read, and when, unless at is zero.
func (p Paint) Header(server, namespaces string, at time.Time) string {
	text := server + ", " + namespaces
	if !at.IsZero() {
		text += at.Local().Format(", " + time.DateTime + " MST")
	}
	return p.in(quiet, p.Fold(text, 0))
}

// column is one of a table. On a narrow terminal, texts are broken into lines, and columns are left out. Those with
// ranks above 4 go first. Then others go, the highest ranks first, until no text needs more than two lines. The first
// column always stays. If the first column is cut, no column is left out while cuts suffice, and none with a rank below
// 5 while shorter cuts suffice.
type column struct {
	head  string
	rank  int
	least int  // the width to which its texts may be broken into lines; 0: they may not
	cut   bool // its texts are cut in the middle instead, to at most a third of the width
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

// lines returns the table's lines, the head first. A column without a text is left out.
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

// Indented returns a text below a lock, or nothing if it is empty.
func Indented(p Paint, text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split("  "+Paint{Width: max(p.Width-2, 0)}.Fold(text, 2), "\n")
}

// Fold breaks a text that is too long into lines, at spaces, hyphens and other separators in names. The further lines
// are indented.
func (p Paint) Fold(text string, indent int) string {
	if p.Width <= indent || lipgloss.Width(text) <= p.Width {
		return text
	}
	text = ansi.Wrap(text, p.Width-indent, "/:@")
	text = ansi.Hardwrap(text, p.Width-indent, true) // ansi.Wrap may put a separator behind a full line
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", indent))
}
