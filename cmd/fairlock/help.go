package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

const rootHelp = `fairlock runs programs under a lock on Redis that is strictly first come, first served, and shows who holds it and who
waits.

Locks are named. A mutex, a semaphore and a read-write lock of one name are three different locks, and the same ones
that Go programs use with the library of this name.`

const connectionHelp = `Redis is named by --redis, or else by the variable FAIRLOCK_REDIS; the default is redis://localhost:6379.

One server:

    redis://user@host:6379/0              plain; the user and the number of the database may be left out
    rediss://user@host:6380               with TLS; ?skip_verify=true does not verify the certificate
    unix:///run/redis/redis.sock?db=1     a Unix socket

Redis Cluster, if the URL has an addr or says cluster=true; each address is one by which to find the others:

    redis://host1:6379?cluster=true
    redis://host1:6379?addr=host2:6379&addr=host3:6379

Redis with Sentinel, if the URL has a master_name; the addresses are Sentinels, the user and password in front of the
host are theirs, and those of Redis itself are the parameters username and password:

    redis://sentinel1:26379?master_name=main&addr=sentinel2:26379&username=billing

Other parameters are those of go-redis, for example dial_timeout=2s, read_timeout=1s and pool_size=4.

Passwords. Everybody on a machine can read the command lines of its processes. So give a password, or a URL that has
one, in one of these ways:

    FAIRLOCK_REDIS=redis://user:password@host:6379 fairlock …
    fairlock --redis env:REDIS_URL …                            the URL is in the variable REDIS_URL
    FAIRLOCK_REDIS_PASSWORD=password fairlock --redis redis://user@host:6379 …
    fairlock --redis redis://user@host:6379 --password-file /etc/fairlock/password …

The file's first line counts. A password in the URL goes before one beside it. In a URL, characters that are not
letters or digits must be percent-encoded. If --redis has a password all the same, fairlock takes it off its own command
line, where it has been seen for some milliseconds, but not off that of the shell or ssh that started it. Passwords are
never shown, and the CMD of fairlock run does not see them.

The locks of two namespaces have nothing in common. --namespace, or else FAIRLOCK_NAMESPACE, names it; the default is
that of the library, fairlock.

The first connection is given up after 5 s. fairlock doctor says what a server and a user need.`

const exitHelp = `    0        done
    1        failed, for a reason that is not below
    2        called wrongly: unknown command or flag, no CMD, wrong URL, name too long
    69       Redis cannot be reached, or refuses: wrong password, no rights, a replica, a full server
    75       run --try: somebody holds the lock, or waits for it
    76       run: the lock was lost while CMD ran; the line says whether CMD was stopped, or with which code it had ended
    124      run --wait: the lock was not granted in time
    126      run: CMD cannot be run
    127      run: CMD was not found
    128+n    ended by signal n, for example 130 by ^C; run: CMD was

Otherwise fairlock run exits with the code of CMD. A CMD may use one of these codes for something else: fairlock's own
come with one line on stderr that begins with "fairlock:".

On a terminal, where ^C is meant for a whole script, fairlock does not exit with 130 but dies of SIGINT, as the script's
other commands do. A shell shows both as 130.`

const environmentHelp = `What fairlock reads:

    FAIRLOCK_REDIS             the server's URL, if there is no --redis (see help connection)
    FAIRLOCK_REDIS_PASSWORD    its password, if there is no --password-file and none in the URL
    FAIRLOCK_NAMESPACE         the namespace, if there is no --namespace
    NO_COLOR                   if it is not empty, no colours

What the CMD of fairlock run gets:

    FAIRLOCK_NAME              the lock's name
    FAIRLOCK_FENCE             the number of this grant, greater than that of every earlier one: a resource that refuses
                               a number below the highest it has seen is safe from a holder that comes too late
    FAIRLOCK_TOKEN             the holding's identity. Who knows it can release the lock: keep it to yourself

CMD gets all of fairlock's environment but FAIRLOCK_REDIS, FAIRLOCK_REDIS_PASSWORD and the variable that --redis env:NAME
names. With --pass-redis it gets FAIRLOCK_REDIS (with the password in it) and FAIRLOCK_NAMESPACE as they are in use, so
that a fairlock within CMD uses the same server; without it, that one would use the default, redis://localhost:6379.`

// topics are helps that are about no command.
func topics() []*cobra.Command {
	topic := func(name, short, long string) *cobra.Command {
		return &cobra.Command{Use: name, Short: short, Long: long, DisableFlagsInUseLine: true}
	}
	return []*cobra.Command{
		topic("connection", "How to name the server, and where to put its password", connectionHelp),
		topic("exit-codes", "What each exit code means", exitHelp),
		topic("environment", "What is read from the environment, and what CMD finds there", environmentHelp),
	}
}

// helpCommand is cobra's, but for what it does about a topic that there is not.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND or TOPIC]",
		Short: "Help about a command or topic",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if found, _, err := cmd.Root().Find(args); err == nil {
				for _, sub := range found.Commands() {
					if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
						names = append(names, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("there is no help on %q", strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
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

// misdirected refuses arguments of what only has a help, and which cobra would answer with that: topics, completion.
func misdirected(root *cobra.Command, args []string) error {
	root.InitDefaultCompletionCmd(args...)
	found, rest, err := root.Find(args)
	if err != nil || found.Runnable() || found.ParseFlags(rest) != nil { // cobra sees to these
		return nil //nolint:nilerr // and says what is wrong
	}
	return unknownCommand(found, found.Flags().Args())
}

// manCommand writes the manual pages. They are made of the same texts as the help.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeManual(cmd.Root(), args[0])
		},
	}
}

func writeManual(cmd *cobra.Command, dir string) error {
	if cmd.Hidden || cmd.Name() == "help" {
		return nil
	}
	for _, sub := range cmd.Commands() {
		if err := writeManual(sub, dir); err != nil {
			return err
		}
	}
	date, err := manualDate()
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	file, err := os.Create(filepath.Join(dir, name+".1"))
	if err != nil {
		return err
	}
	page := *cmd
	page.Long = apartBlocks(cmd.Long)
	err = doc.GenMan(&page, &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Date: date, Source: "fairlock"}, file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// apartBlocks puts empty lines around lines that are indented, which keeps them as they are in a page.
func apartBlocks(text string) string {
	var b strings.Builder
	before, inside := "", false
	for line := range strings.Lines(text) {
		if indented := strings.HasPrefix(line, "    "); indented != inside && line != "\n" {
			if before != "\n" {
				b.WriteString("\n")
			}
			inside = indented
		}
		b.WriteString(line)
		before = line
	}
	return b.String()
}

// manualDate is today, or what SOURCE_DATE_EPOCH says.
func manualDate() (*time.Time, error) {
	date := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		date = time.Unix(seconds, 0).UTC()
	}
	return &date, nil
}
