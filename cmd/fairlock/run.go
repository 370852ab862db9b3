//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/locks"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// The environment variables that tell CMD what it holds.
const (
	envName   = "FAIRLOCK_NAME"
	envFence  = "FAIRLOCK_FENCE"
	envHandle = "FAIRLOCK_HANDLE"
)

// If Redis hangs, tickets and leases end by themselves.
const (
	reading   = 500 * time.Millisecond // to read the holder when a wait has timed out
	leaving   = 500 * time.Millisecond // to leave the queue
	releasing = 5 * time.Second        // to release the lock; a refused release is retried for 3 s
)

// maxLabel is how long a label may be, so that process and host have room in a client's name.
const maxLabel = 48

// runner is one run of CMD under a lock.
type runner struct {
	locks.Type
	name, label string
	argv        []string
	take        int // permits
	read, try   bool
	verbose     bool
	passRedis   bool
	ttl, grace  time.Duration
	wait        time.Duration // 0: without limit

	kept      time.Time             // the lock stays taken until then; zero without --min-hold
	paused    bool                  // at the last look, fairlock itself had been stopped for long
	stillRuns bool                  // CMD was killed and still runs
	failure   atomic.Pointer[error] // of the last renewal; nil if it succeeded
}

func runCommand(c *connection) *cobra.Command {
	var r runner
	var kind string
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- CMD [ARG...]",
		Short: "Run a program while holding a lock",
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0:
				return usage("there is no CMD: want fairlock run NAME -- CMD")
			case dash != 1:
				return usage("want the NAME of one lock before --, have %d", dash)
			case len(args) == 1:
				return usage("there is no CMD after --")
			}
			return someNames(cmd, args[:1])
		},
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a closed stderr must not end CMD
			reapOrphans()
			if kind == "" && cmd.Flags().Changed("key") {
				kind = string(fairlock.KindKeyedSemaphore)
			}
			r.Kind, r.name, r.argv = fairlock.Kind(cmp.Or(kind, string(fairlock.KindMutex))), args[0], args[1:]
			if err := r.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return r.run(cmd.Context(), c)
		},
	}
	kindFlag(cmd, &kind, "mutex, semaphore, rwmutex or keyed (default mutex, with --key keyed)")
	f := cmd.Flags()
	f.IntVar(&r.Permits, "permits", 0, "with --kind semaphore or --key: how many permits there are")
	f.IntVar(&r.take, "take", 1, "with --kind semaphore or --key: how many of them CMD takes")
	f.StringVar(&r.Key, "key", "",
		"share the permits fairly between keys, such as tenants; `KEY` is that of CMD")
	f.IntVar(&r.KeyLimit, "key-limit", 0, "with --key: how many permits KEY may hold at once (default: no limit)")
	f.IntVar(&r.Share, "share", 1,
		"with --key: KEY gets this many times as much as a key of share 1, while both have waiters")
	f.BoolVar(&r.read, "read", false, "with --kind rwmutex: CMD reads, beside other readers")
	f.StringVar(&r.label, "label", "",
		"the name of this holder or waiter in status: `TEXT`-<process>@<host> (default <user>/<CMD>)")
	f.BoolVar(&r.try, "try", false, "do not wait: exit with 75 if the lock is held or has waiters")
	f.DurationVar(&r.wait, "wait", 0, "wait no longer than that, then exit with 124 (default: no limit)")
	f.BoolVar(&r.verbose, "verbose", false, "say once that CMD waits, even if stderr is not a terminal")
	f.DurationVar(&r.MinHold, "min-hold", 0,
		"the lock stays taken for that long from its grant on, also if CMD ends earlier")
	f.DurationVar(&r.ttl, "ttl", bounds.DefaultTTL, "how long the lock stays taken if this machine dies")
	f.DurationVar(&r.grace, "grace", 0,
		"how long CMD may take to end if the lock is being lost, up to half of --ttl (default a quarter)")
	f.BoolVar(&r.passRedis, "pass-redis", false, "let CMD see the server's URL, with the password, in FAIRLOCK_REDIS")
	return cmd
}

