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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

func TestRun_ExitCodeAndFilesAreThoseOfCMD(t *testing.T) {
	f := newFixture(t)
	cmd := f.command("run", "x", "--", "sh", "-c",
		"cat; cat <&3 >&2; for n in 4 5 6 7 8 9; do [ ! -e /dev/fd/$n ] || echo $n; done; exit 255")
	cmd.Stdin = strings.NewReader("one\x00two")
	extra, err := os.Open(filepath.Join(files, "plain"))
	require.NoError(t, err)
	defer func() { _ = extra.Close() }()
	cmd.ExtraFiles = []*os.File{extra}
	require.Equal(t, result{255, "one\x00two", "no program"}, f.start(cmd).wait())
	require.Equal(t, result{code: exitKilled}, f.run("x", "kill -KILL $$").wait())
	require.Empty(t, f.state(f.client("").Mutex("x")).Holders)

	ps := f.processes()
	require.Equal(t, result{code: 2}, f.run("x", "exec 3>$D/processes; sleep 60 >/dev/null 2>&1 & exit 2").wait())
	require.True(t, ps.alive(), "what CMD leaves in the background goes on")
}

// While Redis cannot save its data and refuses to write, a run waits for as long as it may, and reads go on.
func TestRun_WaitsWhileRedisDoesNotWrite(t *testing.T) {
	f := sleepingFixture(t)
	f.server = redistest.Start(t, "--save", "3600", "1")
	f = f.at("unix://" + f.server.Addr())
	rdb, m := f.server.Client(), f.client("web-1").Mutex("x")
	f.hold(m.Lock)
	dir := rdb.ConfigGet(t.Context(), "dir").Val()["dir"]
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700)) // what it saves cannot get this name
	require.NoError(t, rdb.BgSave(t.Context()).Err())
	f.until("it refuses to write", func() bool { return rdb.Set(t.Context(), "k", "v", 0).Err() != nil })
	refused(t, f.attempt("y --wait 3s"), exitTimeout, "timed out after 3s waiting for y: MISCONF")
	refused(t, f.attempt("y --try"), exitUnreachable, "MISCONF")
	require.Contains(t, f.done("status", "x"), "web-1")
}

// A handoff is for WaiterTTL, 6 s, at most. CMD has its grace of 6 s all the same: the lease is renewed before it
// starts.
func TestRun_FIFO(t *testing.T) {
	f := newFixture(t)
	m := f.client("").Mutex("x")
	lease := f.hold(m.Lock)
	var runs []*running
	for i := range 4 {
		runs = append(runs, f.run("x --ttl 12s --grace 6s", "echo $FAIRLOCK_FENCE"))
		f.queued(m, i+1)
	}
	last := fmt.Sprintln(lease.Fence())
	require.NoError(t, lease.Unlock(t.Context()))
	for _, r := range runs {
		got := r.wait()
		require.Equal(t, result{out: got.out}, got)
		require.Greater(t, got.out, last) // fences of as many digits
		last = got.out
	}
}

// A pipe that nobody reads does not change the exit code. How long a run waits is in testdata/sessions.txt.
func TestRun_NobodyReadsStderr(t *testing.T) {
	f := newFixture(t)
	f.hold(f.client("").Mutex("x").Lock)
	reader, closed, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer func() { _ = closed.Close() }()
	cmd := f.command("run", "x", "--try", "--", "true")
	cmd.Stderr = closed
	require.Equal(t, exitBusy, f.start(cmd).wait().code)
}

// The lock stays taken after fairlock was killed, as it does after CMD has ended (see testdata/sessions.txt): the guard
// releases it so.
func TestRun_MinHold(t *testing.T) {
	f := newFixture(t)
	m := f.client("").Mutex("z")
	r := f.run("z --min-hold 1h --ttl 1m", "echo up; exec sleep 600")
	r.expect("up\n")
	r.signal(syscall.SIGKILL)
	f.until("the guard gives the lock back", func() bool { return f.state(m).Holders[0].Released })
	require.Greater(t, f.state(m).Holders[0].TTL, 59*time.Minute)
}

