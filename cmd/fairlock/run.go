package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/fairlock"
)

const runHelp = `Waits until it is its turn, runs CMD while it holds the lock NAME, and gives the lock to the next in line when CMD ends.

Everybody gets in in the order in which they asked, over all machines. Without --wait it waits for as long as it takes;
with --try not at all. A name stands for a mutex; --kind semaphore lets --permits of them in at once (all must name the
same number), --kind rw one writer or, with --read, any number of readers. A CMD that runs fairlock for the same NAME
waits for itself.

CMD finds FAIRLOCK_NAME, FAIRLOCK_FENCE and FAIRLOCK_TOKEN in its environment (help environment). Its standard files are
fairlock's own.

Signals. CMD is a process group of its own. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP and SIGCONT are passed on
to all of it, SIGUSR1 and SIGUSR2 to CMD itself. On a terminal, CMD has the terminal, and gets what is typed there
directly; ^Z stops both. While it waits, SIGINT, SIGTERM, SIGHUP or SIGQUIT ends it, and it leaves the queue. A SIGINT or
SIGHUP that is ignored when it starts (nohup) stays ignored, also by CMD.

When the lock is lost. The lock is a lease of --ttl, which is renewed for as long as CMD runs; if this machine dies, the
others wait until its end. If Redis cannot be reached, CMD gets SIGTERM so early that --grace has passed before the lease
ends, then SIGKILL, each with all that CMD has started in its group. So it is dead before Redis can give the lock to
anybody else. The same holds if fairlock itself is stopped (^Z, SIGSTOP) for too long, with SIGKILL at once, and if it is
killed: a second process, the guard, sees to that. (Who kills both at once has CMD run on.) If the lock was taken by force
(fairlock release), another may have it already: CMD gets SIGTERM as soon as that is known, which takes up to a third of
--ttl, and SIGKILL half a second later (or --grace, if that is shorter).

What is left. What CMD leaves behind in the background when it ends goes on, without the lock. Processes that leave CMD's
group (setsid, daemons) and those of other users (sudo) cannot be stopped. A write on its way when the lock is lost may
arrive late: only a resource that checks FAIRLOCK_FENCE is safe from that.

Exit code: CMD's own; or 75 busy, 76 lost, 124 waited too long, 126 or 127 no such CMD, 69 no Redis, 2 wrong call, with one
line on stderr; see help exit-codes.`

const runExample = `  fairlock run nightly-report -- ./report.sh
  fairlock run deploy --wait 10m -- make deploy
  fairlock run cleanup --try -- ./cleanup.sh || [ $? = 75 ]         # cron: skip it if another host is at it
  fairlock run api --kind semaphore --permits 5 -- curl …           # at most five at once, everywhere
  fairlock run catalogue --kind rw --read -- ./export.sh
  fairlock run import --ttl 1m --grace 20s -- ./import.sh           # 20 s to clean up if the lock is lost
  fairlock run migrate -- sh -c './migrate --fence "$FAIRLOCK_FENCE"'`

// shortGrace is how long CMD may take to end when the lock was taken from it: somebody else may have it already.
const shortGrace = 500 * time.Millisecond

// stopped is what became of a CMD that we have ended.
const stopped = "CMD was stopped"

// A Redis that hangs is not waited for: places and leases end by themselves.
const (
	leaving   = time.Second     // for it to hear that we do not wait any more
	releasing = 3 * time.Second // for it to take the lock back
)

// undying is how long a killed CMD may take to be gone.
const undying = 2 * time.Second

// runner is one run of CMD under a lock.
type runner struct {
	name          string
	argv          []string
	kind          string
	permits, take int
	read, try     bool
	ttl           time.Duration
	wait          time.Duration // 0: for as long as it takes
	grace         time.Duration
	passRedis     bool

	paused  bool                  // fairlock itself had been stopped for long when it last looked
	undead  bool                  // CMD was to be stopped and is still there
	failure atomic.Pointer[error] // of the last renewal; nil if it went well
}

