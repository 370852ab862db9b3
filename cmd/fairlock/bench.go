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
	"github.com/fairlock/fairlock-go/fairlock"
)

const benchHelp = `Measures what locks cost on this server, from this machine: a lock and unlock of free locks, one after the other and many
at once; and hand-offs of one lock among many contenders, where the latency is the time from the release to the next one
in. Beside each stands the floor, the least that it can cost there: SET NX PX and a script that compares and deletes, by
plain go-redis on the same connections; and for hand-offs a message passed from client to client (PUBLISH), one at a
time, which locks that let in several can beat. Both are measured in short turns, so that noise hits both. Trust the
ratios more than the figures.

With --kind rw, free locks are locked for writing, and of the contenders one in four writes.

It loads the server: think twice before you run it on one that is in use. It uses locks with names of its own (bench-…
in the namespace), and deletes in the end all that is left of them. If it is killed before, what stays is their fences,
which expire after 10 min. ^C ends it, and prints what it has.

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
			if cmd.Flags().Changed("permits") && cfg.Kind != bench.Semaphore {
				return usage("--permits goes with --kind semaphore; there are none with --kind %s", cfg.Kind)
			}
			progress := newProgress(cmd.ErrOrStderr())
			result, err := c.bench(cmd.Context(), cfg, progress.show)
			progress.clear()
			if result.Empty() {
				return cmp.Or(err, context.Cause(cmd.Context()))
			}
			return errors.Join(writeResult(cmd.OutOrStdout(), result, asJSON), err)
		},
	}
	f := cmd.Flags()
	f.StringVar((*string)(&cfg.Kind), "kind", string(bench.Mutex), "what is locked: mutex, semaphore or rw")
	f.IntVar(&cfg.Permits, "permits", 5, "permits of the semaphore")
	f.IntVar(&cfg.Contenders, "contenders", 64, "goroutines, over all clients")
	f.IntVar(&cfg.Clients, "clients", 8, "clients, with connections of their own")
	f.DurationVar(&cfg.Duration, "duration", 10*time.Second, "how long to measure; warming up comes on top")
	f.BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// bench connects the clients and measures. With an error or after a signal the result is what was measured until then.
func (c *connection) bench(ctx context.Context, cfg bench.Config, show func(string)) (bench.Result, error) {
	clients := make([]bench.Client, cfg.Clients)
	for i := range clients {
		show(fmt.Sprintf("connecting, client %d of %d", i+1, cfg.Clients))
		rdb, err := c.open(ctx)
		if err != nil {
			return bench.Result{}, err
		}
		defer func() { _ = rdb.Close() }()
		locks, err := c.locks(rdb, fairlock.Config{})
		if err != nil {
			return bench.Result{}, err
		}
		defer locks.Close()
		clients[i] = bench.Client{Redis: rdb, Locks: locks}
	}
	return bench.Run(ctx, clients, c.prefix(), cfg, show)
}

func writeResult(w io.Writer, r bench.Result, asJSON bool) error {
	if asJSON {
		return writeJSON(w, r)
	}
	return r.Text(w, colours(w))
}

// writeJSON writes a value for a script, and for a person who looks.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