// It leaves the queue; but if Redis hangs, it does not wait for that. go-redis would wait for an hour.
func TestRun_SignalWhileItWaits(t *testing.T) {
	together(newFixture(t), map[string]bool{
		"SIGINT": false, "SIGTERM": false, "SIGHUP": false, "SIGQUIT": false, "SIGTERM while Redis hangs": true,
	}, func(t *testing.T, f fixture, name string, hang bool) {
		f, signal := f.apart(), unix.SignalNum(strings.Fields(name)[0])
		m := f.client("").Mutex("x")
		f.hold(m.Lock)
		f, link := f.linked()
		r := f.at(f.url+"?read_timeout=1h").run("x", "true")
		f.queued(m, 1)
		if hang {
			link.Hang()
		}
		r.signal(signal)
		require.Equal(t, result{code: exitSignal + int(signal)}, r.wait())
		require.Equal(t, hang, f.state(m).Waiting == 1)
	})
}

// A signal to end is for all processes that CMD has started; SIGUSR1 and SIGUSR2 mean what CMD makes of them. The
// shells only wait: dash forgets a signal that comes while it starts a command. The cat, too, may miss SIGTERM so: it
// ends with the test's input, and does not keep the output open.
func TestRun_ForwardsSignals(t *testing.T) {
	f := newFixture(t)
	r := f.run("x", `exec 3<&0; for s in INT HUP QUIT USR1 USR2 WINCH; do trap "echo CMD $s" $s; done; trap 'wait; echo CMD TERM; exit 9' TERM
		sh -c 'trap "" HUP; trap "echo child USR1" USR1; trap "echo child TERM; exit" TERM; echo up; cat <&3 & wait' &
		while :; do wait; done`)
	require.Empty(t, r.expect("up\n"))
	for _, name := range []string{"USR1", "USR2", "WINCH", "HUP", "HUP", "INT", "QUIT"} {
		r.signal(unix.SignalNum("SIG" + name))
		require.Empty(t, r.expect("CMD "+name+"\n"))
	}
	r.signal(syscall.SIGTERM)
	require.Equal(t, "child TERM\n", r.expect("CMD TERM\n"))
	require.Equal(t, 9, r.wait().code)

	r = f.run("x", "echo up; exec sleep 600")
	r.expect("up\n")
	r.signal(syscall.SIGHUP)
	require.Equal(t, result{code: exitSignal + int(syscall.SIGHUP)}, r.wait())
}

// As nohup has it.
func TestRun_IgnoredSignalStaysIgnored(t *testing.T) {
	f := newFixture(t)
	cmd := f.command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `trap '' HUP; exec ` + program + ` run x -- sh -c 'echo $$; cat'`}
	r := f.start(cmd)
	group, err := strconv.Atoi(r.expect("\n"))
	require.NoError(t, err)
	r.signal(syscall.SIGHUP)
	require.NoError(t, syscall.Kill(-group, syscall.SIGHUP))
	require.Equal(t, result{}, r.wait())
}

// processes are those that have the FIFO $D/processes open.
type processes struct {
	t  *testing.T
	fd int
}

func (f fixture) processes() processes {
	f.t.Helper()
	path := filepath.Join(f.dir, "processes")
	require.NoError(f.t, syscall.Mkfifo(path, 0o600))
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = syscall.Close(fd) })
	return processes{f.t, fd}
}

// alive reports whether there is one. The system closes the files of a process when it dies.
func (p processes) alive() bool {
	p.t.Helper()
	_, err := syscall.Read(p.fd, make([]byte, 1))
	if err != syscall.EAGAIN {
		require.NoError(p.t, err)
	}
	return err != nil
}

