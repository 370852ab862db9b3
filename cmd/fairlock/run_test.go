//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// run is `fairlock run` with these words and a shell script as CMD. The script finds the test's directory in $D.
func runScript(t *testing.T, url, dir, words, script string) *exec.Cmd {
	t.Helper()
	cmd := command(t, url, append(append([]string{"run"}, strings.Fields(words)...), "--", "sh", "-c", script)...)
	cmd.Env = append(cmd.Env, "D="+dir)
	return cmd
}

func TestCmdRunsUnderTheLockAndItsCodeIsTheExitCode(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{}).Mutex("x")
	for script, want := range map[string]result{
		"exit 0":                     {0, "", ""},
		"exit 7":                     {7, "", ""},
		"exit 255":                   {255, "", ""},
		"kill -KILL $$":              {137, "", ""},
		"kill -TERM $$":              {143, "", ""},
		"echo out; echo err >&2":     {0, "out\n", "err\n"},
		"cat; exit 3":                {3, "", ""},
		"fairlock_is_not_there 2>&-": {127, "", ""},
		"cat /dev/stdin >&2; exit 1": {1, "", ""},
	} {
		require.Equal(t, want, begin(t, runScript(t, serverURL(s), "", "x", script)).wait(), script)
		require.False(t, state(t, m).Held)
	}
	onlyFences(t, s.Client())
}

func TestStandardFilesAndOthersAreHandedThrough(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	cmd := runScript(t, serverURL(s), "", "x", "cat; cat <&3 >&2")
	cmd.Stdin = strings.NewReader("one\x00two")
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("three"), 0o600))
	extra, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = extra.Close() }()
	cmd.ExtraFiles = []*os.File{extra}
	require.Equal(t, result{0, "one\x00two", "three"}, begin(t, cmd).wait())
}

func TestCmdKnowsWhatItHolds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for words, look := range map[string]func(*fairlock.Client) (fairlock.State, error){
		"a{b}": func(c *fairlock.Client) (fairlock.State, error) { return c.Mutex("a{b}").Inspect(t.Context()) },
		"a --kind semaphore --permits 3 --take 2": func(c *fairlock.Client) (fairlock.State, error) {
			return c.Semaphore("a", 3).Inspect(t.Context())
		},
		"a --kind rw":        func(c *fairlock.Client) (fairlock.State, error) { return c.RWMutex("a").Inspect(t.Context()) },
		"a --kind rw --read": func(c *fairlock.Client) (fairlock.State, error) { return c.RWMutex("a").Inspect(t.Context()) },
	} {
		t.Run(words, func(t *testing.T) {
			dir := t.TempDir()
			r := begin(t, runScript(t, serverURL(s), dir, words,
				`echo "$FAIRLOCK_NAME $FAIRLOCK_FENCE $FAIRLOCK_TOKEN" > $D/told; mkfifo $D/go; cat $D/go`))
			told := strings.Fields(appears(t, filepath.Join(dir, "told")))
			st, err := look(onLock(t, s, fairlock.Config{}))
			require.NoError(t, err)
			require.Len(t, st.Holders, 1)
			assert.Equal(t, []string{strings.Fields(words)[0], strconv.FormatUint(st.Fence, 10), st.Holder.Token.Text()}, told)
			assert.Equal(t, strings.Contains(words, "rw") && !strings.Contains(words, "read"), st.Holder.Writer)
			if strings.Contains(words, "semaphore") {
				assert.Equal(t, []int{2, 3}, []int{st.Holder.Weight, st.Permits})
			}
			opened(t, filepath.Join(dir, "go"))
			require.Equal(t, 0, r.wait().code)
		})
	}
	onlyFences(t, s.Client())
}

// opened lets a script go on that reads from a pipe of that name.
func opened(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails until somebody reads
		if err == nil {
			_ = f.Close()
		}
		return err == nil
	}, soon, 5*time.Millisecond)
}

