package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

func doctorCommand(c *connection) *cobra.Command {
	var asJSON, rights bool
	var purpose string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a server for what locks need",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(doctor.Purposes, doctor.Purpose(purpose)) {
				return usage("--for %s is unknown: want use, look or operate", inspect.Plain(purpose))
			}
			progress := newProgress(cmd.ErrOrStderr())
			report, err := c.doctor(cmd.Context(), doctor.Purpose(purpose), progress.show)
			progress.clear()
			var werr error
			shown := report.Rights
			if !rights { // those that lack
				shown = report.Lacking(doctor.Purpose(purpose))
			}
			switch out := cmd.OutOrStdout(); {
			case report.Checks == nil:
				return err
			case asJSON:
				werr = writeJSON(out, report)
			default:
				werr = writeReport(out, report, shown)
			}
			if werr != nil {
				return werr
			}
			switch {
			case err != nil && report.Count(doctor.Problem) > 0: // the report has said so
				err = withCode(exitCode(err), errSilent)
			case err == nil && report.Count(doctor.Problem) > 0:
				err = withCode(exitFailure, errSilent)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.Flags().BoolVar(&rights, "rights", false, "show the least rights for each purpose, even if none are missing")
	cmd.Flags().StringVar(&purpose, "for", string(doctor.Use), "what the user is for: use, look or operate")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions( // fails only if there is no such flag
		[]string{string(doctor.Use), string(doctor.Look), string(doctor.Operate)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// doctor checks the server. If the server cannot be reached, it returns a report and the error.
func (c *connection) doctor(ctx context.Context, purpose doctor.Purpose, show func(string)) (doctor.Report, error) {
	target, err := c.target()
	if err != nil {
		return doctor.Report{}, err
	}
	o := doctor.Options{
		Namespace: c.prefix(), Address: target.where(), For: purpose,
		Progress: func(server, check string) { show("checking " + server + ": " + check) },
	}
	rdb, err := c.open(ctx)
	if err != nil {
		return doctor.Unreachable(o, err), err
	}
	defer func() { _ = rdb.Close() }()
	return doctor.Run(ctx, rdb, o), context.Cause(ctx)
}

var results = map[doctor.Result]lipgloss.Style{
	doctor.OK:        lipgloss.NewStyle().Foreground(lipgloss.Green),
	doctor.Warning:   lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	doctor.Problem:   lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true),
	doctor.Unchecked: lipgloss.NewStyle().Faint(true),
}

// writeReport writes the problems first, each with what to do, and all checks that are ok in one line. rights are the
// least rights to show.
func writeReport(w io.Writer, r doctor.Report, rights []doctor.Rights) error {
	var b strings.Builder
	p, indent, start := view.Paint{Width: width(w)}, 28, ""
	if 0 < p.Width && p.Width < 60 {
		indent, start = 4, "\n    "
	}
	column := strings.Repeat(" ", indent)
	lines := func(text string) string { // folds a text to the terminal's width
		return strings.ReplaceAll(view.Paint{Width: max(p.Width-indent, 0)}.Fold(text, 0), "\n", "\n"+column)
	}
	result := func(of doctor.Result, name string) string {
		text := fmt.Sprintf("%-9s", of)
		if colours(w) {
			text = results[of].Render(text)
		}
		return fmt.Sprintf("  %s  %-13s  %s", text, name, start)
	}
	for i, server := range r.Servers() {
		bad, well := server.Sorted()
		fmt.Fprintf(&b, "%s%s, namespace %s\n", strings.Repeat("\n", min(i, 1)), server.Checks[0].Server, r.Namespace)
		last, unchecked := "", map[string][]string{}
		for _, f := range bad {
			if f.Result == doctor.Unchecked {
				unchecked[f.Found] = append(unchecked[f.Found], f.Check)
				continue
			}
			fmt.Fprintf(&b, "%s%s\n", result(f.Result, f.Check), lines(f.Found))
			if f.Advice != "" && f.Advice != last { // once is enough
				fmt.Fprintf(&b, "%s%s\n", column, lines("-> "+f.Advice))
			}
			last = f.Advice
			for line := range strings.Lines(f.Paste) { // unfolded, to be copied
				fmt.Fprintf(&b, "%s   %s\n", column, strings.TrimSuffix(line, "\n"))
			}
		}
		for _, found := range slices.Sorted(maps.Keys(unchecked)) {
			fmt.Fprintf(&b, "%s%s\n", result(doctor.Unchecked, ""), lines(strings.Join(unchecked[found], ", ")+": "+found))
		}
		var names []string
		for _, f := range well {
			names = append(names, f.Check+map[bool]string{true: " (" + f.Found + ")"}[f.Check == "version"])
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, "%s%s\n", result(doctor.OK, ""), lines(strings.Join(names, ", ")))
		}
	}
	fmt.Fprintf(&b, "\n%s, %s, %d of %d unchecked%s\n", inspect.Count(r.Count(doctor.Problem), "problem"),
		inspect.Count(r.Count(doctor.Warning), "warning"), r.Count(doctor.Unchecked), len(r.Checks),
		map[bool]string{true: "; this user may not read the others, an admin's may"}[r.Blind()])
	if len(rights) > 0 {
		fmt.Fprintf(&b, "\n%s\n", p.Fold(
			"The least rights in this namespace, for redis-cli (choose the names and passwords):", 0))
	}
	for _, one := range rights {
		fmt.Fprintf(&b, "\n  To %s:\n%s\n", one.For, one.ACL)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