// However the lease is lost, no process of CMD is alive when the next client is granted the lock. The system has the
// safety margin for that, 102 ms of a TTL of 10 s.
//
//fairlock:fault A holder crashes
//fairlock:fault A holder is stopped (SIGSTOP) beyond its lease
func TestRun_CMDIsDeadBeforeAnotherIsGrantedTheLock(t *testing.T) {
	const (
		stubborn = `trap '' TERM; sleep 600 & echo up; wait`
		child    = `(trap '' TERM; exec sleep 600) & echo up; exec sleep 600`
		tidy     = `sh -c 'trap "sleep 0.1; echo tidied; exit" TERM; echo up; sleep 600 & wait' 2>/dev/null & exec sleep 600`
	)
	cut := func(l *redistest.Link, _ *running) { l.Cut() }
	hang := func(l *redistest.Link, _ *running) { l.Hang() }
	type example struct {
		words, script string
		fault         func(*redistest.Link, *running)
		killed        bool // fairlock is
		out           string
	}
	together(sleepingFixture(t), map[string]example{
		"connections break":            {"", stubborn, cut, false, ""},
		"Redis hangs, no grace":        {"--grace 0", stubborn, hang, false, ""},
		"CMD ends, its child does not": {"--grace 200ms", child, cut, false, ""},
		"a child needs the grace":      {"--grace 1s", tidy, cut, false, "tidied\n"},
		"fairlock is killed": {"", stubborn, func(_ *redistest.Link, r *running) { r.signal(syscall.SIGKILL) },
			true, ""},
		"fairlock is stopped": {"", stubborn, func(_ *redistest.Link, r *running) { r.signal(syscall.SIGSTOP) },
			false, ""},
	}, func(t *testing.T, f fixture, _ string, c example) {
		f = f.apart()
		next := f.client("").Mutex("x")
		f, link := f.linked()
		ps := f.processes()
		r := f.run("x --ttl 10s "+c.words, "exec 3>$D/processes; "+c.script)
		r.expect("up\n")
		require.True(t, ps.alive())
		c.fault(link, r)
		f.hold(next.Lock)
		require.False(t, ps.alive(), "CMD is alive when another client has the lock")
		_ = r.cmd.Process.Signal(syscall.SIGCONT)
		got := r.wait()
		require.Equal(t, c.out, got.out)
		if c.killed {
			require.Negative(t, got.code)
			return
		}
		require.Equal(t, exitLost, got.code)
		// If fairlock is not woken in time, it finds that the lease is over, and that the guard has killed CMD.
		require.Regexp(t, `^fairlock: x( could not be renewed: .*; CMD was stopped before the lease ended|`+
			`: lock is lost: .*; CMD was stopped)\n$`, got.errs)
	})
}

func TestRun_LockIsTakenByForce(t *testing.T) {
	f := newFixture(t)
	ps := f.processes()
	r := f.run("x --ttl 5s", "exec 3>$D/processes; trap '' TERM; sleep 600 & echo up; wait")
	ended := f.run("y --ttl 1m", "echo up; cat")
	stopped := f.run("z --ttl 5s", "trap 'echo tidied; exit' TERM; echo up; kill -STOP $$; sleep 600 & wait")
	r.expect("up\n")
	ended.expect("up\n")
	stopped.expect("up\n")
	f.done("release", "x", "--force")
	f.done("release", "y", "--force")
	f.done("release", "z", "--force")
	require.Equal(t, "tidied\n", stopped.wait().out)
	refused(t, ended.wait(), exitLost, "y: lock is lost: no longer the owner; CMD ended with code 0\n")
	refused(t, r.wait(), exitLost, "x: lock is lost: no longer the owner; CMD was stopped\n")
	require.False(t, ps.alive())

	lease := f.hold(f.client("").Mutex("w").Lock)
	f.done("release", "w", "--force")
	require.Error(t, lease.Renew(t.Context()))
	up := filepath.Join(f.dir, "up")
	c, err := startChild("/bin/sh", []string{"sh", "-c", `trap '' TERM; >"$0"; exec sleep 600`, up}, os.Environ())
	require.NoError(t, err)
	c.begin()
	f.until("CMD is up", func() bool { _, err := os.Stat(up); return err == nil })
	// does not take that long: another may hold the lock already
	err = (&runner{name: "w", grace: time.Hour}).end(c, lease, nil)
	require.ErrorContains(t, err, "CMD was stopped")
}

