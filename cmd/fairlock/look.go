package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/words"
)

// looker has the flags that all commands that read locks share, and the server once it is connected.
type looker struct {
	*connection
	*inspect.Server
	kind    string
	kinds   []fairlock.Kind // that kind, or all
	json    bool
	replica bool                        // may be read
	every   bool                        // namespace is listed
	writes  bool                        // the command writes, so a replica is an error
	name    string                      // of the server, for a header
	role    func(context.Context) error // an error if the server must not be read, or not any more
	out     io.Writer
}

// flags adds the flags. The kinds that are read by default are kinds.
func (l *looker) flags(cmd *cobra.Command, kinds string) {
	kindFlag(cmd, &l.kind, "mutex, semaphore, rwmutex or keyed (default "+kinds+")")
	cmd.Flags().BoolVar(&l.json, "json", false, "for scripts")
	if !l.writes {
		cmd.Flags().BoolVar(&l.replica, "allow-replica", false, "also read replicas, which may be behind")
	}
}

func kindFlag(cmd *cobra.Command, kind *string, text string) {
	cmd.Flags().StringVar(kind, "kind", "", text)
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions( // fails only if there is no such flag
		[]string{string(fairlock.KindMutex), string(fairlock.KindSemaphore), string(fairlock.KindRWMutex),
			string(fairlock.KindKeyedSemaphore)}, cobra.ShellCompDirectiveNoFileComp))
}

// kindsOf returns the kinds to read, all if kind is empty.
func kindsOf(kind string) ([]fairlock.Kind, error) {
	if kind == "" {
		return inspect.Kinds, nil
	}
	k, err := inspect.ParseKind(kind)
	return []fairlock.Kind{k}, withCode(exitUsage, err)
}

// with connects and calls f. A replica, which may be behind, and a single node of a cluster, which has a part of the
// locks, are errors.
func (l *looker) with(ctx context.Context, out io.Writer, f func(context.Context) error) error {
	kinds, err := kindsOf(l.kind)
	if err != nil {
		return err
	}
	target, err := l.target()
	if err != nil {
		return err
	}
	rdb, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	l.Server, l.kinds, l.name, l.out = inspect.On(rdb, l.prefix()), kinds, target.where(), out
	l.role = func(ctx context.Context) error {
		replica, err := target.roleOf(ctx, rdb)
		switch {
		case replica && l.writes:
			err = errReplica(target)
		case replica && !l.replica:
			err = withCode(exitUnreachable, fmt.Errorf(
				"%s is a replica, and may be behind: name the primary, or use --allow-replica", target.where()))
		case replica:
			l.name = target.where() + " (a replica, which may be behind)"
		}
		return err
	}
	if err := l.role(ctx); err != nil {
		return err
	}
	return f(ctx)
}

// few is how many holders and how many waiters status shows one by one.
const few = 20

func statusCommand(c *connection) *cobra.Command {
	l := looker{connection: c}
	var every bool
	cmd := &cobra.Command{
		Use:               "status NAME",
		Short:             "Show the holders and waiters of a lock",
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			return l.with(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) error {
				all, err := l.Read(ctx, inspect.Most, inspect.IDs(names, l.kinds...)...)
				if l.json && l.kind == "" {
					all = view.InUse(all)
				}
				return l.show(all, err, func(p view.Paint) (lines []string) {
					most := few
					if every {
						most = inspect.Most
					}
					worth := view.Worth(all)
					for _, lock := range worth {
						lines = append(append(lines, ""), view.Block(p, lock, most)...)
						if c, crosses := l.Crossing(ctx, lock); crosses {
							lines = append(lines, view.Indented(p, words.Crossing(lock, c))...)
						}
					}
					if err != nil {
						return lines
					}
					return append(lines, view.Indented(p, l.meant(ctx, worth))...)
				})
			})
		},
	}
	l.flags(cmd, "those in use")
	cmd.Flags().BoolVar(&every, "all", false, fmt.Sprintf("show up to %d holders and waiters one by one, not the first %d",
		inspect.Most, few))
	return cmd
}

