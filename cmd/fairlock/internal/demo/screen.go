package demo

import (
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"
)

// frame is the time between pictures: eight a second are lively and still readable.
const frame = 125 * time.Millisecond

// screen is the live display.
type screen struct {
	source        func() snapshot
	quit          func() // ends the demo, which then ends the display
	width, height int
	now           snapshot
}

type tick struct{}

func next() tea.Cmd { return tea.Tick(frame, func(time.Time) tea.Msg { return tick{} }) }

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return next() }

// Update implements tea.Model.
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		switch m.String() {
		case "q", "esc", "ctrl+c":
			s.quit()
		}
	case tick:
		s.now = s.source()
		return s, next()
	}
	return s, nil
}

// View implements tea.Model.
func (s screen) View() tea.View {
	v := tea.NewView(s.now.draw(s.width, s.height))
	v.AltScreen = true
	v.WindowTitle = "fairlock demo"
	return v
}

// showLive draws the display on out until over is closed.
func showLive(out io.Writer, source func() snapshot, quit func(), over <-chan struct{}) error {
	opts := []tea.ProgramOption{tea.WithOutput(out), tea.WithoutSignalHandler()}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		opts = append(opts, tea.WithInput(nil))
	}
	p := tea.NewProgram(screen{source: source, quit: quit, width: 80, height: 24, now: source()}, opts...)
	ended := make(chan struct{})
	go func() { // ends with over or with the program
		select {
		case <-over:
			p.Quit()
		case <-ended:
		}
	}()
	_, err := p.Run()
	close(ended)
	return err
}