func TestCmdDoesNotSeeThePassword(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	script := `env; ps -ww -o args= -p $PPID`
	url := "redis://:secret@" + s.Addr()
	for name, cmd := range map[string]*exec.Cmd{
		"in FAIRLOCK_REDIS":          runScript(t, url, "", "x", script),
		"in FAIRLOCK_REDIS_PASSWORD": withEnv(runScript(t, serverURL(s), "", "x", script), envPassword+"=secret"),
		"in --redis":                 runScript(t, "", "", "x --redis "+url, script),
		"in --redis=":                runScript(t, "", "", "x --redis="+url, script),
		"in a variable":              withEnv(runScript(t, "", "", "x --redis env:MINE", script), "MINE="+url),
		"in a file":                  runScript(t, serverURL(s), "", "x --password-file "+fileWith(t, "secret\nmore"), script),
	} {
		r := begin(t, cmd).wait()
		require.Equal(t, 0, r.code, name+r.errs)
		assert.Contains(t, r.out, "FAIRLOCK_FENCE=", name)
		assert.NotContains(t, r.out, "secret", name)
		assert.NotContains(t, r.out, "FAIRLOCK_REDIS=", name)
	}
	r := begin(t, withEnv(runScript(t, "", "", "x --namespace other --pass-redis --redis env:URL", "env"), "URL="+url)).wait()
	assert.Contains(t, r.out, "FAIRLOCK_REDIS="+url+"\n")
	assert.Contains(t, r.out, "FAIRLOCK_NAMESPACE=other\n")
}

// What a user of this machine can see of us and of the processes that we start.
func TestNoProcessOfOursShowsThePassword(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	dir := t.TempDir()
	r := begin(t, runScript(t, "", dir, "x --redis redis://:secret@"+s.Addr(), `mkfifo $D/go; echo > $D/ready; cat $D/go`))
	appears(t, filepath.Join(dir, "ready"))
	var seen strings.Builder
	for _, p := range processes(t) {
		if p.pid != r.cmd.Process.Pid && p.parent != r.cmd.Process.Pid {
			continue
		}
		seen.WriteString(p.args)
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid)); err == nil && p.pid != r.cmd.Process.Pid {
			seen.Write(env)
		}
	}
	assert.Contains(t, seen.String(), "run x --redis env:FAIRLOCK_REDIS")
	assert.Contains(t, seen.String(), guardName)
	assert.Contains(t, seen.String(), "mkfifo")
	assert.NotContains(t, seen.String(), "secret")
	opened(t, filepath.Join(dir, "go"))
	require.Equal(t, 0, r.wait().code)
}

type process struct {
	pid, parent, group, session int
	args                        string
}

func processes(t *testing.T) []process {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-ww", "-o", "pid=,ppid=,pgid=,sess=,args=").Output()
	require.NoError(t, err)
	var all []process
	for line := range strings.Lines(string(out)) {
		var p process
		_, err := fmt.Sscan(line, &p.pid, &p.parent, &p.group, &p.session)
		require.NoError(t, err)
		p.args = line
		all = append(all, p)
	}
	return all
}

