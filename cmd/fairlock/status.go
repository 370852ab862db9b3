package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/fairlock"
)

const statusHelp = `Shows who holds the lock NAME, since when and for how much longer, with which fence; and who waits, in order, for how
long, and whether that one is alive. A waiter is silent if its client has not been heard of for one WaiterTTL; it is
passed over when it is its turn, unless it comes back. A holder that has died holds the lock until its lease ends.

A mutex, a semaphore and a read-write lock of one name are different locks: without --kind, those that are in use are
shown. A client is shown by its id and four characters that tell its acquisitions apart.

SINCE and HELD FOR go by the fence, which is the time of the grant by Redis's clock; they are wrong if that clock was
stepped since, and ? if that shows.

The exit code is 0 whether the lock is held or free; see help exit-codes for others.`

const statusExample = `  fairlock status billing:42
  fairlock status billing:42 --kind semaphore
  fairlock status billing:42 --json | jq -r '.[].holders[].client'   # who holds it
  fairlock status billing:42 --json | jq -e 'length == 0'            # exit code 0 if it is free`

// jsonHelp describes what view.JSON writes.
const jsonHelp = `

With --json, an array of locks, one on each line:
    kind          mutex, semaphore or rw
    name          and name_base64 if the name is not valid UTF-8
    at            time by Redis's clock (times are UTC, durations ms; what is not known is null)
    held          whether anybody holds it
    used          permits held: of a semaphore of so many, of a rw lock its readers or 1 writer
    permits       how many there are of a semaphore in use; 1 of a mutex; null of a rw lock
    fence         of the last grant
    resting_ms    null, or for how much longer nobody gets the lock because Redis had lost its data
    holders       client, id, fence, since, held_ms, lease_left_ms (null: it never ends), permits, writer; those first
                  whose leases end first
    waiting       how many wait
    waiters       client, id, since, waiting_ms, alive, patience_ms (for how long it keeps its place though it is
                  silent; negative: since when it does not), permits, writer; in order
client and id are null if what stands in Redis is not ours. id is not a token: nobody can release a lock with it.`

// statusBound tells of view.Most.
const statusBound = "\n\nAt most %d holders and %[1]d waiters are listed."

func statusCommand(c *connection) *cobra.Command {
	var kind string
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "status NAME",
		Short:             "Show who holds a lock, and who waits",
		Long:              statusHelp + jsonHelp + fmt.Sprintf(statusBound, view.Most),
		Example:           statusExample,
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			kinds, err := kindsOf(kind)
			if err != nil {
				return err
			}
			return withServer(cmd.Context(), c, func(ctx context.Context, s view.Server) error {
				answered := patiently("waiting for an answer")
				locks, err := s.Look(ctx, view.Most, view.IDs(names, kinds...)...)
				answered()
				if err != nil || asJSON && kind == "" {
					locks = view.InUse(locks) // after an error, that something is free may mislead
				}
				if err == nil || len(locks) > 0 {
					err = cmp.Or(err, showStatus(cmd.OutOrStdout(), locks, asJSON))
				}
				return err
			})
		},
	}
	kindFlag(cmd, &kind, "which lock: mutex, semaphore or rw (default: those in use)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "for scripts")
	return cmd
}

func showStatus(out io.Writer, locks []view.Lock, asJSON bool) error {
	if asJSON {
		_, err := io.WriteString(out, view.JSON(locks))
		return err
	}
	var lines []string
	for i, l := range view.Worth(locks) {
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, l.Block(view.Paint{On: colours(out)}, view.All)...)
	}
	return writeLines(out, lines)
}

func writeLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// withServer connects, and has f use the server.
func withServer(ctx context.Context, c *connection, f func(context.Context, view.Server) error) error {
	namespace := c.prefix()
	if strings.ContainsAny(namespace, "{}") || len(namespace) > fairlock.MaxNamespace {
		return usage("--namespace: must have no braces and at most %d bytes", fairlock.MaxNamespace)
	}
	rdb, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	err = f(ctx, view.Server{Redis: rdb, Namespace: namespace})
	if _, moved := redis.IsMovedError(err); moved || errors.Is(err, view.ErrPart) {
		return usage("%w; --redis needs its URL as that of a cluster (see help connection)", err)
	}
	return err
}

// kindsOf are the kinds to look at: all, if none is named.
func kindsOf(kind string) ([]view.Kind, error) {
	if kind == "" {
		return view.Kinds, nil
	}
	k, err := view.ParseKind(kind)
	return []view.Kind{k}, withCode(exitUsage, err)
}

func kindFlag(cmd *cobra.Command, kind *string, text string) {
	cmd.Flags().StringVar(kind, "kind", "", text)
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions( // fails only if there is no such flag
		[]string{string(view.Mutex), string(view.Semaphore), string(view.RW)}, cobra.ShellCompDirectiveNoFileComp))
}

func oneName(cmd *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(cmd, args); err != nil {
		return usage("want the NAME of one lock, have %d (a name with spaces needs quotes)", len(args))
	}
	return someNames(cmd, args)
}

// someNames checks the names of locks.
func someNames(_ *cobra.Command, names []string) error {
	if slices.ContainsFunc(names, func(name string) bool { return name == "" || len(name) > fairlock.MaxName }) {
		return usage("the NAME of a lock must have 1 to %d bytes", fairlock.MaxName)
	}
	return nil
}
