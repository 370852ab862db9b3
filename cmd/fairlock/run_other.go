//go:build !unix

package main

import "github.com/spf13/cobra"

// Where there are no process groups, nobody can promise that CMD ends before the lease does.

func runCommand(*connection) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run a program while holding a lock (on Unix only)",
		RunE: func(*cobra.Command, []string) error {
			return usage("run needs process groups, which this system does not have")
		},
	}
}

func guardCommand() *cobra.Command { return &cobra.Command{Use: "run-guard", Hidden: true} }

func becomeCMD()      {}
func dieInterrupted() {}
func hidePassword()   {}

// tty is the terminal, of which nothing is known here.
type tty struct{}

func openTTY() *tty           { return nil }
func (*tty) foreground() bool { return true }
func (*tty) close()           {}