// guarded is a server with the password secret.
func guarded(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.StartTCP(t)
	require.NoError(t, s.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	return s
}

func withEnv(cmd *exec.Cmd, vars ...string) *exec.Cmd {
	cmd.Env = append(cmd.Env, vars...)
	return cmd
}

func fileWith(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestRunsTakeTurnsInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	m := onLock(t, s, fairlock.Config{}).Mutex("x")
	lease := locked(t, m)
	var runs []*running
	for i := range 6 {
		runs = append(runs, begin(t, runScript(t, serverURL(s), dir, "x",
			fmt.Sprintf(`echo in %d $FAIRLOCK_FENCE >> $D/log; sleep 0.02; echo out %d >> $D/log`, i, i))))
		waiting(t, m, i+1)
	}
	fence := lease.Fence()
	require.NoError(t, lease.Unlock(t.Context()))
	var want strings.Builder
	for i, r := range runs {
		require.Equal(t, result{}, r.wait())
		fmt.Fprintf(&want, "in %d\nout %d\n", i, i)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	fences := regexp.MustCompile(` (\d{5,})`).FindAllStringSubmatch(string(log), -1)
	require.Equal(t, want.String(), regexp.MustCompile(` \d{5,}`).ReplaceAllString(string(log), ""))
	for _, f := range fences {
		n, err := strconv.ParseUint(f[1], 10, 64)
		require.NoError(t, err)
		require.Greater(t, n, fence)
		fence = n
	}
	onlyFences(t, s.Client())
}

func TestWhoDoesNotWaitOrNotForLongIsToldSo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := onLock(t, s, fairlock.Config{})
	lease := locked(t, c.Mutex("x"))
	permit, err := c.Semaphore("x", 3).Acquire(t.Context(), 2)
	require.NoError(t, err)
	reader, err := c.RWMutex("x").RLock(t.Context())
	require.NoError(t, err)
	for _, kind := range []string{"", " --kind semaphore --permits 3 --take 2", " --kind rw"} {
		refused(t, call(t, serverURL(s), strings.Fields("run x --try"+kind+" -- true")...), exitBusy, "x is busy")
		start := time.Now()
		refused(t, call(t, serverURL(s), strings.Fields("run x --wait 300ms"+kind+" -- true")...), exitTimeout, "waited 300ms for x")
		assert.Greater(t, time.Since(start), 300*time.Millisecond)
	}
	for _, words := range []string{
		"run x --try --kind semaphore --permits 3 -- true", "run x --try --kind rw --read -- true", "run y --try -- true",
		"run x --try --namespace other -- true",
	} {
		require.Equal(t, result{}, call(t, serverURL(s), strings.Fields(words)...))
	}
	refused(t, call(t, serverURL(s), strings.Fields("run x --kind semaphore --permits 4 -- true")...), exitFailure, "with 3 permits")
	for _, l := range []*fairlock.Lease{lease, permit, reader} {
		require.NoError(t, l.Unlock(t.Context()))
	}
	onlyFences(t, s.Client())
}

func TestASignalWhileItWaitsEndsItAndItLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{}).Mutex("x")
	lease := locked(t, m)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		r := begin(t, command(t, serverURL(s), "run", "x", "--", "true"))
		waiting(t, m, 1)
		r.signal(sig)
		require.Equal(t, result{code: exitSignal + int(sig)}, r.wait(), sig)
		left(t, m)
	}
	require.NoError(t, lease.Unlock(t.Context()))
	onlyFences(t, s.Client())
}

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, sig := range []string{"INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"} {
		t.Run(sig, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := begin(t, runScript(t, serverURL(s), dir, sig,
				`trap 'echo got >> $D/log; exit 9' `+sig+`; echo > $D/ready; while :; do sleep 0.02; done`))
			appears(t, filepath.Join(dir, "ready"))
			r.signal(signals[sig])
			require.Equal(t, 9, r.wait().code)
			require.Equal(t, "got\n", appears(t, filepath.Join(dir, "log")))
		})
	}
}

var signals = map[string]syscall.Signal{
	"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1,
	"USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH,
}

// A signal that says "end" is for all that CMD has started; one whose meaning CMD decides is for CMD.
func TestEndingIsForTheWholeGroupAndTheRestForCmd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for sig, want := range map[string]string{"TERM": "ended", "USR1": "alive"} {
		t.Run(sig, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := begin(t, runScript(t, serverURL(s), dir, sig, `sleep 60 & worker=$!; `+
				`trap 'i=0; while kill -0 $worker 2>&- && [ $i -lt 50 ]; do sleep 0.02; i=$((i+1)); done; if kill -0 $worker 2>&-; then echo alive; else wait $worker; echo ended; fi; kill $worker 2>&-; exit' `+
				sig+`; echo > $D/ready; while :; do sleep 0.02 || :; done`))
			appears(t, filepath.Join(dir, "ready"))
			r.signal(signals[sig])
			require.Equal(t, want+"\n", r.wait().out)
		})
	}
}

func TestACmdThatDiesOfASignalWePassOnExitsAsItWould(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, name := range []string{"INT", "TERM", "HUP"} {
		dir := t.TempDir()
		r := begin(t, runScript(t, serverURL(s), dir, "x", `echo > $D/ready; exec sleep 60`))
		appears(t, filepath.Join(dir, "ready"))
		r.signal(signals[name])
		require.Equal(t, result{code: exitSignal + int(signals[name])}, r.wait())
	}
	onlyFences(t, s.Client())
}

