package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/fairlock/fairlock-go/token"
)

// Plain is a text as it can stand in a line: as it is, or quoted as in Go if it is not valid UTF-8 or has anything that
// is not seen as itself: control characters, spaces, quotes, marks that turn the direction of writing.
func Plain(text string) string {
	odd := func(r rune) bool { return r == ' ' || r == '"' || r == '\\' || !strconv.IsPrint(r) }
	if text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// unseen replaces what would control a terminal by spaces.
func unseen(text string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// owner shows whose token it is.
func owner(t token.Token) string {
	if t.IsZero() {
		return "(not a token of ours)"
	}
	return t.String()
}

// span is a duration in a few characters, rounded down.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(time.Second/10))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
	}
}

// ago is how long it is since a moment that may be unknown.
func (l Lock) ago(since time.Time) string {
	if since.IsZero() {
		return unknown
	}
	return span(l.At.Sub(since))
}

const unknown = "?"

// on is a moment that may be unknown, in local time.
func on(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return t.Local().Format(time.DateTime)
}

// count is a number of things; English has an s for all of ours.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// fit cuts a text, coloured or not, to so many columns.
func fit(text string, width int) string { return ansi.Truncate(text, max(width, 0), "…") }

// shorten cuts the middle out of a text: what tells two clients apart is at both ends.
func shorten(text string, width int) string {
	if n := lipgloss.Width(text); n > width {
		return ansi.Truncate(text, width/2, "") + "…" + ansi.TruncateLeft(text, n-(width-width/2-1), "")
	}
	return text
}

// Paint is the colours to use; the zero Paint uses none. They are the terminal's own sixteen, so that they suit its
// background.
type Paint struct{ On bool }

var (
	strong = lipgloss.NewStyle().Bold(true)
	quiet  = lipgloss.NewStyle().Faint(true)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
)

func (p Paint) in(style lipgloss.Style, text string) string {
	if !p.On || text == "" {
		return text
	}
	return style.Render(text)
}
