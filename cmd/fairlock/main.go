// Command fairlock runs programs under a fair lock on Redis, shows who holds it and who waits, and checks the server.
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
	logging.Disable() // go-redis would write into the display; its errors reach us anyway
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
		err = withCode(exitUsage, err) // what cobra says of flags and arguments
	}
	if err != nil {
		say(errs, err, called.Name())
	}
	return exitCode(err)
}

// root is the command with all its parts. begun is set once the command line has turned out to be right.
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
	cmd.Flags().Bool("version", false, "show which fairlock this is") // without the shorthand -v, which cobra would add
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

// help is the text about a command or a topic, and its examples; empty if there is none.
func help(name string) (text, examples string) {
	file, _ := helps.ReadFile("help/" + name + ".txt")
	json, _ := helps.ReadFile("help/json.txt")
	filled := strings.NewReplacer("{json}", strings.Trim(string(json), "\n"), "{checks}",
		strings.Join(doctor.Checks(), ", "),
		"{look}", doctor.Look.Commands(), "{operate}", doctor.Operate.Commands())
	text, examples, _ = strings.Cut(strings.Trim(filled.Replace(string(file)), "\n"), "\n\nExamples:\n")
	return text, examples
}

// topics are helps that are about no command.
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

// escapeAll makes texts that are written for a terminal Markdown, of which the manual pages are made.
func escapeAll(c *cobra.Command) {
	c.Short, c.Long = escape(c.Short), escape(c.Long)
	for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) { f.Usage = escape(strings.ReplaceAll(f.Usage, `\`, "")) })
	}
}

// escape keeps Markdown from taking what stands in angle brackets for HTML, and leaving it out. In a block of code,
// which is indented, nothing is taken for anything.
func escape(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "    ") {
			lines[i] = strings.NewReplacer("<", `\<`, ">", `\>`).Replace(line)
		}
	}
	return strings.Join(lines, "\n")
}

// unknownCommand refuses what is no command, and says what may have been meant.
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

// knownTopic refuses what there is no help about.
func knownTopic(cmd *cobra.Command, args []string) error {
	if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
		return usage("there is no help on %q", strings.Join(args, " "))
	}
	return nil
}

// Exit codes. `fairlock help exit-codes` has them for users.
const (
	exitFailure     = 1
	exitUsage       = 2   // called wrongly
	exitUnreachable = 69  // Redis does not answer, or refuses (EX_UNAVAILABLE)
	exitBusy        = 75  // the lock is held, or somebody waits for it (EX_TEMPFAIL)
	exitLost        = 76  // the lease was lost
	exitTimeout     = 124 // waited too long, as timeout(1)
	exitCannotRun   = 126 // CMD cannot be run, as sh(1)
	exitNotFound    = 127 // CMD is not found, as sh(1)
	exitSignal      = 128 // and the signal's number, as sh(1)
	exitInterrupted = exitSignal + int(syscall.SIGINT)
	exitKilled      = exitSignal + int(syscall.SIGKILL)
)

// errSilent stands for an exit code that needs no words.
var errSilent = errors.New("")

// codedError is an error that decides the exit code.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// withCode returns err with the exit code it leads to; nil stays nil.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return codedError{err, code}
}

// usage is a mistake on the command line.
func usage(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted by " + i.signal.String() }

// interrupts gets the signals that end what the program does; not while CMD gets them.
var interrupts = make(chan os.Signal, 1)

func listenForInterrupts() {
	listen(interrupts, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
}

// interruptible returns a context that ends with SIGINT, SIGTERM, SIGHUP or SIGQUIT; a second one ends the program at
// once. A SIGINT or SIGHUP that was ignored when the program began, as nohup has it, stays ignored.
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
					exit(exitSignal + int(s.(syscall.Signal))) // left to itself, SIGQUIT would have Go print all stacks
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

// listen is signal.Notify for those signals that are not ignored. (Go says so of SIGINT and SIGHUP only.)
func listen(c chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// exitCode is what the program's end tells about err.
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

// ofRedis reports whether err is of a Redis that cannot be reached, or its answer. (An Errno alone says nothing: every
// one of them is a net.Error.)
func ofRedis(err error) bool {
	if _, ok := errors.AsType[redis.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, os.ErrDeadlineExceeded)
}

// say writes an error of a command as one line. A signal that the user has sent is no news to them.
func say(w io.Writer, err error, command string) {
	if _, ok := errors.AsType[interrupted](err); ok || err.Error() == "" {
		return
	}
	_, _ = fmt.Fprintln(w, "fairlock:", explain(err, inspect.Cause(err), command))
}

// explain adds to the text of an error, if it is that the user of Redis lacks a right, that doctor names all that lack.
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
