package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
)

const listHelp = `Lists all locks that somebody holds or waits for, on every master of a cluster, by name. Of a lock with several holders,
the one is shown whose lease ends first. IN USE tells how many permits of a semaphore are held, and whether readers or a
writer have a read-write lock.

The keys are found by SCAN, some at a time: the server goes on serving others. How long it takes depends on how many
keys there are, of all users of that database: about two seconds for a million. A lock that is taken or given back
meanwhile may be listed or not. The user needs the right to SCAN.`

const listExample = `  fairlock list
  fairlock list --prefix billing: --kind mutex
  fairlock list --json | jq -r '.[] | select(.waiting > 100) | .name'`

// listBound tells of view.Listed.
const listBound = "\n\nHere at most %d holders are listed, and there is no waiters."

func listCommand(c *connection) *cobra.Command {
	var want view.Want
	var kind string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List all locks in use",
		Long:    listHelp + jsonHelp + fmt.Sprintf(listBound, view.Listed),
		Example: listExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if want.Kinds, err = kindsOf(kind); err != nil {
				return err
			}
			return withServer(cmd.Context(), c, func(ctx context.Context, s view.Server) error {
				p, next := newProgress(cmd.ErrOrStderr()), time.Time{}
				locks, err := s.List(ctx, want, func(at view.Progress) {
					if now := time.Now(); now.After(next) { // often enough
						next = now.Add(200 * time.Millisecond)
						p.show(at.String())
					}
				})
				p.clear()
				if err == nil || len(locks) > 0 {
					err = cmp.Or(err, showList(cmd.OutOrStdout(), locks, asJSON))
				}
				return err
			})
		},
	}
	kindFlag(cmd, &kind, "mutex, semaphore or rw (default: all)")
	cmd.Flags().StringVar(&want.Prefix, "prefix", "", "those whose names begin with `TEXT`; there are no wildcards")
	cmd.Flags().BoolVar(&asJSON, "json", false, "for scripts")
	return cmd
}

func showList(out io.Writer, locks []view.Lock, asJSON bool) (err error) {
	switch {
	case asJSON:
		_, err = io.WriteString(out, view.JSON(locks))
	case len(locks) > 0:
		err = writeLines(out, view.Table(view.Paint{On: colours(out)}, locks))
	case isTerminal(out):
		_, err = fmt.Fprintln(out, "no lock is in use")
	}
	return err
}