func TestASignalThatIsIgnoredStaysSo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	inner := fmt.Sprintf(`trap '' HUP; exec %s run x -- sh -c 'echo > $D/ready; mkfifo $D/go; cat $D/go'`, program)
	cmd := command(t, serverURL(s))
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", inner}
	cmd.Env = append(cmd.Env, "D="+dir)
	r := begin(t, cmd)
	appears(t, filepath.Join(dir, "ready"))
	r.signal(syscall.SIGHUP)
	for _, p := range processes(t) {
		if p.parent == r.cmd.Process.Pid && !strings.Contains(p.args, guardName) {
			require.NoError(t, syscall.Kill(-p.group, syscall.SIGHUP)) // CMD ignores it, too
		}
	}
	opened(t, filepath.Join(dir, "go"))
	require.Equal(t, result{}, r.wait())
}

func TestALeaseIsRenewedWhileCmdRuns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	holder := begin(t, runScript(t, serverURL(s), dir, "x --ttl 2s --grace 0", `mkfifo $D/go; echo > $D/ready; cat $D/go`))
	appears(t, filepath.Join(dir, "ready"))
	refused(t, call(t, serverURL(s), strings.Fields("run x --wait 3s -- true")...), exitTimeout, "x")
	opened(t, filepath.Join(dir, "go"))
	require.Equal(t, result{}, holder.wait())
}

// A lock that was waited for is handed over for a short time, if the waiter's last beat was long ago. CMD gets all of its
// time to end nonetheless.
func TestAHandoverDoesNotCostCmdItsGrace(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{}).Mutex("x")
	lease := locked(t, m)
	r := begin(t, runScript(t, serverURL(s), "", "x --ttl 12s --grace 6s", "exit 4")) // a WaiterTTL of 6 s
	waiting(t, m, 1)
	require.NoError(t, lease.Unlock(t.Context()))
	require.Equal(t, 4, r.wait().code)
}

// nag is a script that writes to a file as fast as is good for the machine, in a process of its own, and cannot be ended
// but by SIGKILL; nor can what has started it.
const nag = `trap '' TERM; (while :; do echo x >> $D/log; sleep 0.01; done) & while :; do echo y >> $D/log; sleep 0.01; done`

// witness is a script that tells whether that file still grows.
const witness = `a=$(wc -l < $D/log); sleep 0.3; b=$(wc -l < $D/log); echo $a $b`

// still asserts that a witness has seen nothing grow, and that there had been something.
func still(t *testing.T, r result) {
	t.Helper()
	require.Equal(t, 0, r.code, r.errs)
	var before, after int
	_, err := fmt.Sscan(r.out, &before, &after)
	require.NoError(t, err)
	assert.Equal(t, before, after, "CMD was at work after another had the lock")
	assert.Positive(t, before)
}

