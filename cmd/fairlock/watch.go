package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
)

const watchHelp = `Shows locks as they change: those named, in full, as fairlock status does, or all that are in use, one on a line, as
fairlock list does. It looks twice a second, or as often as --interval says; what comes and goes in between is not seen.
All locks that are in use are searched for every two seconds. If there are very many locks, or keys, it looks and
searches more rarely, so that this is no load for the server.

On a terminal, q, Escape or ^C end it, and the arrows and pages go through the locks. Otherwise, or with --plain, a line
is written for each lock whenever it changes: it names who holds the lock, how many wait, and the first of them. With
--json a JSON object is written whenever holders or waiters change: with NAMEs as the elements of fairlock status --json,
otherwise as those of fairlock list --json, without the waiters; nothing of a NAME that was never used. A SIGTERM or ^C
ends it, with exit code 0. If Redis cannot be reached any more, it says so and goes on trying.`

const watchExample = `  fairlock watch
  fairlock watch --prefix billing:
  fairlock watch billing:42 reports --interval 2s
  fairlock watch billing:42 --json | jq --unbuffered -r 'select(.waiting > 100) | .at'`

func watchCommand(c *connection) *cobra.Command {
	var w view.Watch
	var kind string
	var plain, asJSON bool
	cmd := &cobra.Command{
		Use:               "watch [NAME...]",
		Short:             "Watch locks change",
		Long:              watchHelp,
		Example:           watchExample,
		Args:              someNames,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			kinds, err := kindsOf(kind)
			switch {
			case err != nil:
				return err
			case w.Every < view.MinInterval:
				return usage("--interval is %v, must be at least %v", w.Every, view.MinInterval)
			case len(names) > 0 && cmd.Flags().Changed("prefix"):
				return usage("--prefix goes without a NAME")
			}
			w.Want.Kinds, w.IDs = kinds, view.IDs(names, kinds...)
			return withServer(cmd.Context(), c, func(ctx context.Context, s view.Server) error {
				w.Server = s
				if out := cmd.OutOrStdout(); !plain && !asJSON && isTerminal(out) {
					return view.ShowLive(ctx, keyboard(cmd.InOrStdin()), out, view.Paint{On: colours(out)}, w)
				}
				return follow(ctx, w, asJSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	kindFlag(cmd, &kind, "mutex, semaphore or rw (default: those in use)")
	f := cmd.Flags()
	f.StringVar(&w.Want.Prefix, "prefix", "", "without a NAME: those whose names begin with `TEXT`")
	f.DurationVar(&w.Every, "interval", 500*time.Millisecond, "how often to look")
	f.BoolVar(&plain, "plain", false, "write lines, even on a terminal")
	f.BoolVar(&asJSON, "json", false, "for scripts")
	return cmd
}

// keyboard is in, if that is one.
func keyboard(in io.Reader) io.Reader {
	if f, ok := in.(*os.File); ok && isTerminal(f) {
		return in
	}
	return nil
}

// follow writes what changes, until ctx ends or nobody reads it any more.
func follow(ctx context.Context, w view.Watch, asJSON bool, out, errs io.Writer) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var broken error
	changes := view.Changes{Full: asJSON}
	w.Run(ctx, func(g view.Glance) {
		if fault := changes.Fault(g); fault != "" {
			_, _ = fmt.Fprintf(errs, "fairlock: %s; trying on\n", fault)
		}
		for _, l := range changes.Of(g) {
			line := l.At.Local().Format("2006-01-02T15:04:05.000Z07:00") + "  " + l.Line()
			if asJSON {
				if line = l.JSON(); l.Kind == "" {
					continue // of that name there is nothing
				}
			}
			if _, err := fmt.Fprintln(out, line); err != nil {
				broken = err
				stop(err)
				return
			}
		}
	})
	return broken
}
