// Command fairlock runs programs under a fair lock on Redis, shows holders and waiters, and checks the server.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
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
	logging.Disable() // go-redis would write into the display; its errors are returned as well
	ctx, stop := interruptible(context.Background())
	defer stop()
	begun := false
	cmd := root(&begun)
	cmd.SetArgs(args)
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	called, err := cmd.ExecuteContextC(ctx)
	if !begun {
		err = withCode(exitUsage, err) // cobra's errors about flags and arguments
	}
	if err != nil {
		say(errs, err, called.Name())
	}
	return exitCode(err)
}

// root returns the command with all subcommands. begun is set once the command line has been checked.
func root(begun *bool) *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:               "fairlock",
		Short:             "Strict-FIFO distributed locks on Redis",
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              unknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun:  func(*cobra.Command, []string) { *begun = true },
		DisableAutoGenTag: true,
		Version:           version(),
	}
	cmd.SetVersionTemplate("{{.Version}}")
	cmd.Flags().Bool("version", false, "show the version") // without the shorthand -v, which cobra would add
	c.flags(cmd.PersistentFlags())
	for _, group := range []struct {
		id, title string
		cmds      []*cobra.Command
	}{
		{"use", "Use locks:", []*cobra.Command{runCommand(&c), releaseCommand(&c), resizeCommand(&c)}},
		{"look", "Look at locks:", []*cobra.Command{statusCommand(&c), listCommand(&c), watchCommand(&c), uiCommand(&c)}},
		{"server", "Look at the server:", []*cobra.Command{doctorCommand(&c), benchCommand(&c), demoCommand(&c)}},
	} {
		cmd.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, sub := range group.cmds {
			sub.GroupID = group.id
		}
		cmd.AddCommand(group.cmds...)
	}
	cmd.AddCommand(topics()...)
	cmd.AddCommand(manCommand(), versionCommand(), childCommand(&c), guardCommand())
	for _, c := range append(cmd.Commands(), cmd) {
		c.Long, c.Example = help(c.Name())
	}
	cmd.InitDefaultHelpCmd()
	if help, _, err := cmd.Find([]string{"help"}); err == nil {
		help.Args = knownTopic
	}
	return cmd
}

// noArgs refuses arguments.
var noArgs = cobra.NoArgs

//go:embed help/*.txt
var helps embed.FS

// help returns the text about a command or a topic, and its examples. They are empty if there are none.
func help(name string) (text, examples string) {
	file, _ := helps.ReadFile("help/" + name + ".txt")
	json, _ := helps.ReadFile("help/json.txt")
	filled := strings.NewReplacer("{json}", strings.Trim(string(json), "\n"), "{checks}",
		strings.Join(doctor.Checks(), ", "),
		"{look}", doctor.Look.Commands(), "{operate}", doctor.Operate.Commands())
	text, examples, _ = strings.Cut(strings.Trim(filled.Replace(string(file)), "\n"), "\n\nExamples:\n")
	return text, examples
}

// topics returns the help topics that are not commands.
func topics() []*cobra.Command {
	topic := func(name, short string) *cobra.Command {
		return &cobra.Command{Use: name, Short: short, DisableFlagsInUseLine: true}
	}
	return []*cobra.Command{
		topic("connection", "How to name the server, and where to put its password"),
		topic("exit-codes", "What each exit code means"),
		topic("environment", "What is read from the environment, and what CMD finds there"),
	}
}

// manCommand writes the manual pages, for packages.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, c := range append(cmd.Root().Commands(), cmd.Root()) {
				escapeAll(c)
			}
			header := &doc.GenManHeader{Section: "1", Source: "fairlock"}
			err := doc.GenManTree(cmd.Root(), header, args[0])
			for _, sub := range cmd.Root().Commands() {
				if sub.IsAdditionalHelpTopicCommand() && err == nil {
					err = doc.GenManTree(sub, header, args[0])
				}
			}
			return err
		},
	}
}

