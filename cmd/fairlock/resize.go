package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/locks"
	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

func resizeCommand(c *connection) *cobra.Command {
	l := looker{connection: c, writes: true}
	var permits int
	var reset bool
	cmd := &cobra.Command{
		Use:               "resize NAME --permits N | --reset",
		Short:             "Change the number of permits of a semaphore",
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			given := cmd.Flags().Changed("permits")
			l.kind = cmp.Or(l.kind, string(fairlock.KindSemaphore))
			kind, err := inspect.ParseKind(l.kind)
			switch {
			case err != nil:
				return withCode(exitUsage, err)
			case !inspect.HasPermits(kind):
				return usage("--kind %s has no number of permits: want semaphore or keyed", kind)
			case given && reset:
				return usage("--permits cannot be combined with --reset")
			case !given && !reset:
				return usage("use --permits N, or --reset so that each client's own number counts")
			case given:
				if err := locks.Within("--permits", permits, 1, bounds.MaxPermits); err != nil {
					return withCode(exitUsage, err)
				}
			}
			return l.with(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) error {
				return l.resize(ctx, inspect.ID{Kind: fairlock.Kind(l.kind), Name: names[0]}, permits)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&permits, "permits", 0, "the number of permits for all clients, whatever number they use")
	f.BoolVar(&reset, "reset", false, "let each client's own number count again")
	kindFlag(cmd, &l.kind, "semaphore or keyed (default semaphore)")
	f.BoolVar(&l.json, "json", false, "for scripts")
	return cmd
}

// resize sets the number of permits, and prints the holders. With 0, the number that each request brings counts again.
func (l *looker) resize(ctx context.Context, id inspect.ID, permits int) error {
	var err error
	if permits == 0 {
		err = l.Admin.ResetSize(ctx, fairlock.ID(id))
	} else {
		err = l.Admin.Resize(ctx, fairlock.ID(id), permits)
	}
	if err != nil {
		return inspect.Bare(err)
	}
	all, err := l.Read(ctx, inspect.Most, id)
	if err == nil {
		err = all[0].Err
	}
	if err != nil {
		return fmt.Errorf("%s is resized; its new state could not be read: %w", id, err)
	}
	now := "the number of permits that each client uses"
	if permits > 0 {
		now = inspect.Count(permits, "permit")
	}
	text := fmt.Sprintf("%s has %s from now on; ", id, now)
	switch {
	case all[0].InUse():
		text += fmt.Sprintf("%d held, %d waiting", all[0].Used, all[0].Waiting)
	case all[0].Fence > 0 || permits == 0:
		text += "it is not in use"
	default:
		text += "it was not used lately: if the name is wrong, undo this by --reset"
	}
	if l.json {
		text = view.JSON(all[0])
	}
	_, err = fmt.Fprintln(l.out, text)
	return err
}