// meant suggests locks for a name that is not in use. The parameter all has the locks of that name that are worth
// showing. Other kinds of the name are found by one request, similar names by a search of all keys.
func (l *looker) meant(ctx context.Context, worth []inspect.Lock) string {
	if len(worth) != 1 || worth[0].InUse() || worth[0].Idle() {
		return ""
	}
	lock, used := worth[0], []inspect.ID{}
	if l.kind != "" {
		// a lock that cannot be read is not called in use
		others, _ := l.Read(ctx, 1, inspect.IDs([]string{lock.Name}, inspect.Kinds...)...)
		for _, other := range others {
			if other.Err == nil && other.InUse() {
				used = append(used, other.ID)
			}
		}
	}
	if len(used) > 0 || lock.Fence > 0 {
		return words.Meant(lock.Meant(used))
	}
	used, elsewhere, err := l.Used(ctx, lock.Name)
	var texts []string
	for _, text := range []string{words.Elsewhere(elsewhere), words.Meant(lock.Meant(used))} {
		if text != "" {
			texts = append(texts, text)
		}
	}
	switch {
	case len(texts) > 0:
		return strings.Join(texts, "; ")
	case err != nil:
		return explain(err, inspect.NotSearched(err), "status")
	case len(used) == 0:
		return l.NoLocks(l.Namespaces(ctx))
	}
	return words.NothingAlike()
}

// nothing says why a list is empty, as far as that is known. There may be locks without these flags, or in other
// namespaces.
func (l *looker) nothing(ctx context.Context, want inspect.Want) string {
	var flags []string
	if want.Prefix != "" {
		flags = append(flags, "--prefix "+inspect.Plain(want.Prefix))
	}
	if l.kind != "" {
		flags = append(flags, "--kind "+l.kind)
	}
	if len(flags) > 0 {
		text := "no lock in use matches " + strings.Join(flags, " ")
		if all, err := l.Find(ctx, inspect.Want{AllNamespaces: want.AllNamespaces}); err != nil {
			return text
		} else if len(all) > 0 {
			return fmt.Sprintf("%s; without that, list shows %d", text, len(all))
		}
	}
	if want.AllNamespaces {
		return view.NoLocks
	}
	return l.NoLocks(l.Namespaces(ctx))
}

// orders are the orders by which list sorts.
var orders = map[string]func(all []inspect.Lock){
	"name":    func([]inspect.Lock) {},
	"wait":    func(all []inspect.Lock) { slices.SortStableFunc(all, inspect.ByWait) },
	"held":    func(all []inspect.Lock) { slices.SortStableFunc(all, inspect.ByHeld) },
	"trouble": inspect.SortByTrouble,
	"waiting": func(all []inspect.Lock) {
		slices.SortStableFunc(all, func(a, b inspect.Lock) int { return cmp.Compare(b.Waiting, a.Waiting) })
	},
}

