package view

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// Live is a live display on a terminal: all locks in use as a table, or the named ones in full.
type Live struct {
	Watch
	Paint
	Title func(seen time.Time) string // the first line; seen is when the values were read, zero if nothing was
	Notes func() []string             // lines below the locks; nil: none
}

// Show shows it until the user quits (q, Escape, ^C) or ctx ends. If in is nil, no key is read.
func (l Live) Show(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	program := tea.NewProgram(l.Model(), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.Run(ctx, func(g Glance) { program.Send(sight{g, time.Now()}) })
		program.Quit()
	}()
	_, err := program.Run()
	stop()
	<-over
	return err
}

// Model returns the model that Show runs by the terminal library.
func (l Live) Model() tea.Model {
	l.Width = 80
	return screen{Live: l, height: 24}
}

// screen is a Live under way.
type screen struct {
	Live
	height int

	locks []inspect.Lock // read last
	at    time.Time      // when they were read; zero: never
	now   time.Time
	err   error
	none  string
	top   int // lines that have been scrolled past
}

// sight is a Glance with its time.
type sight struct {
	Glance
	at time.Time
}

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return nil }

// Update implements tea.Model. After an error, the values from before stay.
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		s.Width, s.height = m.Width, m.Height
	case sight:
		s.now, s.err = m.at, m.Err
		if m.Err == nil || len(m.Locks) > 0 {
			s.at, s.locks, s.none = m.at, m.Locks, m.None
		}
	case tea.KeyPressMsg:
		switch m.String() {
		case "q", "esc", "ctrl+c":
			return s, tea.Quit
		case "up", "k":
			s.top--
		case "down", "j":
			s.top++
		case "pgup":
			s.top -= s.height - 5
		case "pgdown", "space":
			s.top += s.height - 5
		case "home", "g":
			s.top = 0
		}
	}
	_, lines := s.body()
	s.top = max(min(s.top, len(lines)-1), 0)
	return s, nil
}

// View implements tea.Model.
func (s screen) View() tea.View {
	v := tea.NewView(s.draw())
	v.AltScreen, v.WindowTitle = true, "fairlock"
	return v
}

// body returns the head, which stays, and the lines that can be scrolled.
func (s screen) body() (head, lines []string) {
	switch all := Worth(s.locks); {
	case s.at.IsZero():
		lines = []string{s.in(quiet, "looking …")}
	case s.IDs == nil && len(InUse(all)) == 0:
		lines = strings.Split(s.Fold(cmp.Or(s.none, NoLocks), 0), "\n")
	case s.IDs == nil:
		lines = Table(s.Paint, InUse(all))
		return lines[:1], lines[1:]
	default:
		each := s.height/len(all)/2 - 3 // rows for holders, and as many for waiters
		for _, l := range all {
			lines = append(append(lines, Block(s.Paint, l, max(each, 3))...), "")
		}
		if s.none != "" {
			lines = append(lines[:len(lines)-1], Indented(s.Paint, s.none)...)
		}
	}
	return nil, lines
}

// NoLocks is the text for an empty list.
const NoLocks = "no locks in use"

// few breaks a text into lines, at most a part of the screen.
func (s screen) few(text string) []string {
	lines := strings.Split(text, "\n")
	if folded := strings.Split(s.Fold(text, 0), "\n"); len(folded)-len(lines) < s.height/6 {
		return folded
	}
	return lines
}

// draw returns the screen's content.
func (s screen) draw() string {
	last := s.in(quiet, "q ends it")
	if s.err != nil {
		text := inspect.Cause(s.err)
		if !s.at.IsZero() {
			text = "values " + inspect.Span(s.now.Sub(s.at)) + " old: " + text
		}
		last = s.in(bad, text)
	}
	var foot []string
	if s.Notes != nil {
		foot = s.Notes()
	}
	foot = s.few(strings.Join(append(foot, last), "\n"))
	head, body := s.body()
	lines := append(append(s.few(s.Title(s.at)), ""), head...)
	rows := max(s.height-len(lines)-len(foot)-1, 0)
	if body = body[min(s.top, len(body)):]; len(body) > rows {
		more := s.in(quiet, fmt.Sprintf("… %s more", inspect.Count(len(body)-rows+1, "line")))
		body = append(body[:max(rows-1, 0):max(rows-1, 0)], more)
	}
	lines = append(lines, body...)
	for len(lines) < s.height-len(foot) {
		lines = append(lines, "")
	}
	lines = append(lines, foot...)
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, s.Width, "…")
	}
	return strings.Join(lines[:min(len(lines), max(s.height, 1))], "\n")
}