func TestRun_RedisHangsWhenCMDEnds(t *testing.T) {
	f, link := newFixture(t).linked()
	one := f.at(f.url+"?read_timeout=1h").run("one --ttl 1m", "echo up; cat; exit 7")
	two := f.run("two --ttl 1m", "trap '' QUIT; echo up; cat")
	one.expect("up\n")
	two.expect("up\n")
	link.Hang()
	var task sync.WaitGroup
	defer task.Wait()
	task.Go(func() { // a second signal ends it at once; SIGQUIT, left to itself, has Go print the stacks of all goroutines
		for two.cmd.Process.Signal(syscall.SIGQUIT) == nil { // until it has been waited for
			time.Sleep(50 * time.Millisecond)
		}
	})
	require.Equal(t, result{code: exitSignal + int(syscall.SIGQUIT)}, two.wait())
	got := one.wait()
	require.Equal(t, 7, got.code)
	require.Regexp(t,
		`^fairlock: CMD has ended, but one could not be released; it is free in [^\n]+: no answer within 5s\n$`, got.errs)
}

// An upgrade, while somebody waits.
func TestRun_ProgramIsReplacedWhileItRuns(t *testing.T) {
	f := newFixture(t)
	m := f.client("").Mutex("x")
	lease := f.hold(m.Lock)
	cmd := f.command("run", "x", "--", "echo", "in")
	cmd.Path = filepath.Join(f.dir, "fairlock")
	require.NoError(t, exec.Command("cp", program, cmd.Path).Run()) // not by this process, see contents
	r := f.start(cmd)
	f.queued(m, 1)
	require.NoError(t, os.Remove(cmd.Path))
	require.NoError(t, lease.Unlock(t.Context()))
	require.Equal(t, result{out: "in\n"}, r.wait())
}

// CMD is the process that systemd's variables name: it gets the sockets.
func TestRun_SocketsAreForCMD(t *testing.T) {
	f := newFixture(t)
	script := `echo "sockets $LISTEN_FDS for $LISTEN_PID, $WATCHDOG_PID, I am $$"; cat <&3`
	cmd := f.command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `export LISTEN_PID=$$ WATCHDOG_PID=$$; exec "$@"`, "", program,
		"run", "x", "--", "sh", "-c", script}
	cmd.Env = append(cmd.Env, "LISTEN_FDS=1")
	socket, err := os.Open(filepath.Join(files, "plain"))
	require.NoError(t, err)
	defer func() { _ = socket.Close() }()
	cmd.ExtraFiles = []*os.File{socket}
	got := f.start(cmd).wait()
	require.Regexp(t, `^sockets 1 for \d+, \d+, I am \d+\nno program$`, got.out)
	pids := regexp.MustCompile(`\d{2,}`).FindAllString(got.out, -1)
	require.Equal(t, []string{pids[0], pids[0], pids[0]}, pids)

	require.Equal(t, []string{"LISTEN_PID=8", "A=7"}, passedOn([]string{"LISTEN_PID=7", "LISTEN_PIDFDID=99", "A=7"}, 7, 8))
	others := []string{"LISTEN_PID=6", "LISTEN_PIDFDID=99", "WATCHDOG_PID=6"}
	require.Equal(t, others, passedOn(others, 7, 8), "they are meant for another process")
}

// If fairlock is killed before the guard knows CMD, nothing has been started.
func TestRun_CMDStartsWhenItIsGuarded(t *testing.T) {
	f := newFixture(t)
	file := func(name string) string { return filepath.Join(f.dir, name) }
	start := func(name string) *child {
		c, err := startChild("/bin/sh", []string{"sh", "-c", `echo >"$0"`, file(name)}, os.Environ())
		require.NoError(t, err)
		return c
	}
	orphan, c := start("orphan"), start("cmd")
	require.NoError(t, orphan.gate.Close()) // as the system does if fairlock is killed
	require.Equal(t, exitFailure, codeOf(<-orphan.ended))
	require.NoFileExists(t, file("orphan"))
	require.NoFileExists(t, file("cmd"))
	c.begin()
	require.Zero(t, codeOf(<-c.ended))
	require.FileExists(t, file("cmd"))
}

