package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/demo"
)

const demoHelp = `Several clients, each with several workers, contend for one lock. One client crashes while it holds the lock, another
while it waits. Then a judge, which goes by nothing but what the clients saw, says whether the lock was ever held by more
than it allows (a mutex: one; a semaphore: its permits; rw: one writer, or readers), and whether anybody was served out
of order.

Without --redis, the server is in memory and the clients share this process: nothing needs to be installed. With it,
each client is a process of its own and a crash is a SIGKILL. Each run uses a new lock, and leaves no more on the server
than the last fence, which expires within a day.`

func demoCommand() *cobra.Command {
	var cfg demo.Config
	var plain bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch clients contend for a lock, and crash",
		Long:  demoHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Check(); err != nil {
				return usageError{err}
			}
			if cmd.Flags().Changed("permits") && cfg.Kind != demo.Semaphore {
				return usageError{fmt.Errorf("--permits goes with --kind semaphore; there are none with --kind %s", cfg.Kind)}
			}
			cfg.Live = !plain && isTerminal(cmd.OutOrStdout())
			return playDemo(cfg, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar((*string)(&cfg.Kind), "kind", string(demo.Mutex), "what they contend for: mutex, semaphore or rw")
	f.IntVar(&cfg.Permits, "permits", 5, "permits of the semaphore")
	f.StringVar(&cfg.Redis, "redis", "", "use the server at this `URL`: redis://, rediss:// or unix://")
	f.IntVar(&cfg.Clients, "clients", 4, "clients; two of them crash")
	f.IntVar(&cfg.Workers, "workers", 4, "workers of each client")
	f.DurationVar(&cfg.Duration, "duration", 8*time.Second, "how long they contend; what the crashes cost comes on top")
	f.DurationVar(&cfg.TTL, "ttl", 2*time.Second, "how long a holder that crashed blocks the lock")
	f.DurationVar(&cfg.Patience, "patience", 1500*time.Millisecond, "how long a waiter that crashed keeps its place")
	f.DurationVar(&cfg.Hold, "hold", 5*time.Millisecond, "how long a worker holds the lock, about")
	f.BoolVar(&plain, "plain", false, "write lines, even on a terminal")
	return cmd
}

// playDemo plays it until it is over or the user has had enough; a second ^C ends the program at once.
func playDemo(cfg demo.Config, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	verdict, err := demo.Run(ctx, cfg, out)
	if err != nil {
		return err
	}
	return verdict.Err()
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
			return demo.Child(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// oneLine joins what errors.Join has put on lines of their own.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
