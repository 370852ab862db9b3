package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/words"
)

// releaser takes a lock from its holders.
type releaser struct {
	looker
	id    inspect.ID
	fence uint64 // of the only holder to take it from; 0: from all
	force bool   // do not ask
	in    io.Reader
	errs  io.Writer
}

func releaseCommand(c *connection) *cobra.Command {
	r := releaser{looker: looker{connection: c, writes: true}}
	cmd := &cobra.Command{
		Use:               "release NAME",
		Short:             "Take a lock from its holders",
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			r.in, r.errs = cmd.InOrStdin(), cmd.ErrOrStderr()
			switch {
			case !r.force && keyboard(r.in) == nil:
				return usage(
					"release takes the lock from its holders, and there is no terminal to ask on: use --force to confirm")
			case cmd.Flags().Changed("fence") && r.fence == 0:
				return usage("--fence is 0, must be that of a holder")
			}
			r.id.Name = names[0]
			return r.with(cmd.Context(), cmd.OutOrStdout(), r.run)
		},
	}
	r.flags(cmd, "mutex")
	f := cmd.Flags()
	f.BoolVar(&r.force, "force", false, "do not ask")
	f.Uint64Var(&r.fence, "fence", 0, "take it from the one holder with this fence")
	return cmd
}

func (r *releaser) run(ctx context.Context) error {
	r.id.Kind = r.kinds[0]
	before, err := r.look(ctx, slices.Concat(r.kinds[:1], inspect.Kinds)...)
	if err != nil {
		return err
	}
	if !before.Held() && r.fence == 0 {
		if text := r.meant(ctx, []inspect.Lock{before}); text != "" {
			_, _ = fmt.Fprintln(r.errs, "fairlock:", text)
		}
		return r.report(false, before, before)
	}
	if r.fence > 0 { // show only that holder
		before.Holders = slices.DeleteFunc(before.Holders, func(h admin.Holder) bool { return h.Fence != r.fence })
		if len(before.Holders) == 0 {
			return withCode(exitFailure, fmt.Errorf("%s has no holder with fence %d", r.id, r.fence))
		}
		before.Used = before.Holders[0].Weight
	}
	if !r.force {
		if err := r.ask(ctx, before); err != nil {
			return err
		}
	}
	released, err := r.take(ctx, before)
	if err != nil {
		return inspect.Bare(err)
	}
	after, err := r.look(ctx, r.id.Kind)
	if err != nil {
		return fmt.Errorf("%s is released; its new holders could not be read: %w", r.id, err)
	}
	return r.report(released, before, after)
}

// look reads the lock of the first kind. It reads the others to name them if the user has named no kind.
func (r *releaser) look(ctx context.Context, kinds ...fairlock.Kind) (inspect.Lock, error) {
	all, err := r.Read(ctx, inspect.Most, inspect.IDs([]string{r.id.Name}, kinds...)...)
	if err == nil {
		err = all[0].Err
	}
	if err != nil {
		return inspect.Lock{}, err
	}
	for _, other := range all[1:] {
		if !all[0].Held() && other.Held() {
			return inspect.Lock{}, usage("%s is not held, %s is: use --kind %[3]s for that one", r.id, other.ID, other.Kind)
		}
	}
	return all[0], nil
}

// ask shows the lock and waits for confirmation.
func (r *releaser) ask(ctx context.Context, l inspect.Lock) error {
	for _, line := range view.Block(view.Paint{Colours: colours(r.errs), Width: width(r.errs)}, l, inspect.Most) {
		_, _ = fmt.Fprintln(r.errs, line)
	}
	_, _ = fmt.Fprintf(r.errs, "Take %s from %s? [y/N] ", r.id, view.Holders(l))
	answer, err := inspect.Await(ctx, func() (string, error) { return bufio.NewReader(r.in).ReadString('\n') })
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	return withCode(exitFailure, fmt.Errorf("%s was not released", r.id))
}

// take takes the lock from all holders, or from those that were shown. The holders may have changed since then.
func (r *releaser) take(ctx context.Context, l inspect.Lock) (taken bool, err error) {
	if r.force && r.fence == 0 {
		return r.Admin.ForceRelease(ctx, fairlock.ID(r.id))
	}
	for _, h := range l.Holders {
		released, err := r.Admin.ReleaseHolder(ctx, fairlock.ID(r.id), h.Fence)
		if err != nil {
			return false, err
		}
		taken = taken || released
	}
	return taken, nil
}

// report prints the holders that have lost the lock, and those that hold it now.
func (r *releaser) report(released bool, before, after inspect.Lock) error {
	now := "it is free now"
	if len(after.Holders) > 0 {
		now = "now held by " + view.Holders(after)
	}
	text := fmt.Sprintf("%s was taken from %s; %s; its %s is %d", r.id, view.Holders(before), now, words.LastNumber,
		after.Fence)
	switch {
	case r.json:
		text = fmt.Sprintf(`{"released":%t,"before":%s,"after":%s}`, released, view.JSON(before), view.JSON(after))
	case !before.Held():
		text = fmt.Sprintf("%s is not held; nothing was done", r.id)
	case !released:
		text = fmt.Sprintf("%s was released meanwhile; nothing was done; %s", r.id, now)
	}
	_, err := fmt.Fprintln(r.out, text)
	return err
}
