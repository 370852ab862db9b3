package doctor

import (
	"fmt"
	"io"
	"strings"

	"charm.land/lipgloss/v2"
)

// The colours are the terminal's own sixteen, so that they suit its background.
var colours = map[Result]lipgloss.Style{
	OK:        lipgloss.NewStyle().Foreground(lipgloss.Green),
	Warning:   lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	Problem:   lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true),
	Unchecked: lipgloss.NewStyle().Faint(true),
}

// Text writes the report for a person: a line for each check, and one for what to do.
func (r Report) Text(w io.Writer, colour bool) error {
	var b strings.Builder
	last, advice := "", ""
	for i, f := range r.Checks {
		if f.Server != last || i == 0 {
			fmt.Fprintf(&b, "%s%s, namespace %q\n", strings.Repeat("\n", min(i, 1)), f.Server, r.Namespace)
			last, advice = f.Server, ""
		}
		result := fmt.Sprintf("%-9s", f.Result)
		if colour {
			result = colours[f.Result].Render(result)
		}
		fmt.Fprintf(&b, "  %s  %-12s  %s\n", result, f.Check, f.Found)
		if f.Advice != "" && f.Advice != advice { // once is enough
			fmt.Fprintf(&b, "%27s-> %s\n", "", f.Advice)
		}
		advice = f.Advice
	}
	fmt.Fprintf(&b, "\n%s, %s, %d unchecked\n", count(r.Problems, "problem"), count(r.Warnings, "warning"), r.Unchecked)
	fmt.Fprintf(&b, "\nThe least rights for locks in this namespace, for redis-cli (choose the name and the password):\n%s\n", r.ACL)
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
