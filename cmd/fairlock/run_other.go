//go:build !unix

package main

import "github.com/spf13/cobra"

// Without process groups, fairlock cannot ensure that CMD ends before the lease does.

func runCommand(*connection) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run a program while holding a lock (on Unix only)",
		// All flags of other systems get the same error.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(*cobra.Command, []string) error {
			return usage(
				"run needs process groups, which this system does not have; nothing was sent, " +
					"and CMD was not started (see help run)")
		},
	}
}

func guardCommand() *cobra.Command { return &cobra.Command{Use: "run-guard", Hidden: true} }

func becomeCMD()      {}
func dieInterrupted() {}
func hidePassword()   {}

// tty is the terminal. It has no methods that work here.
type tty struct{}

func openTTY() *tty           { return nil }
func (*tty) foreground() bool { return true }
func (*tty) close()           {}
