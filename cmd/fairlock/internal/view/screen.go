package view

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

// screen is the live view: all locks in use as a table, or the named ones in full.
type screen struct {
	every         time.Duration
	table         bool
	paint         Paint
	width, height int

	locks []Lock // what was seen last
	seen  bool   // something was
	at    time.Time
	err   error
	top   int // locks that have been scrolled past
}

// ShowLive shows what w sees on a terminal, until the user has had enough (q, Escape, ^C) or ctx ends. Without in, no
// key is read.
func ShowLive(ctx context.Context, in io.Reader, out io.Writer, p Paint, w Watch) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := screen{every: w.Every, table: w.IDs == nil, paint: p, width: 80, height: 24}
	program := tea.NewProgram(s, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Run(ctx, func(g Glance) { program.Send(sight{g, time.Now()}) })
		program.Quit()
	}()
	_, err := program.Run()
	stop()
	<-over
	return err
}

// sight is a glance, and when it was had.
type sight struct {
	Glance
	at time.Time
}

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		return s.press(m.String())
	case sight:
		s.see(m)
	}
	return s, nil
}

func (s screen) press(key string) (tea.Model, tea.Cmd) {
	page := max(s.height-6, 1)
	switch key {
	case "q", "esc", "ctrl+c":
		return s, tea.Quit
	case "up", "k":
		s.top--
	case "down", "j":
		s.top++
	case "pgup":
		s.top -= page
	case "pgdown", "space":
		s.top += page
	case "home", "g":
		s.top = 0
	}
	s.top = max(min(s.top, len(s.locks)-1), 0)
	return s, nil
}

// see keeps what was seen before if there is nothing but an error.
func (s *screen) see(m sight) {
	s.err = m.Err
	if m.Err != nil && len(m.Locks) == 0 {
		return
	}
	s.at, s.seen = m.at, true
	if s.locks = Worth(m.Locks); s.table {
		s.locks = InUse(m.Locks)
	}
	s.top = max(min(s.top, len(s.locks)-1), 0)
}

// View implements tea.Model.
func (s screen) View() tea.View {
	v := tea.NewView(s.draw(s.width, s.height))
	v.AltScreen = true
	v.WindowTitle = "fairlock watch"
	return v
}

// draw shows everything on so many columns and rows.
func (s screen) draw(width, height int) string {
	lines := []string{s.title(width), ""}
	lines = append(lines, s.body(max(height-len(lines)-2, 0))...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, s.foot())
	lines = lines[:min(len(lines), max(height, 1))]
	for i, text := range lines {
		lines[i] = fit(text, width)
	}
	return strings.Join(lines, "\n")
}

func (s screen) title(width int) string {
	left := s.paint.in(strong, "fairlock watch")
	if n := len(s.locks); s.table && s.seen {
		left += s.paint.in(quiet, "   "+count(n, "lock")+" in use")
		if s.top > 0 {
			left += s.paint.in(quiet, fmt.Sprintf(", from number %d", s.top+1))
		}
	}
	right := "every " + s.every.String()
	if s.seen {
		right += "  " + s.at.Format(time.TimeOnly)
	}
	gap := width - lipgloss.Width(left) - lipgloss.Width(right)
	return left + strings.Repeat(" ", max(gap, 1)) + s.paint.in(quiet, right)
}

func (s screen) foot() string {
	if s.err == nil {
		return s.paint.in(quiet, "q ends it")
	}
	text := unseen(s.err.Error())
	if s.seen {
		text = "since " + s.at.Format(time.TimeOnly) + ": " + text
	}
	return s.paint.in(bad, text)
}

func (s screen) body(rows int) []string {
	shown := s.locks[min(s.top, len(s.locks)):]
	switch {
	case !s.seen && s.err != nil:
		return nil
	case !s.seen:
		return []string{s.paint.in(quiet, "looking …")}
	case len(s.locks) == 0:
		return []string{s.paint.in(quiet, "no lock is in use")}
	case s.table:
		return cut(s.paint, Table(s.paint, shown), 1, rows)
	}
	return s.blocks(shown, rows)
}

// cut shows so many lines, of which the last tells how many locks, one on a line after the head, have no room.
func cut(p Paint, lines []string, head, rows int) []string {
	if len(lines) <= rows || rows < 1 {
		return lines[:min(len(lines), max(rows, 0))]
	}
	hidden := len(lines) - max(rows-1, head)
	return append(lines[:rows-1:rows-1], p.in(quiet, "… and "+count(hidden, "more lock")))
}

// blocks shows locks below each other. Those that need little room leave what they do not need to the others.
func (s screen) blocks(locks []Lock, rows int) []string {
	blocks, shown := make([]block, len(locks)), make([][]string, len(locks))
	for i, l := range locks {
		blocks[i] = l.block(s.paint)
	}
	fill := func(most int) (spare int) { // what is left if each takes so much, and an empty line between two
		spare = rows + 1
		for i, b := range blocks {
			shown[i] = b.cut(most)
			spare -= len(shown[i]) + 1
		}
		return spare
	}
	if 2*len(blocks)-1 > rows {
		fill(1)
		return cut(s.paint, slices.Concat(shown...), 0, rows)
	}
	most := rows
	for fill(most) < 0 {
		most--
	}
	spare := fill(most)
	for i, b := range blocks { // what is left goes to the first who can use it
		had := len(shown[i])
		shown[i] = b.cut(had + spare)
		spare -= len(shown[i]) - had
	}
	return slices.Concat(between(shown, []string{""})...)
}

// between puts something between each two.
func between(blocks [][]string, gap []string) [][]string {
	var all [][]string
	for i, b := range blocks {
		if i > 0 {
			all = append(all, gap)
		}
		all = append(all, b)
	}
	return all
}