// check checks the flags before anything is sent, and sets the defaults that depend on others.
func (r *runner) check(given func(string) bool) error {
	const minTTL = 100 * time.Millisecond // enough to start and stop a process
	if !given("grace") {
		r.grace = r.ttl / 4
	}
	counts := inspect.HasPermits(r.Kind)
	if !given("permits") && !counts {
		r.Permits = 1
	}
	wrong := func(is bool, format string, args ...any) error {
		if is {
			return fmt.Errorf(format, args...)
		}
		return nil
	}
	_, err := inspect.ParseKind(string(r.Kind))
	return withCode(exitUsage, cmp.Or(err,
		wrong(!counts && (given("permits") || given("take")), "--permits and --take need --kind semaphore or --key"),
		wrong(counts && !given("permits"), "--kind %s needs --permits, how many %s has", r.Kind, inspect.Plain(r.name)),
		wrong(given("key") != (r.Kind == fairlock.KindKeyedSemaphore), "--key and --kind keyed need each other"),
		wrong(given("key") && (r.Key == "" || len(r.Key) > bounds.MaxKey), "--key has %d bytes, must be from 1 to %d",
			len(r.Key), bounds.MaxKey),
		wrong(given("key-limit") && !given("key"), "--key-limit needs --key"),
		wrong(given("share") && !given("key"), "--share needs --key"),
		locks.Within("--permits", r.Permits, 1, bounds.MaxPermits),
		locks.Within("--take", r.take, 1, r.Permits),
		locks.Within("--key-limit", r.KeyLimit, 0, bounds.MaxPermits),
		locks.Within("--share", r.Share, 1, bounds.MaxShare),
		wrong(r.KeyLimit > 0 && r.take > r.KeyLimit, "--take is %d, must be at most --key-limit %d", r.take, r.KeyLimit),
		wrong(r.Kind != fairlock.KindRWMutex && r.read, "--read needs --kind rwmutex"),
		wrong(len(r.label) > maxLabel || strings.ContainsFunc(r.label, unseen),
			"--label is %s, must be at most %d printable ASCII characters without spaces", inspect.Plain(r.label), maxLabel),
		wrong(r.try && given("wait"), "--try cannot be combined with --wait"),
		wrong(given("wait") && r.wait <= 0, "--wait is %v, must be above 0 (--try does not wait)", r.wait),
		wrong(given("min-hold") && r.Kind == fairlock.KindRWMutex, "--min-hold needs a mutex or a semaphore"),
		wrong(given("min-hold") && r.MinHold <= 0, "--min-hold is %v, must be above 0", r.MinHold),
		locks.Within("--min-hold", r.MinHold, 0, bounds.MaxTTL),
		locks.Within("--ttl", r.ttl, minTTL, bounds.MaxTTL),
		locks.Within("--grace", r.grace, 0, r.ttl/2),
	))
}

func (r *runner) id() inspect.ID { return inspect.ID{Kind: r.Kind, Name: r.name} }

// client returns the name of the lock's client. Process and host are in it, so that it can be found and told from
// others.
func (r *runner) client() string {
	who := cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"), fmt.Sprint("uid", os.Getuid()))
	host, _ := os.Hostname()
	name := fmt.Sprintf("%.*s-%d@%.63s", maxLabel, cmp.Or(r.label, who+"/"+filepath.Base(r.argv[0])), os.Getpid(), host)
	return strings.Map(func(c rune) rune {
		if unseen(c) {
			return '_'
		}
		return c
	}, name)
}

// unseen reports whether a client's name cannot contain a character.
func unseen(c rune) bool { return c <= ' ' || c > '~' }