// escapeAll turns the help texts into Markdown, from which the manual pages are made.
func escapeAll(c *cobra.Command) {
	c.Short, c.Long = escape(c.Short), escape(c.Long)
	for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) { f.Usage = escape(strings.ReplaceAll(f.Usage, `\`, "")) })
	}
}

// escape escapes angle brackets. Markdown would take the text in them for HTML and leave it out. In indented code there
// is no need.
func escape(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "    ") {
			lines[i] = strings.NewReplacer("<", `\<`, ">", `\>`).Replace(line)
		}
	}
	return strings.Join(lines, "\n")
}

// unknownCommand returns an error for an unknown command, with similar names.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		meant = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage("unknown command %q%s", args[0], meant)
}

// knownTopic returns an error for an unknown topic.
func knownTopic(cmd *cobra.Command, args []string) error {
	if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
		return usage("there is no help on %q", strings.Join(args, " "))
	}
	return nil
}

// Exit codes. `fairlock help exit-codes` has them for users.
const (
	exitFailure     = 1
	exitUsage       = 2   // wrong usage
	exitUnreachable = 69  // Redis does not answer or refuses (EX_UNAVAILABLE)
	exitBusy        = 75  // the lock is held or has waiters (EX_TEMPFAIL)
	exitLost        = 76  // the lease was lost
	exitTimeout     = 124 // timed out, as timeout(1)
	exitCannotRun   = 126 // CMD cannot be run, as sh(1)
	exitNotFound    = 127 // CMD is not found, as sh(1)
	exitSignal      = 128 // and the signal's number, as sh(1)
	exitInterrupted = exitSignal + int(syscall.SIGINT)
	exitKilled      = exitSignal + int(syscall.SIGKILL)
)

// errSilent is the error of an exit code without a message.
var errSilent = errors.New("")

// codedError is an error with an exit code.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// withCode returns err with an exit code; nil stays nil.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return codedError{err, code}
}

// usage returns an error about the command line.
func usage(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted by " + i.signal.String() }

// interrupts gets the signals that end the program, except while CMD gets them.
var interrupts = make(chan os.Signal, 1)

func listenForInterrupts() {
	listen(interrupts, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
}

// interruptible returns a context that ends with SIGINT, SIGTERM, SIGHUP or SIGQUIT; a second one ends the program at
// once. A SIGINT or SIGHUP that was ignored when the program began, as by nohup, stays ignored.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	over := make(chan struct{})
	listenForInterrupts()
	go func() {
		defer signal.Stop(interrupts)
		for {
			select {
			case s := <-interrupts:
				if ctx.Err() != nil {
					exit(exitSignal + int(s.(syscall.Signal))) // on SIGQUIT, Go would print all stacks
				}
				cancel(interrupted{s.(syscall.Signal)})
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		close(over)
	}
}

// listen is signal.Notify for those signals that are not ignored. Go itself does that for SIGINT and SIGHUP only.
func listen(c chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// exitCode returns the exit code for err.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[codedError](err); ok {
		return e.code
	}
	if i, ok := errors.AsType[interrupted](err); ok {
		return exitSignal + int(i.signal)
	}
	switch {
	case errors.Is(err, fairlock.ErrInvalid):
		return exitUsage
	case errors.Is(err, fairlock.ErrBusy):
		return exitBusy
	case errors.Is(err, fairlock.ErrLost):
		return exitLost
	case ofRedis(err):
		return exitUnreachable
	}
	return exitFailure
}

// ofRedis reports whether err is a reply of Redis, or says that Redis cannot be reached. An Errno alone does not count,
// because each one is a net.Error.
func ofRedis(err error) bool {
	if _, ok := errors.AsType[redis.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, os.ErrDeadlineExceeded)
}

// say writes an error of a command on one line. It does not report a signal, which the user has sent.
func say(w io.Writer, err error, command string) {
	if _, ok := errors.AsType[interrupted](err); ok || err.Error() == "" {
		return
	}
	_, _ = fmt.Fprintln(w, "fairlock:", explain(err, inspect.Cause(err), command))
}

// explain adds a hint to an error about a missing right: doctor lists all missing rights.
func explain(err error, text, command string) string {
	if inspect.Lacks(err) && command != "doctor" {
		text += "; fairlock doctor"
		if purpose := doctor.PurposeOf(command); purpose != doctor.Use {
			text += " --for " + string(purpose)
		}
		text += " names all that it lacks"
	}
	return text
}
