package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/internal/doctor"
	"github.com/fairlock/fairlock-go/internal/inspect"
)

func doctorCommand(c *connection) *cobra.Command {
	var asJSON bool
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
			switch out := cmd.OutOrStdout(); {
			case report.Checks == nil:
				return err
			case asJSON:
				werr = writeJSON(out, report)
			default:
				werr = writeReport(out, report)
			}
			if werr != nil {
				return werr
			}
			if err == nil && report.Count(doctor.Problem) > 0 {
				err = withCode(exitFailure, errSilent)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.Flags().StringVar(&purpose, "for", string(doctor.Use), "what the user is for: use, look or operate")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions( // fails only if there is no such flag
		[]string{string(doctor.Use), string(doctor.Look), string(doctor.Operate)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// doctor checks the server. With a report on one that is out of reach comes the error.
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

// writeReport writes a line for each check, and one for what to do; then the rights, and what programs should set.
func writeReport(w io.Writer, r doctor.Report) error {
	var b strings.Builder
	p, indent, start := view.Paint{Width: width(w)}, 28, ""
	if 0 < p.Width && p.Width < 60 {
		indent, start = 4, "\n    "
	}
	last := doctor.Finding{}
	for i, f := range r.Checks {
		if i == 0 || f.Server != last.Server {
			fmt.Fprintf(&b, "%s%s, namespace %s\n", strings.Repeat("\n", min(i, 1)), f.Server, r.Namespace)
		}
		result := fmt.Sprintf("%-9s", f.Result)
		if colours(w) {
			result = results[f.Result].Render(result)
		}
		column := strings.Repeat(" ", indent)
		lines := func(text string) string { // as many as the terminal needs, below each other
			return strings.ReplaceAll(view.Paint{Width: max(p.Width-indent, 0)}.Fold(text, 0), "\n", "\n"+column)
		}
		fmt.Fprintf(&b, "  %s  %-13s  %s%s\n", result, f.Check, start, lines(f.Found))
		if f.Advice != "" && f.Advice != last.Advice { // once is enough
			fmt.Fprintf(&b, "%s%s\n", column, lines("-> "+f.Advice))
		}
		last = f
	}
	fmt.Fprintf(&b, "\n%s, %s, %d unchecked\n\n%s\n",
		inspect.Count(r.Count(doctor.Problem), "problem"), inspect.Count(r.Count(doctor.Warning), "warning"), r.Count(doctor.Unchecked),
		p.Fold("The least rights in this namespace, for redis-cli (choose the names and passwords):", 0))
	for _, rights := range r.Rights {
		fmt.Fprintf(&b, "\n  To %s:\n%s\n", rights.For, rights.ACL)
	}
	fmt.Fprintf(&b, "\n%s\n", p.Fold("In programs, set ContextTimeoutEnabled in the options of the go-redis client: "+
		"a lone lock and unlock are about twice as fast (see help doctor). No check of the server can see it.", 0))
	_, err := io.WriteString(w, b.String())
	return err
}