// Whatever befalls the holder, nothing that CMD has started is alive when the next one gets the lock.
func TestCmdIsDeadBeforeAnotherGetsTheLock(t *testing.T) {
	// If it comes to look late, the lease is over by then, and CMD dead, by the guard.
	const told = `fairlock: x( could not be renewed: .*; CMD was stopped before the lease ended|: lock is lost: .*; CMD was stopped)\n$`
	const willing = `(` + nag + `) & while :; do sleep 0.01; done` // CMD itself ends at SIGTERM
	for name, c := range map[string]struct {
		words  string
		script string
		strike func(link *redistest.Link, holder *running)
		mend   func(link *redistest.Link, holder *running)
		want   string // regexp of what it says, after which it exits with 76; empty: it was killed
	}{
		"CMD ends and its children do not": {
			"--grace 300ms", willing, func(l *redistest.Link, _ *running) { l.Cut() }, nil, told,
		},
		"connections break": {
			"--grace 300ms", nag, func(l *redistest.Link, _ *running) { l.Cut() }, nil, told,
		},
		"Redis hangs": {
			"", nag, func(l *redistest.Link, _ *running) { l.Hang() }, nil,
			`^fairlock: x could not be renewed: .*; CMD was stopped before the lease ended\n$`,
		},
		"no grace": {
			"--grace 0", nag, func(l *redistest.Link, _ *running) { l.Hang() }, nil, told,
		},
		"fairlock is killed": {
			"", nag, func(_ *redistest.Link, r *running) { r.signal(syscall.SIGKILL) }, nil, "",
		},
		"fairlock is stopped": {
			"", nag, func(_ *redistest.Link, r *running) { r.signal(syscall.SIGSTOP) },
			func(_ *redistest.Link, r *running) { r.signal(syscall.SIGCONT) },
			`^fairlock: x: lock is lost: [^\n]*; CMD was stopped\n$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			link := redistest.NewLink(t, s)
			dir := t.TempDir()
			holder := begin(t, runScript(t, "unix://"+link.Addr(), dir, "x --ttl 4s "+c.words, c.script))
			appears(t, filepath.Join(dir, "log"))
			next := begin(t, runScript(t, serverURL(s), dir, "x", witness))
			waiting(t, onLock(t, s, fairlock.Config{}).Mutex("x"), 1)
			c.strike(link, holder)
			still(t, next.wait())
			if c.mend != nil {
				c.mend(link, holder)
			}
			r := holder.wait()
			if c.want == "" {
				require.Negative(t, r.code)
				return
			}
			require.Equal(t, exitLost, r.code, r.errs)
			require.Regexp(t, c.want, r.errs)
			onlyFences(t, s.Client())
		})
	}
}

// guardOf returns the process id of the guard of a run, once it has one other than before.
func guardOf(t *testing.T, r *running, before int) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, p := range processes(t) {
			if p.parent == r.cmd.Process.Pid && p.pid != before && strings.Contains(p.args, guardName) {
				pid = p.pid
			}
		}
		return pid != 0
	}, soon, 5*time.Millisecond)
	return pid
}

func TestAGuardThatWasKilledIsReplaced(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	holder := begin(t, runScript(t, serverURL(s), dir, "x --ttl 2s", nag))
	appears(t, filepath.Join(dir, "log"))
	first := guardOf(t, holder, 0)
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	guardOf(t, holder, first)
	time.Sleep(300 * time.Millisecond) // until it has been told whom to watch
	next := begin(t, runScript(t, serverURL(s), dir, "x", witness))
	waiting(t, onLock(t, s, fairlock.Config{}).Mutex("x"), 1)
	holder.signal(syscall.SIGKILL)
	still(t, next.wait())
	holder.wait()
}

// An upgrade, while somebody waits for a long time.
func TestTheGuardIsOfTheProgramThatRuns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{}).Mutex("x")
	lease := locked(t, m)
	dir := t.TempDir()
	copied := filepath.Join(dir, "fairlock")
	// By cp: what a test forks just while this process writes the file would keep it busy.
	require.NoError(t, exec.Command("cp", program, copied).Run())
	cmd := runScript(t, serverURL(s), dir, "x", "echo in")
	cmd.Path = copied
	r := begin(t, cmd)
	waiting(t, m, 1)
	require.NoError(t, os.Remove(copied))
	require.NoError(t, lease.Unlock(t.Context()))
	require.Equal(t, result{0, "in\n", ""}, r.wait())
}

// The guard has killed CMD, and fairlock goes on so early that it can still renew the lease.
func TestWhoWasStoppedForTooLongSaysSoThoughItStillHoldsTheLock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	r := begin(t, runScript(t, serverURL(s), dir, "x --ttl 10s", `echo $$ > $D/pid; while :; do sleep 0.01; done`))
	pid, err := strconv.Atoi(strings.TrimSpace(appears(t, filepath.Join(dir, "pid"))))
	require.NoError(t, err)
	r.signal(syscall.SIGSTOP)
	require.Eventually(t, func() bool { // a zombie, for its parent cannot take note
		out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		return strings.HasPrefix(string(out), "Z")
	}, soon, time.Millisecond)
	r.signal(syscall.SIGCONT)
	got := r.wait()
	require.Equal(t, result{exitLost, "", got.errs}, got)
	// If it goes on later than the lease lasts, after all, that is what it says, and Redis ends the lease.
	require.Regexp(t, `^fairlock: x(: lock is lost: lease expired; CMD was stopped`+
		`| could not be renewed: fairlock was stopped for too long; CMD was stopped before the lease ended)\n$`, got.errs)
	rdb := s.Client()
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), "fairlock:{x}:lock").Val() == 0 }, soon, 5*time.Millisecond)
	onlyFences(t, rdb)
}

// … or even has renewed it before it looks.
func TestWhoseCmdTheGuardHasKilledSaysSoThoughTheLeaseWasRenewed(t *testing.T) {
	t.Parallel()
	lease := locked(t, onLock(t, redistest.Start(t), fairlock.Config{TTL: time.Minute}).Mutex("x"))
	for range 20 { // CMD's end and the time to look come at once, and either may be seen first
		r := &runner{name: "x", ttl: time.Minute}
		g := &guard{to: io.Discard, ended: make(chan struct{}), limit: time.Now()}
		g.until(r.killAt(lease), 2)
		c := &child{pid: -1, ended: make(chan status, 1)}
		c.ended <- status(syscall.SIGKILL)
		_, err := r.accompany(c, g, lease, nil)
		require.EqualError(t, err, "x could not be renewed: fairlock was stopped for too long; CMD was stopped before the lease ended")
		require.Equal(t, exitLost, exitCode(err))
	}
}

func TestARedisThatHangsDoesNotKeepWhoLeaves(t *testing.T) {
	t.Parallel()
	const long = 8 * time.Second // go-redis takes 25 s
	for name, leave := range map[string]struct {
		words string
		do    func(*running)
		code  int
	}{
		"--wait ends": {"x --wait 2s", func(*running) {}, exitTimeout},
		"SIGTERM":     {"x", func(r *running) { r.signal(syscall.SIGTERM) }, exitSignal + int(syscall.SIGTERM)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			m := onLock(t, s, fairlock.Config{}).Mutex("x")
			locked(t, m)
			r := begin(t, runScript(t, serverURL(s), "", leave.words, "true"))
			waiting(t, m, 1)
			s.Pause()
			defer s.Continue()
			began := time.Now()
			leave.do(r)
			require.Equal(t, leave.code, r.wait().code)
			require.Less(t, time.Since(began), long)
		})
	}
	t.Run("CMD ends", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		dir := t.TempDir()
		r := begin(t, runScript(t, serverURL(s), dir, "x --ttl 1m", `mkfifo $D/go; echo > $D/ready; cat $D/go; exit 7`))
		appears(t, filepath.Join(dir, "ready"))
		s.Pause()
		defer s.Continue()
		began := time.Now()
		opened(t, filepath.Join(dir, "go"))
		got := r.wait()
		require.Equal(t, 7, got.code)
		require.Regexp(t, `^fairlock: CMD has ended, but x could not be released; it is free in [^\n]+: no answer within 3s\n$`, got.errs)
		require.Less(t, time.Since(began), long)
	})
}

func TestEverySignalReachesCmd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := begin(t, runScript(t, serverURL(redistest.Start(t)), dir, "x",
		`trap 'n=x$n; echo > $D/$n' HUP; echo > $D/ready; until [ "$n" = xxx ]; do sleep 0.02; done; exit 4`))
	for _, after := range []string{"ready", "x", "xx"} {
		appears(t, filepath.Join(dir, after))
		r.signal(syscall.SIGHUP)
	}
	require.Equal(t, 4, r.wait().code)
}

// SIGQUIT, left to itself, has Go print the stacks of all goroutines.
func TestASecondSignalEndsItAtOnceAndQuietly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	r := begin(t, runScript(t, serverURL(s), dir, "x --ttl 1m", `trap '' QUIT; mkfifo $D/go; echo > $D/ready; cat $D/go`))
	appears(t, filepath.Join(dir, "ready"))
	s.Pause()
	defer s.Continue()
	opened(t, filepath.Join(dir, "go")) // CMD ends, and nobody takes the lock back
	ended := make(chan result)
	go func() { ended <- r.wait() }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = r.cmd.Process.Signal(syscall.SIGQUIT)
		case got := <-ended:
			require.Equal(t, result{code: exitSignal + int(syscall.SIGQUIT)}, got)
			return
		}
	}
}

func TestNobodyReadsWhatItSaysAndTheCodeIsTheSame(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locked(t, onLock(t, s, fairlock.Config{}).Mutex("x"))
	reader, closed, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer func() { _ = closed.Close() }()
	cmd := runScript(t, serverURL(s), "", "x --try", "true")
	cmd.Stderr = closed
	require.Equal(t, exitBusy, begin(t, cmd).wait().code)
}

// Who is killed before it can tell the guard whom to guard has started nothing.
func TestCmdDoesNotBeginBeforeItIsGuarded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(file string) *child {
		c, err := startChild("/bin/sh", []string{"sh", "-c", `echo $0 $1 > "$1"`, "zero", filepath.Join(dir, file)}, os.Environ())
		require.NoError(t, err)
		return c
	}
	orphan, c := start("orphan"), start("cmd")
	require.NoError(t, orphan.gate.Close()) // as the system does for who is killed
	require.Equal(t, exitFailure, codeOf(<-orphan.ended))
	require.NoFileExists(t, filepath.Join(dir, "orphan"))
	require.NoFileExists(t, filepath.Join(dir, "cmd"))
	c.begin()
	require.Zero(t, codeOf(<-c.ended))
	require.NoError(t, c.refused)
	require.Equal(t, "zero "+filepath.Join(dir, "cmd")+"\n", appears(t, filepath.Join(dir, "cmd")))
}

// A busy machine may let it read only later.
func TestAGuardThatReadsLateKillsInTimeNonetheless(t *testing.T) {
	t.Parallel()
	sleep := exec.Command("sleep", "600")
	apart(sleep)
	require.NoError(t, sleep.Start())
	in, to, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = in.Close(); _ = to.Close() }()
	start := time.Now()
	(&guard{to: to}).tell(order{
		Group: int64(sleep.Process.Pid), Left: int64(soon), Sent: start.Add(-soon).UnixNano(),
	})
	require.NoError(t, watchOver(in))
	require.EqualError(t, sleep.Wait(), "signal: killed")
	assert.Less(t, time.Since(start), soon)
}

func TestAGuardThatDoesNotListenIsKilled(t *testing.T) {
	t.Parallel()
	in, to, err := os.Pipe() // from which nobody reads
	require.NoError(t, err)
	defer func() { _ = in.Close(); _ = to.Close() }()
	g := &guard{cmd: exec.Command("sleep", "600"), to: to}
	require.NoError(t, g.cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.cmd.Wait()
	}()
	late := time.After(soon)
	for {
		g.until(time.Now().Add(time.Hour), 2)
		select {
		case <-ended:
			return
		case <-late:
			require.FailNow(t, "it lives")
		default:
		}
	}
}

func TestCmdHasItsGraceBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	dir := t.TempDir()
	holder := begin(t, runScript(t, "unix://"+link.Addr(), dir, "x --ttl 8s --grace 4s",
		`exec 2>&-; trap 'sleep 0.8; echo cleaned > $D/log; exit 5' TERM; echo > $D/ready; while :; do sleep 0.02; done`))
	appears(t, filepath.Join(dir, "ready"))
	next := begin(t, runScript(t, serverURL(s), dir, "x", `cat $D/log`))
	waiting(t, onLock(t, s, fairlock.Config{}).Mutex("x"), 1)
	link.Cut()
	require.Equal(t, "cleaned\n", next.wait().out)
	r := holder.wait()
	require.Equal(t, exitLost, r.code)
	require.Regexp(t, `^fairlock: x could not be renewed: [^\n]*; CMD was stopped before the lease ended\n$`, r.errs)
}

// What CMD has started may need its grace when CMD itself is gone.
func TestTheGraceIsForAllOfTheGroup(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	dir := t.TempDir()
	holder := begin(t, runScript(t, "unix://"+link.Addr(), dir, "x --ttl 8s --grace 4s",
		`sh -c 'trap "sleep 0.5; echo cleaned > $D/log; exit" TERM; echo > $D/ready; while :; do sleep 0.02; done' & `+
			`while [ ! -s $D/ready ]; do sleep 0.02; done; exec sleep 60`))
	appears(t, filepath.Join(dir, "ready"))
	link.Cut()
	require.Equal(t, exitLost, holder.wait().code)
	require.Equal(t, "cleaned\n", appears(t, filepath.Join(dir, "log")))
}

func TestACmdFromWhichTheLockWasTakenIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	holder := begin(t, runScript(t, serverURL(s), dir, "x --ttl 6s --grace 2s", nag))
	appears(t, filepath.Join(dir, "log"))
	next := begin(t, runScript(t, serverURL(s), dir, "x", `sleep 5; `+witness)) // it takes a third of TTL, and half a second
	m := onLock(t, s, fairlock.Config{}).Mutex("x")
	waiting(t, m, 1)
	taken, err := m.ForceRelease(t.Context())
	require.NoError(t, err)
	require.True(t, taken)
	r := holder.wait()
	require.Equal(t, exitLost, r.code)
	require.Equal(t, "fairlock: x: lock is lost: no longer the owner; CMD was stopped\n", r.errs)
	still(t, next.wait())
	onlyFences(t, s.Client())
}

func TestALockThatWasTakenWhileCmdEndedIsToldOf(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := onLock(t, s, fairlock.Config{})
	dir := t.TempDir()
	holder := begin(t, runScript(t, serverURL(s), dir, "x --ttl 60s", `mkfifo $D/go; echo > $D/ready; cat $D/go`))
	appears(t, filepath.Join(dir, "ready"))
	_, err := c.Mutex("x").ForceRelease(t.Context())
	require.NoError(t, err)
	opened(t, filepath.Join(dir, "go"))
	refused(t, holder.wait(), exitLost, "x: lock is lost: no longer the owner; CMD ended with code 0\n")
}

func TestRedisThatDiesMeanwhileIsToldOfAndCmdIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	holder := begin(t, runScript(t, serverURL(s), dir, "x --ttl 6s", `echo > $D/ready; exec sleep 60`))
	appears(t, filepath.Join(dir, "ready"))
	s.Kill()
	refused(t, holder.wait(), exitLost, "x could not be renewed: ")
}

func TestRedisThatDiesAtTheEndDoesNotChangeCmdsCode(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	holder := begin(t, runScript(t, serverURL(s), dir, "x --ttl 6s --grace 0", `mkfifo $D/go; echo > $D/ready; cat $D/go; exit 3`))
	appears(t, filepath.Join(dir, "ready"))
	s.Kill()
	opened(t, filepath.Join(dir, "go"))
	r := holder.wait()
	require.Equal(t, 3, r.code)
	require.Regexp(t, `^fairlock: CMD has ended, but x could not be released; it is free in \d+s at the latest: [^\n]+\n$`, r.errs)
}

func TestARestartOfRedisCostsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	dir := t.TempDir()
	holder := begin(t, runScript(t, serverURL(s), dir, "x --ttl 6s", `mkfifo $D/go; echo > $D/ready; cat $D/go`))
	appears(t, filepath.Join(dir, "ready"))
	next := begin(t, runScript(t, serverURL(s), dir, "x", `echo $FAIRLOCK_FENCE`))
	waiting(t, onLock(t, s, fairlock.Config{}).Mutex("x"), 1)
	s.Kill()
	s.Run()
	opened(t, filepath.Join(dir, "go"))
	require.Equal(t, result{}, holder.wait())
	require.Equal(t, 0, next.wait().code)
}

func TestWhatCmdLeavesInTheBackgroundGoesOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	cmd := runScript(t, serverURL(s), dir, "x", `(mkfifo $D/go; cat $D/go; echo done > $D/log) >/dev/null 2>&1 & exit 2`)
	require.Equal(t, result{code: 2}, begin(t, cmd).wait())
	opened(t, filepath.Join(dir, "go"))
	require.Equal(t, "done\n", appears(t, filepath.Join(dir, "log")))
}

// Not beside others: what they fork just while this process writes a program would keep that busy.
func TestACmdThatCannotBeRunIsToldOfBeforeAnythingIsSent(t *testing.T) {
	s := redistest.Start(t)
	plain := fileWith(t, "no program")
	for cmd, want := range map[string]int{
		"no-such-program":   exitNotFound,
		"/no/such/program":  exitNotFound,
		plain:               exitCannotRun,
		filepath.Dir(plain): exitCannotRun,
	} {
		refused(t, call(t, serverURL(s), "run", "x", "--", cmd), want, cmd)
		refused(t, call(t, "unix:///no/such/socket", "run", "x", "--", cmd), want, cmd)
	}
	keys, err := s.Client().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)

	require.NoError(t, os.Chmod(plain, 0o700)) // the system finds out only when it is started
	refused(t, call(t, serverURL(s), "run", "x", "--", plain), exitCannotRun, "exec format error")
	require.NoError(t, os.WriteFile(plain, []byte("#!/no/such/interpreter\n"), 0o700)) //nolint:gosec // it is to be run
	refused(t, call(t, serverURL(s), "run", "x", "--", plain), exitNotFound, "no such file")
	onlyFences(t, s.Client())
}