// run waits for the lock and runs CMD. Its error has the exit code, or that of CMD.
func (r *runner) run(ctx context.Context, c *connection) error {
	path, err := find(r.argv[0])
	if err != nil {
		return err
	}
	env, err := r.environment(c)
	if err != nil {
		return err
	}
	if _, err := ourselves(); err != nil { // later, it would fail with the lock in hand
		return fmt.Errorf("run cannot find its own program to start it again: %w (on Linux, that needs /proc)", err)
	}
	waiting, cancel := ctx, func() {}
	if r.wait > 0 {
		waiting, cancel = context.WithTimeout(ctx, r.wait)
	}
	defer cancel()
	rdb, err := c.openPrimary(waiting)
	if err != nil {
		return r.refusal(waiting, err, nil)
	}
	defer func() { _ = within(shortLimit, rdb.Close) }()
	client, err := c.locks(rdb, fairlock.Config{Name: r.client(), TTL: r.ttl, Trace: &fairlock.Trace{Renewed: r.renewed}})
	if err != nil {
		return err
	}
	defer func() { _ = within(leaving, client.Close) }() // also leaves the queue; if that fails, the ticket expires
	server := inspect.On(rdb, c.prefix())
	stop := r.showWait(waiting, server, client.Name())
	weight := r.take // 1 unless it is a semaphore
	if r.Kind == fairlock.KindRWMutex && !r.read {
		weight = tokens.WriterWeight
	}
	lease, err := r.Acquire(waiting, client, r.name, weight, r.try)
	stop()
	if err != nil {
		return r.refusal(waiting, err, server)
	}
	cancel()
	if r.MinHold > 0 {
		r.kept = time.Now().Add(r.MinHold)
	}
	code, err := r.hold(ctx, c, lease, path, env)
	return r.settle(lease, code, err)
}

// within returns the result of f, or an error after limit. go-redis does not interrupt a call.
func within(limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	_, err := inspect.Await(ctx, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// find looks up CMD as a shell does.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot): // a PATH with a dot in it is the user's choice
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return "", withCode(exitNotFound, fmt.Errorf("CMD %s: not found", inspect.Plain(name)))
	}
	return "", unstartable(name, err)
}

// unstartable returns the error for a CMD that could not be started, as sh(1) does: 127 if it or its interpreter is
// missing.
func unstartable(name string, err error) error {
	code := exitCannotRun
	if errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner // without the operation and the path
	}
	return withCode(code, fmt.Errorf("CMD %s: %w", inspect.Plain(name), err))
}

// environment returns CMD's environment, except for the variables that depend on the lease.
func (r *runner) environment(c *connection) ([]string, error) {
	target, err := c.target()
	if err != nil {
		return nil, err
	}
	variable, _ := c.variable()
	ours := []string{envName, envFence, envHandle, envRedis, envPassword, envWithheld, envTLSCA, envTLSCert, envTLSKey,
		variable}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ours, name)
	})
	switch url := target.url.String(); {
	case r.passRedis:
		env = append(env, envRedis+"="+url, envNamespace+"="+c.namespace)
		env = append(env, c.tls.env()...)
	case url != defaultRedis:
		env = append(env, envWithheld+"=1")
	}
	return append(env, envName+"="+r.name), nil
}

// refusal says why the lock was not granted. It names the holders if Redis replies at once, or as of its last reply.
func (r *runner) refusal(waiting context.Context, err error, s *inspect.Server) error {
	name, holder := inspect.Plain(r.name), ": Redis has not answered"
	for _, reason := range reasons {
		if errors.Is(err, reason) {
			holder = ": " + reason.Error()
		}
	}
	if s != nil {
		ctx, cancel := context.WithTimeout(context.Background(), reading)
		defer cancel()
		holder = ""
		switch held, ok := errors.AsType[*fairlock.HeldError](err); {
		case ok && held.Released:
			holder = released(held.Holder, held.Free)
		case ok:
			holder = ", held by " + held.Holder
		}
		if all, err := s.Read(ctx, inspect.Most, r.id()); err == nil && all[0].Err == nil {
			holder = standing(all[0])
		}
	}
	_, moved := redis.IsMovedError(err)
	resized, ok := errors.AsType[*fairlock.CapacityError](err)
	switch {
	case ok:
		return fmt.Errorf("%s was resized to %s, --take wants %d", name, inspect.Count(resized.Have, "permit"), resized.Want)
	case errors.Is(err, context.DeadlineExceeded) && waiting.Err() != nil:
		if tried, ok := errors.AsType[*errs.Tried](err); ok { // Redis did not serve the last requests
			holder += ": " + inspect.Cause(tried.Failure)
		}
		return withCode(exitTimeout, fmt.Errorf("timed out after %v waiting for %s%s", r.wait, name, holder))
	case errors.Is(err, fairlock.ErrBusy):
		if held, ok := errors.AsType[*fairlock.HeldError](err); ok && held.Reason == fairlock.AtKeyLimit {
			holder = ": key " + inspect.Plain(r.Key) + " is at its limit"
		} else if ok && held.Reason == fairlock.NotNext {
			holder = ": others wait for it"
		}
		return withCode(exitBusy, fmt.Errorf("%s is busy%s", name, holder))
	case moved:
		return usage("%w; --redis needs the URL of the cluster (see help connection)", err)
	}
	return late(err)
}