// The lease may be renewed after the guard has killed CMD, if fairlock was stopped until then.
func TestRun_GuardHasKilledCMDAndTheLeaseIsRenewed(t *testing.T) {
	f := newFixture(t)
	lease := f.hold(f.client("").Mutex("x").Lock)
	for range 20 { // CMD's end and the time to look come at once, and either may be seen first
		r := &runner{name: "x", ttl: time.Hour}
		g := &guard{to: io.Discard, ended: make(chan struct{}), limit: time.Now()}
		g.until(r.killAt(lease), 2)
		c := &child{pid: -1, ended: make(chan status, 1)}
		c.ended <- status(syscall.SIGKILL)
		_, err := r.accompany(c, g, lease, nil)
		require.EqualError(t, err,
			"x could not be renewed: fairlock was stopped for too long; CMD was stopped before the lease ended")
		require.Equal(t, exitLost, exitCode(err))
	}
}

// sleeper is a process group that a guard kills.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

func TestGuard_IsReplacedIfItIsKilled(t *testing.T) {
	t.Parallel()
	cmd := sleeper(t)
	g, err := startGuard(ward{})
	require.NoError(t, err)
	first := g.cmd.Process.Pid
	g.until(time.Now().Add(time.Hour), cmd.Process.Pid)
	g.revive()
	require.Equal(t, first, g.cmd.Process.Pid, "it is alive")
	require.NoError(t, g.cmd.Process.Kill())
	<-g.ended
	g.revive()
	require.NotEqual(t, first, g.cmd.Process.Pid)
	g.until(time.Now().Add(time.Hour), cmd.Process.Pid)
	require.NoError(t, g.to.(io.Closer).Close()) // as the system does if fairlock is killed
	require.EqualError(t, cmd.Wait(), "signal: killed")
}

func TestGuard_ReadsLate(t *testing.T) {
	t.Parallel()
	pipe := func() (in, to *os.File) {
		in, to, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { _ = in.Close(); _ = to.Close() })
		return in, to
	}
	text := func(ttl time.Duration) string {
		made, err := token.Parse(tokens.New("c", tokens.Terms{TTL: ttl, Weight: 1}))
		require.NoError(t, err)
		return made.Text()
	}
	aYear := text(bounds.MaxTTL) // of a minimum hold: it is not waited for
	for _, o := range []order{
		{Left: time.Hour, Sent: time.Now().Add(-time.Hour)},
		{Left: time.Millisecond, Sent: time.Now().Add(time.Hour)}, // the clock has been set back
	} {
		cmd := sleeper(t)
		in, to := pipe()
		g := &guard{to: to}
		g.tell(order{Ward: &ward{Token: aYear, TTL: 100 * time.Millisecond}})
		o.Group = cmd.Process.Pid
		g.tell(o)
		require.NoError(t, watchOver(in))
		require.EqualError(t, cmd.Wait(), "signal: killed")
	}

	for range 10 { // the time of one order is over when the next one can be read
		in, to := pipe()
		g := &guard{to: to}
		g.tell(order{Ward: &ward{Redis: "no URL", Token: text(time.Hour), TTL: time.Hour}})
		g.tell(order{})
		g.tell(order{Left: time.Hour, Sent: time.Now()})
		require.NoError(t, to.Close())
		require.ErrorContains(t, watchOver(in), "redis URL", "it gives the lock back, and has not given up")
	}

	_, to := pipe()
	g := &guard{cmd: sleeper(t), to: to} // which does not read at all
	ended := make(chan error, 1)
	go func() { ended <- g.cmd.Wait() }()
	for i := 0; len(ended) == 0; i++ {
		require.Less(t, i, 10_000, "it is not killed, and the pipe is full")
		g.until(time.Now().Add(time.Hour), 2)
	}
	require.EqualError(t, <-ended, "signal: killed")
}
