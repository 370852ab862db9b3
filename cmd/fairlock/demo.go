package main

import (
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/demo"
	"github.com/fairlock/fairlock-go/fairlock"
)

const demoHelp = `Several clients, each with several workers, contend for one lock. One client crashes while it holds the lock, another
while it waits. Then the history that the clients recorded is checked: whether the lock was ever held by more
than it allows (a mutex: one; a semaphore: its permits; rw: one writer, or readers), and whether anybody was served out
of order.

Without --redis, the server is in memory and the clients share this process: nothing needs to be installed. With it,
each client is a process of its own and a crash is a SIGKILL. Each run uses a new lock, and leaves no more on the server
than the last number, which expires after 10 min.`

func demoCommand(c *connection) *cobra.Command {
	var cfg demo.Config
	var plain bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch clients contend for a lock, and crash",
		Long:  demoHelp,
		Example: `  fairlock demo
  fairlock demo --kind semaphore --permits 3
  fairlock demo --redis redis://localhost:6379`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("namespace") {
				return usage("demo has a lock of its own: leave out --namespace")
			}
			if cmd.Flags().Changed("redis") {
				target, err := c.target()
				if err != nil {
					return err
				}
				if target.kind != single {
					return usage("demo plays on a single server")
				}
				cfg.Redis = target.plain()
			}
			if err := cfg.Check(); err != nil {
				return withCode(exitUsage, err)
			}
			if cmd.Flags().Changed("permits") && cfg.Kind != demo.Semaphore {
				return usage("--permits goes with --kind semaphore; there are none with --kind %s", cfg.Kind)
			}
			if cfg.Redis != "" {
				rdb, err := c.open(cmd.Context()) // it can be reached
				if err != nil {
					return err
				}
				_ = rdb.Close()
			}
			cfg.Live = !plain && isTerminal(cmd.OutOrStdout())
			verdict, err := demo.Run(cmd.Context(), cfg, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return verdict.Err()
		},
	}
	f := cmd.Flags()
	f.StringVar((*string)(&cfg.Kind), "kind", string(demo.Mutex), "what they contend for: mutex, semaphore or rw")
	f.IntVar(&cfg.Permits, "permits", 5, "permits of the semaphore")
	f.IntVar(&cfg.Clients, "clients", 4, "clients; two of them crash")
	f.IntVar(&cfg.Workers, "workers", 4, "workers of each client")
	f.DurationVar(&cfg.Duration, "duration", 8*time.Second, "how long they contend; what the crashes cost comes on top")
	f.DurationVar(&cfg.TTL, "ttl", 2*time.Second, "how long a holder that crashed blocks the lock")
	f.DurationVar(&cfg.WaiterTTL, "waiter-ttl", fairlock.MinWaiterTTL, "how long a waiter that crashed keeps its ticket")
	f.DurationVar(&cfg.Hold, "hold", 5*time.Millisecond, "how long a worker holds the lock, about")
	f.BoolVar(&plain, "plain", false, "write lines, even on a terminal")
	return cmd
}

// childCommand is how demo starts its clients.
func childCommand() *cobra.Command {
	return &cobra.Command{
		Use:    demo.ChildCommand,
		Short:  "Play one client of a demo",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt) // a terminal's ^C is for the parent, which ends its clients in order
			return withCode(exitFailure, demo.Child(cmd.InOrStdin(), cmd.OutOrStdout()))
		},
	}
}
