package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/bench"
	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/locks"
	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
)

const benchHelp = `Measures what locks cost on this server, from this machine: a lock and unlock of free locks, one after the other and
many at once; and handoffs of one lock among many contenders, from the release to the next grant. Beside each stands the
floor, the least that it can cost there: SET NX PX and a script that compares and deletes; for handoffs, a message that
is passed from client to client by PUBLISH, one at a time, which locks that admit several holders can beat. Both are
measured in short turns, so that noise affects both. Trust the ratios more than the figures.

With --kind rw, free locks are locked for writing, and of the contenders one in four writes.

It loads the server: think twice before you run it on one that is in use. It uses locks of its own (bench-… in the
namespace), and deletes them in the end. If it is killed before, they expire within 10 min. ^C ends it, and prints what
it has.

With --json: {"kind", "permits", "contenders", "clients", "rounds", "interrupted", "workloads": [{"workload":
"pairs-in-turn", "pairs-at-once" or "handoffs", "fairlock", "floor", "ratio": {"all", "low", "high"}}]}; fairlock and
floor are {"ops", "seconds", "per_second", "p50_us", "p90_us", "p99_us", "max_us"}; rounds are those that were finished,
low and high the worst and the best of them.`

func benchCommand(c *connection) *cobra.Command {
	var cfg bench.Config
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what locks cost on a server, beside the least that is possible",
		Long:  benchHelp,
		Example: `  fairlock bench
  fairlock bench --kind semaphore --permits 5 --contenders 200 --duration 30s
  fairlock bench --json | jq '.workloads[] | {workload, ratio: .ratio.all}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Check(); err != nil {
				return withCode(exitUsage, err)
			}
			progress := newProgress(cmd.ErrOrStderr())
			result, err := bench.Run(cmd.Context(), cfg, c.open, c.prefix(), progress.show)
			progress.clear()
			switch out := cmd.OutOrStdout(); {
			case result.Workloads == nil:
				return cmp.Or(context.Cause(cmd.Context()), err)
			case asJSON:
				return errors.Join(writeJSON(out, result), err)
			default:
				_, failed := fmt.Fprint(out, result)
				return errors.Join(failed, err)
			}
		},
	}
	typeFlags(cmd, &cfg.Type)
	f := cmd.Flags()
	f.IntVar(&cfg.Contenders, "contenders", 64, "goroutines, over all clients")
	f.IntVar(&cfg.Clients, "clients", 8, "clients, with connections of their own")
	f.DurationVar(&cfg.Duration, "duration", 10*time.Second, "how long to measure; warming up comes on top")
	f.BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// typeFlags adds the flags of a lock's type. Only a semaphore has permits.
func typeFlags(cmd *cobra.Command, t *locks.Type) {
	cmd.Flags().StringVar((*string)(&t.Kind), "kind", string(view.Mutex), "mutex, semaphore or rw")
	cmd.Flags().IntVar(&t.Permits, "permits", 5, "permits of the semaphore")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if t.Kind == view.Semaphore {
			return nil
		}
		t.Permits = 0
		if cmd.Flags().Changed("permits") {
			return usage("--permits goes with --kind semaphore; there are none with --kind %s", t.Kind)
		}
		return nil
	}
}

// writeJSON writes a value for a script, and for a person who looks.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