func runCommand(c *connection) *cobra.Command {
	var r runner
	cmd := &cobra.Command{
		Use:     "run NAME [flags] -- CMD [ARG...]",
		Short:   "Run a program while holding a lock",
		Long:    runHelp,
		Example: runExample,
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
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // that nobody reads our words is not CMD's end
			r.name, r.argv = args[0], args[1:]
			if err := r.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return r.run(cmd.Context(), c)
		},
	}
	kindFlag(cmd, &r.kind, "mutex, semaphore or rw (default mutex)")
	f := cmd.Flags()
	f.IntVar(&r.permits, "permits", 0, "with --kind semaphore: how many permits there are")
	f.IntVar(&r.take, "take", 1, "with --kind semaphore: how many of them CMD takes")
	f.BoolVar(&r.read, "read", false, "with --kind rw: CMD reads, beside other readers")
	f.BoolVar(&r.try, "try", false, "do not wait: exit with 75 if somebody holds the lock or waits for it")
	f.DurationVar(&r.wait, "wait", 0, "wait no longer than that, then exit with 124 (default: as long as it takes)")
	f.DurationVar(&r.ttl, "ttl", fairlock.DefaultTTL, "for how long the lock stays taken if this machine dies")
	f.DurationVar(&r.grace, "grace", 0, "how long CMD may take to end if the lock is being lost, up to half of --ttl (default a quarter)")
	f.BoolVar(&r.passRedis, "pass-redis", false, "let CMD see the server's URL, with the password, in FAIRLOCK_REDIS")
	return cmd
}

// check finds what is wrong with the flags, before anything is sent, and fills in what depends on others.
func (r *runner) check(given func(string) bool) error {
	kinds, err := kindsOf(r.kind)
	if err != nil {
		return err
	}
	kind := view.Mutex
	if r.kind != "" {
		kind = kinds[0]
	}
	r.kind = string(kind)
	if !given("grace") {
		r.grace = r.ttl / 4
	}
	const minTTL = 100 * time.Millisecond // to start and stop a process in it
	switch {
	case kind != view.Semaphore && (given("permits") || given("take")):
		return usage("--permits and --take go with --kind semaphore")
	case kind == view.Semaphore && !given("permits"):
		return usage("--kind semaphore needs --permits, the same number for all who use %s", view.Plain(r.name))
	case kind == view.Semaphore && (r.permits < 1 || r.permits > fairlock.MaxPermits):
		return usage("--permits is %d, must be from 1 to %d", r.permits, fairlock.MaxPermits)
	case kind == view.Semaphore && (r.take < 1 || r.take > r.permits):
		return usage("--take is %d, must be from 1 to the %d of --permits", r.take, r.permits)
	case kind != view.RW && r.read:
		return usage("--read goes with --kind rw")
	case r.try && given("wait"):
		return usage("--try does not wait: leave out --wait")
	case given("wait") && r.wait <= 0:
		return usage("--wait is %v, must be above 0 (--try does not wait)", r.wait)
	case r.ttl < minTTL || r.ttl > fairlock.MaxTTL:
		return usage("--ttl is %v, must be from %v to %v (a year)", r.ttl, minTTL, fairlock.MaxTTL)
	case r.grace < 0 || r.grace > r.ttl/2:
		return usage("--grace is %v, must be from 0 to half of --ttl, %v", r.grace, r.ttl/2)
	}
	return nil
}

// run waits for the lock and runs CMD. Its error has the exit code, CMD's among them.
func (r *runner) run(ctx context.Context, c *connection) error {
	path, err := find(r.argv[0])
	if err != nil {
		return err
	}
	env, err := r.environment(c)
	if err != nil {
		return err
	}
	rdb, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	client, err := c.locks(rdb, fairlock.Config{TTL: r.ttl, Trace: &fairlock.Trace{Renewed: r.renewed}})
	if err != nil {
		return err
	}
	defer func() { _ = within(leaving, client.Close) }() // leaves the queue, too; else its place expires
	lease, err := r.acquire(ctx, c, rdb, client)
	if err != nil {
		return err
	}
	code, err := r.hold(ctx, lease, path, env)
	return r.settle(lease, code, err)
}

// within returns what f does, or an error if that takes too long: go-redis does not interrupt a call.
func within(limit time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("no answer within %v", limit)
	}
}

// find looks up CMD as a shell does.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot): // a PATH with a dot in it is the user's choice
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return "", withCode(exitNotFound, fmt.Errorf("CMD %s: not found", view.Plain(name)))
	}
	return "", withCode(exitCannotRun, fmt.Errorf("CMD %s: %w", view.Plain(name), cause(err)))
}

