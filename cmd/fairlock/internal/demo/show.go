package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
)

// show shows the lock until ctx ends, or the user of the live display has had enough.
func (d *demo) show(ctx context.Context, server view.Server, in io.Reader) error {
	w := view.Watch{Server: server, IDs: []view.ID{{Kind: d.Kind, Name: d.lock}}, Every: time.Second}
	if !d.Live {
		w.Run(ctx, func(g view.Glance) {
			if g.Err != nil {
				d.note(g.Err.Error())
			}
			for _, l := range g.Locks {
				d.note(l.Line())
			}
		})
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	program := tea.NewProgram(screen{demo: d, width: 80, height: 24},
		tea.WithInput(in), tea.WithOutput(d.out), tea.WithoutSignalHandler())
	over := make(chan struct{})
	w.Every = view.MinInterval
	go func() {
		defer close(over)
		w.Run(ctx, func(g view.Glance) { program.Send(g) })
		program.Quit()
	}()
	_, err := program.Run()
	stop()
	<-over
	return err
}

// stats says how many grants there were.
func (d *demo) stats() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, names := 0, make([]string, len(d.grants))
	for i, n := range d.grants {
		all += n
		names[i] = fmt.Sprintf("%s %d", clientName(i), n)
	}
	return fmt.Sprintf("%d grants: %s", all, strings.Join(names, ", "))
}

// screen is the live display: the lock as fairlock status shows it, and what the demo has done.
type screen struct {
	demo          *demo
	width, height int
	glance        view.Glance
}

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case view.Glance:
		s.glance = m
	case tea.KeyPressMsg:
		if slices.Contains([]string{"q", "esc", "ctrl+c"}, m.String()) {
			return s, tea.Quit
		}
	}
	return s, nil
}

// View implements tea.Model.
func (s screen) View() tea.View {
	d, stats := s.demo, s.demo.stats()
	d.mu.Lock()
	foot := slices.Concat([]string{""}, d.notes, []string{stats, "q ends it"})
	d.mu.Unlock()
	lines := []string{d.title(), ""}
	for _, l := range s.glance.Locks {
		lines = append(lines, l.Block(view.Paint{On: true}, max(s.height-len(lines)-len(foot), 1))...)
	}
	if err := s.glance.Err; err != nil {
		lines = append(lines, err.Error())
	}
	for len(lines) < s.height-len(foot) {
		lines = append(lines, "")
	}
	lines = append(lines, foot...)
	lines = lines[:min(len(lines), max(s.height, 1))]
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, max(s.width, 0), "…")
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen, v.WindowTitle = true, "fairlock demo"
	return v
}

func (d *demo) title() string {
	return fmt.Sprintf("fairlock demo   %v · %d clients × %d workers · Redis %s   %.1fs",
		d.Type, d.Clients, d.Workers, d.Where, time.Since(d.began).Seconds())
}