func listCommand(c *connection) *cobra.Command {
	l := looker{connection: c}
	var by string
	var want inspect.Want
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all locks in use",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("list takes no NAME; did you mean fairlock status %s or fairlock list --prefix %[1]s?",
					inspect.Plain(args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			order, known := orders[by]
			if !known {
				return usage("--sort %s is unknown: want name, wait, held, waiting or trouble", inspect.Plain(by))
			}
			return l.with(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) error {
				answered := patiently("searching")
				want.Kinds, want.Waiters = l.kinds, by == "trouble"
				all, err := l.Find(ctx, want)
				answered()
				order(all)
				for i := range all {
					all[i].Waiters = nil // only a few were read
				}
				if l.json && len(all) == 0 && err == nil { // [] looks like success
					if text := l.nothing(ctx, want); text != "" {
						_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "fairlock:", text)
					}
				}
				l.every = want.AllNamespaces
				return l.show(all, err, func(p view.Paint) []string {
					if len(all) == 0 {
						return []string{"", p.Fold(cmp.Or(l.nothing(ctx, want), view.NoLocks), 2)}
					}
					return append([]string{""}, view.Table(p, all)...)
				})
			})
		},
	}
	l.flags(cmd, "all")
	f := cmd.Flags()
	f.StringVar(&want.Prefix, "prefix", "", "those whose names begin with `TEXT`; there are no wildcards")
	f.StringVar(&by, "sort", "name",
		"by name, wait (the oldest first), held (the longest first), waiting (the most first) or trouble: `ORDER`")
	f.BoolVar(&want.AllNamespaces, "all-namespaces", false, "those of all namespaces, whatever --namespace says")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions( // fails only if there is no such flag
		[]string{"name", "wait", "held", "waiting", "trouble"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// show writes the locks that could be read, and returns an error about the others.
func (l *looker) show(all []inspect.Lock, err error, text func(view.Paint) []string) error {
	unread := inspect.Unread(all)
	failed := err
	if failed == nil && unread != nil {
		failed = withCode(exitUnreachable, unread)
	}
	if failed != nil && !slices.ContainsFunc(all, func(lock inspect.Lock) bool { return lock.Err == nil }) {
		return failed // nothing could be read
	}
	p := view.Paint{Colours: colours(l.out), Width: width(l.out)}
	shown := view.Array(all)
	if !l.json {
		namespace := "namespace " + l.Namespace
		if l.every {
			namespace = "all namespaces"
		}
		shown = strings.Join(append([]string{p.Header(l.name, namespace, time.Now())}, text(p)...), "\n") + "\n"
	}
	_, werr := io.WriteString(l.out, shown)
	return errors.Join(failed, werr)
}

func watchCommand(c *connection) *cobra.Command {
	l := looker{connection: c}
	var w view.Watch
	var plain bool
	cmd := &cobra.Command{
		Use:               "watch [NAME...]",
		Short:             "Watch locks change",
		Args:              someNames,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case w.Every < view.MinInterval:
				return usage("--interval is %v, must be at least %v", w.Every, view.MinInterval)
			case len(names) > 0 && cmd.Flags().Changed("prefix"):
				return usage("--prefix cannot be combined with a NAME")
			}
			return l.with(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) error {
				w.Server, w.Want.Kinds, w.IDs, w.Role = l.Server, l.kinds, inspect.IDs(names, l.kinds...), l.role
				w.None = func(ctx context.Context, all []inspect.Lock) string {
					if len(names) > 0 {
						return l.meant(ctx, view.Worth(all))
					}
					return l.nothing(ctx, w.Want)
				}
				if !plain && !l.json && display(l.out) {
					live := view.Live{Watch: w, Paint: view.Paint{Colours: colours(l.out)}}
					live.Title = func(seen time.Time) string {
						return "fairlock watch  " + live.Header(l.name, "namespace "+l.Namespace, seen)
					}
					return live.Show(ctx, keyboard(cmd.InOrStdin()), l.out)
				}
				return l.follow(ctx, w, cmd.ErrOrStderr())
			})
		},
	}
	l.flags(cmd, "those in use")
	f := cmd.Flags()
	f.StringVar(&w.Want.Prefix, "prefix", "", "without a NAME: those whose names begin with `TEXT`")
	f.DurationVar(&w.Every, "interval", 500*time.Millisecond, "how often to look")
	f.BoolVar(&plain, "plain", false, "write lines, even on a terminal")
	return cmd
}

// keyboard returns in if it is a terminal.
func keyboard(in io.Reader) io.Reader {
	if f, ok := in.(*os.File); ok && isTerminal(f) {
		return in
	}
	return nil
}

// follow writes changes until ctx ends or the output is closed.
func (l *looker) follow(ctx context.Context, w view.Watch, errs io.Writer) (broken error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes, faulty, none := view.Changes{JSON: l.json}, false, false
	write := func(line string) {
		if _, err := fmt.Fprintln(l.out, line); err != nil {
			broken = err
			stop()
		}
	}
	if !l.json {
		write(view.Paint{}.Header(l.name, "namespace "+l.Namespace, time.Now()))
	}
	w.Run(ctx, func(g view.Glance) {
		if g.Err != nil && !faulty { // once, until Redis answers again
			_, _ = fmt.Fprintf(errs, "fairlock: %s; retrying\n", inspect.Cause(g.Err))
		}
		faulty = g.Err != nil
		if g.None != "" && !none {
			none = true
			_, _ = fmt.Fprintln(errs, "fairlock: "+g.None)
		}
		for _, lock := range changes.Of(g) {
			switch {
			case !l.json:
				at := lock.At
				if at.IsZero() { // it could not be read
					at = time.Now()
				}
				write(at.Local().Format("2006-01-02T15:04:05.000Z07:00") + "  " + view.Line(lock))
			case lock.Kind != "": // there is a lock of that name
				write(view.JSON(lock))
			}
		}
	})
	return broken
}

func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("want the NAME of one lock, have %d (a name with spaces needs quotes)", len(args))
	}
	return someNames(cmd, args)
}

// someNames checks the names of locks.
func someNames(_ *cobra.Command, names []string) error {
	if slices.ContainsFunc(names, func(name string) bool { return name == "" || len(name) > bounds.MaxName }) {
		return usage("the NAME of a lock must have 1 to %d bytes", bounds.MaxName)
	}
	return nil
}
