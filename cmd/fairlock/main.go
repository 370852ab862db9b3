// Command fairlock runs programs under a fair lock on Redis, shows who holds it and who waits, and checks the server.
package main

import (
	"context"
	"io"
	"os"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

func main() {
	becomeCMD()
	hidePassword()
	exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func exit(code int) {
	if code == exitInterrupted {
		dieInterrupted()
	}
	os.Exit(code)
}

// run runs the command and returns its exit code. Every error is one line on stderr.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	logging.Disable() // go-redis would write into the display; its errors reach us anyway
	ctx, stop := interruptible(context.Background())
	defer stop()
	begun := false
	cmd := root(&begun)
	cmd.SetArgs(args)
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	err := misdirected(cmd, args)
	if err == nil {
		err = cmd.ExecuteContext(ctx)
	}
	if !begun {
		err = withCode(exitUsage, err) // what cobra says of flags and arguments
	}
	if err != nil {
		say(errs, err)
	}
	return exitCode(err)
}

// root is the command with all its parts. begun is set once the command line has turned out to be right.
func root(begun *bool) *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:               "fairlock",
		Short:             "Strict-FIFO distributed locks on Redis",
		Long:              rootHelp,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              unknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun:  func(*cobra.Command, []string) { *begun = true },
		DisableAutoGenTag: true,
	}
	c.flags(cmd.PersistentFlags())
	cmd.AddGroup(
		&cobra.Group{ID: "use", Title: "Use locks:"},
		&cobra.Group{ID: "look", Title: "Look at locks:"},
		&cobra.Group{ID: "server", Title: "Look at the server:"},
	)
	group := func(id string, cmds ...*cobra.Command) {
		for _, sub := range cmds {
			sub.GroupID = id
		}
		cmd.AddCommand(cmds...)
	}
	group("use", runCommand(&c), releaseCommand(&c))
	group("look", statusCommand(&c), listCommand(&c), watchCommand(&c))
	group("server", doctorCommand(&c), benchCommand(&c), demoCommand(&c))
	cmd.AddCommand(topics()...)
	cmd.AddCommand(manCommand(), childCommand(&c), guardCommand())
	cmd.SetHelpCommand(helpCommand())
	return cmd
}

// noArgs refuses arguments.
var noArgs = cobra.NoArgs
