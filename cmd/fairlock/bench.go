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
	"github.com/fairlock/fairlock-go/fairlock"
)

func benchCommand(c *connection) *cobra.Command {
	var cfg bench.Config
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what locks cost on a server, beside the least possible",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Check(); err != nil {
				return withCode(exitUsage, err)
			}
			progress := newProgress(cmd.ErrOrStderr())
			result, err := bench.Run(cmd.Context(), cfg, c.openPrimary, c.prefix(), progress.show)
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
	cmd.Flags().StringVar((*string)(&t.Kind), "kind", string(fairlock.KindMutex), "mutex, semaphore or rwmutex")
	cmd.Flags().IntVar(&t.Permits, "permits", 5, "permits of the semaphore")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if t.Kind == fairlock.KindSemaphore {
			return nil
		}
		t.Permits = 0
		if cmd.Flags().Changed("permits") {
			return usage("--permits needs --kind semaphore")
		}
		return nil
	}
}

// writeJSON writes a value as indented JSON.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
