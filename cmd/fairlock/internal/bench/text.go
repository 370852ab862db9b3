package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"
)

var bold, faint = lipgloss.NewStyle().Bold(true), lipgloss.NewStyle().Faint(true)

// title says in words what a workload is.
func (r Result) title(name string) string {
	switch name {
	case PairsInTurn:
		return "lock and unlock of free locks, one after the other"
	case PairsAtOnce:
		return fmt.Sprintf("lock and unlock of free locks, %d at once", r.Contenders)
	}
	return fmt.Sprintf("hand-offs of one lock among %d", r.Contenders)
}

// Text writes the result for a person.
func (r Result) Text(w io.Writer, colour bool) error {
	paint := func(style lipgloss.Style, text string) string {
		if colour {
			return style.Render(text)
		}
		return text
	}
	var b strings.Builder
	kind := string(r.Kind)
	if r.Kind == Semaphore {
		kind += fmt.Sprintf(" of %d", r.Permits)
	}
	fmt.Fprintf(&b, "%s, %d contenders over %d clients, %d of %d rounds\n", kind, r.Contenders, r.Clients, r.Rounds, rounds)
	fmt.Fprintf(&b, "\n%-26s%12s%12s%12s%12s%12s\n", "", "per second", "p50", "p90", "p99", "max")
	for _, load := range r.Workloads {
		floor := "SET NX, compare-and-delete"
		if load.Name == Handoffs {
			floor = "PUBLISH, wake-up"
		}
		fmt.Fprintf(&b, "%s\n", paint(bold, r.title(load.Name)))
		line(&b, "fairlock", load.Fairlock)
		line(&b, floor, load.Floor)
		ratio := "of the floor: nothing to compare"
		if q := load.Ratio; q.All > 0 {
			ratio = fmt.Sprintf("%.2f of the floor (%.2f to %.2f by round)", q.All, q.Low, q.High)
		}
		fmt.Fprintf(&b, "  %s\n", paint(faint, ratio))
	}
	if r.Interrupted {
		b.WriteString("\ninterrupted: this is what was measured until then\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func line(b *strings.Builder, name string, s Side) {
	fmt.Fprintf(b, "  %-26s", name)
	if s.Seconds == 0 {
		b.WriteString("         -\n")
		return
	}
	fmt.Fprintf(b, "%10s%12s%12s%12s%12s\n", thousands(s.PerSecond), brief(s.P50), brief(s.P90), brief(s.P99), brief(s.Max))
}

// thousands writes a rate with separators.
func thousands(v float64) string {
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// brief writes so many µs as ms.
func brief(us float64) string {
	if us == 0 {
		return "-"
	}
	return strconv.FormatFloat(us/1000, 'f', 3, 64) + " ms"
}
