// Command fairlock shows a fair lock at work.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// usageError is a mistake on the command line.
type usageError struct{ error }

// run runs the command and returns its exit code: 0, 1 if something failed, 2 if it was called wrongly. Every error
// is one line on stderr.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	logging.Disable() // go-redis would write into the display; its errors reach us anyway
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	err := cmd.Execute()
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintln(errs, "fairlock:", oneLine(err))
	if _, usage := errors.AsType[usageError](err); usage {
		return 2
	}
	return 1
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "fairlock",
		Short:         "Strict-FIFO distributed locks on Redis",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(demoCommand(), childCommand())
	return cmd
}

// noArgs is cobra's NoArgs, as a mistake on the command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}
