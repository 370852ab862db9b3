package main

import (
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/demo"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

func demoCommand(c *connection) *cobra.Command {
	var cfg demo.Config
	var plain bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch clients contend for a lock, and crash",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Check(); err != nil {
				return withCode(exitUsage, err)
			}
			cfg.Where = "in memory"
			if !cmd.Flags().Changed("redis") {
				server, url, err := demo.Memory()
				if err != nil {
					return err
				}
				defer server.Close()
				c.redis, c.tls = url, tlsFiles{}
			}
			target, err := c.target()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("redis") {
				cfg.Where = "at " + target.where()
			}
			cfg.Env = slices.Concat(os.Environ(), []string{envRedis + "=" + target.url.String()}, c.tls.env())
			out := cmd.OutOrStdout()
			cfg.Live = !plain && display(out)
			rdb, err := c.openPrimary(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = rdb.Close() }()
			return demo.Run(cmd.Context(), cfg, inspect.On(rdb, c.prefix()), keyboard(cmd.InOrStdin()), out)
		},
	}
	typeFlags(cmd, &cfg.Type)
	f := cmd.Flags()
	f.IntVar(&cfg.Clients, "clients", 4, "clients; two of them are killed")
	f.IntVar(&cfg.Workers, "workers", 4, "workers of each client")
	f.DurationVar(&cfg.Duration, "duration", 8*time.Second, "how long they contend, not counting the delays by crashes")
	f.DurationVar(&cfg.TTL, "ttl", 2*time.Second, "how long the lock of a crashed holder stays held")
	f.DurationVar(&cfg.WaiterTTL, "waiter-ttl", bounds.MinWaiterTTL, "how long a waiter that crashed keeps its ticket")
	f.DurationVar(&cfg.Hold, "hold", 5*time.Millisecond, "how long a worker holds the lock, about")
	f.BoolVar(&plain, "plain", false, "write lines, even on a terminal")
	return cmd
}

// childCommand is how demo starts its clients.
func childCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:    demo.ChildCommand,
		Short:  "One client of a demo",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt) // a terminal's ^C is for the parent, which ends its clients in order
			open := func() (redis.UniversalClient, error) { return c.open(cmd.Context()) }
			return withCode(exitFailure, demo.Child(open, cmd.InOrStdin(), cmd.OutOrStdout()))
		},
	}
}