// late sets the exit code for a lease that was lost before CMD was started, because a slow Redis replied too late.
func late(err error) error {
	if errors.Is(err, fairlock.ErrLost) && !errors.Is(err, fairlock.ErrRevoked) {
		return withCode(exitUnreachable, err)
	}
	return err
}

// settle releases the lock, and returns CMD's code, unless the lock was lost.
func (r *runner) settle(lease *fairlock.Lease, code int, err error) error {
	if r.stillRuns { // it may still work, so the lock must not be free before the lease ends
		return err
	}
	released := within(releasing, func() error { return lease.Unlock(context.Background()) })
	switch {
	case err != nil:
		return err
	case errors.Is(released, fairlock.ErrLost):
		if e, ok := errors.AsType[*fairlock.Error](released); ok {
			released = e.Err
		}
		return r.gone(released, fmt.Sprintf("CMD ended with code %d", code))
	case released != nil:
		_, _ = fmt.Fprintf(os.Stderr,
			"fairlock: CMD has ended, but %s could not be released; it is free in %v at the latest: %s\n",
			inspect.Plain(r.name), time.Until(lease.Deadline()).Round(time.Second), inspect.Cause(released))
	}
	if code == 0 {
		return nil
	}
	return withCode(code, errSilent)
}

// showWait shows the holder and our position in the queue on a terminal, after the first second. Elsewhere, with
// --verbose, it prints them once. The returned function ends that and clears the line.
func (r *runner) showWait(ctx context.Context, s *inspect.Server, client string) (stop func()) {
	p := newProgress(os.Stderr)
	if r.try || !p.on && !r.verbose {
		return p.clear
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	var task sync.WaitGroup
	task.Go(func() {
		for said := false; p.on || !said; {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			all, err := s.Read(ctx, inspect.Most, r.id())
			if err != nil || all[0].Err != nil {
				continue
			}
			text := fmt.Sprintf("%s: waiting for %v", r.id(), time.Since(began).Round(time.Second))
			if i := slices.IndexFunc(all[0].Living(), func(w admin.Waiter) bool { return w.Client == client }); i >= 0 {
				text += fmt.Sprintf(", position %d of %d", i+1, all[0].Waiting)
			}
			text += standing(all[0])
			if p.show(text); !p.on {
				_, _ = fmt.Fprintln(os.Stderr, "fairlock:", text)
			}
			said = true
		}
	})
	return func() {
		cancel()
		task.Wait()
		p.clear()
	}
}

// standing returns the holder of a lock, and how long it has been held.
func standing(l inspect.Lock) string {
	others := ""
	if n := len(l.Holders); n > 1 {
		others = " and " + inspect.Count(n-1, "other")
	}
	switch n := len(l.Holders); {
	case n == 0 && l.Waiting > 0:
		return ", which has waiters"
	case n == 0:
		return ""
	case l.Holder().Token.IsZero():
		return ", held by a key of another program"
	case l.Holder().Released:
		return released(l.Holder().Client, l.Holder().TTL) + others
	default:
		return fmt.Sprintf(", held by %s for %s", l.Holder().Client, inspect.Span(l.Holder().Age)) + others
	}
}

// released returns the holder that has released a lock before its minimum hold is over, and when the lock will be free,
// if that is known.
func released(client string, free time.Duration) string {
	text := ", released by " + client
	if free > 0 {
		text += ", free in " + inspect.Span(free)
	}
	return text
}