// cause is what is wrong with CMD, without the path and what was tried.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// environment is CMD's, but for what depends on the lease.
func (r *runner) environment(c *connection) ([]string, error) {
	ours := []string{envName, envFence, envToken, envRedis, envPassword}
	if name, ok := c.variable(); ok {
		ours = append(ours, name)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ours, name)
	})
	if r.passRedis {
		url, err := c.url()
		if err != nil {
			return nil, err
		}
		env = append(env, envRedis+"="+url, envNamespace+"="+c.namespace)
	}
	return append(env, envName+"="+r.name), nil
}

// acquire waits for the lock, as long as it may.
func (r *runner) acquire(ctx context.Context, c *connection, rdb redis.UniversalClient, client *fairlock.Client) (*fairlock.Lease, error) {
	if r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	stop := r.showWait(ctx, view.Server{Redis: rdb, Namespace: c.prefix()}, client.Name())
	lease, err := r.lock(ctx, client)
	stop()
	name := view.Plain(r.name)
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return nil, withCode(exitTimeout, fmt.Errorf("waited %v for %s in vain", r.wait, name))
	case errors.Is(err, fairlock.ErrBusy):
		return nil, withCode(exitBusy, fmt.Errorf("%s is busy", name))
	}
	return nil, elsewhere(late(err))
}

// late gives its code to a lease that was lost before CMD was started: the answer of a slow Redis came too late.
func late(err error) error {
	if errors.Is(err, fairlock.ErrLost) && !errors.Is(err, fairlock.ErrTaken) {
		return withCode(exitUnreachable, err)
	}
	return err
}

// elsewhere says what is to be done about a server that has only a part of the locks.
func elsewhere(err error) error {
	if _, moved := redis.IsMovedError(err); moved {
		return usage("%w; --redis needs its URL as that of a cluster (see help connection)", err)
	}
	return err
}

func (r *runner) lock(ctx context.Context, c *fairlock.Client) (*fairlock.Lease, error) {
	switch kind := view.Kind(r.kind); {
	case kind == view.Semaphore && r.try:
		return c.Semaphore(r.name, r.permits).TryAcquire(ctx, r.take)
	case kind == view.Semaphore:
		return c.Semaphore(r.name, r.permits).Acquire(ctx, r.take)
	case kind == view.RW && r.read && r.try:
		return c.RWMutex(r.name).TryRLock(ctx)
	case kind == view.RW && r.read:
		return c.RWMutex(r.name).RLock(ctx)
	case kind == view.RW && r.try:
		return c.RWMutex(r.name).TryLock(ctx)
	case kind == view.RW:
		return c.RWMutex(r.name).Lock(ctx)
	case r.try:
		return c.Mutex(r.name).TryLock(ctx)
	}
	return c.Mutex(r.name).Lock(ctx)
}

// settle gives the lock back, and says how it all ended: CMD's code, unless the lock was lost.
func (r *runner) settle(lease *fairlock.Lease, code int, err error) error {
	if r.undead { // it is still at work: the lock is free when the lease ends, and no sooner
		return err
	}
	released := within(releasing, func() error { return lease.Unlock(context.Background()) })
	switch {
	case err != nil:
		return err
	case errors.Is(released, fairlock.ErrLost):
		return r.gone(inner(released), fmt.Sprintf("CMD ended with code %d", code))
	case released != nil:
		_, _ = fmt.Fprintf(os.Stderr, "fairlock: CMD has ended, but %s could not be released; it is free in %v at the latest: %s\n",
			view.Plain(r.name), time.Until(lease.Deadline()).Round(time.Second), oneLine(released))
	}
	if code == 0 {
		return nil
	}
	return withCode(code, errSilent)
}

// inner is an error of the library without what it says of the lock.
func inner(err error) error {
	if e, ok := errors.AsType[*fairlock.Error](err); ok {
		return e.Err
	}
	return err
}

func (r *runner) variables(lease *fairlock.Lease) []string {
	return []string{envFence + "=" + strconv.FormatUint(lease.Fence(), 10), envToken + "=" + lease.Token().Text()}
}
