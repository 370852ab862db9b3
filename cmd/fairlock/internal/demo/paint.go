package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
)

// The colours are the terminal's own sixteen, so that they suit its background.
var (
	strong = lipgloss.NewStyle().Bold(true)
	quiet  = lipgloss.NewStyle().Faint(true)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red)

	palette = []lipgloss.Style{
		lipgloss.NewStyle().Foreground(lipgloss.Cyan),
		lipgloss.NewStyle().Foreground(lipgloss.Yellow),
		lipgloss.NewStyle().Foreground(lipgloss.Magenta),
		lipgloss.NewStyle().Foreground(lipgloss.Blue),
		lipgloss.NewStyle().Foreground(lipgloss.BrightCyan),
		lipgloss.NewStyle().Foreground(lipgloss.BrightYellow),
		lipgloss.NewStyle().Foreground(lipgloss.BrightMagenta),
		lipgloss.NewStyle().Foreground(lipgloss.BrightBlue),
	}
)

// nameWidth is that of "client-10" and a mark.
const nameWidth = 11

// name shows a client in its colour, or as dead.
func (s snapshot) name(client string) string {
	text := s.short(client)
	if s.dead[client] {
		return bad.Render(pad(text+" ✗", nameWidth))
	}
	n := 0
	_, _ = fmt.Sscanf(text, "client-%d", &n) // a stranger's gets the first colour
	return palette[n%len(palette)].Render(pad(text, nameWidth))
}

// bar shows how much of a whole is left.
func bar(left, whole time.Duration, width int) string {
	n := 0
	if whole > 0 {
		n = int((left*time.Duration(width) + whole - 1) / whole)
	}
	n = min(max(n, 0), width)
	return strings.Repeat("▰", n) + quiet.Render(strings.Repeat("▱", width-n))
}

// pad makes a line exactly so wide.
func pad(text string, width int) string {
	text = lipgloss.NewStyle().Inline(true).MaxWidth(width).Render(text)
	return text + strings.Repeat(" ", max(0, width-lipgloss.Width(text)))
}

// flag shows a count that must be 0.
func flag(n int) string {
	if n == 0 {
		return good.Render("0")
	}
	return bad.Bold(true).Render(strconv.Itoa(n))
}
