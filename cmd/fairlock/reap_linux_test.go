package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// As the first process of a container, fairlock waits for orphans, and CMD's exit code is not lost.
func TestRun_ReapsOrphansAsTheFirstProcess(t *testing.T) {
	f := newFixture(t)
	args := []string{"-r", "-p", "-f", "--kill-child", "--mount-proc"}
	if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil {
		t.Skipf("this system does not let us start the first process of a container: %v: %s", err, out)
	}
	const orphans = `for i in 1 2 3 4 5 6 7 8 9; do p=$(sh -c 'true & echo $!'); while [ -e /proc/$p ]; do sleep 0.01; done; done; exit 7`
	cmd := f.command()
	path, err := exec.LookPath("unshare")
	require.NoError(t, err)
	cmd.Path, cmd.Args = path, append(append([]string{"unshare"}, args...), program, "run", "x", "--", "sh", "-c", orphans)
	require.Equal(t, result{code: 7}, f.start(cmd).wait())
}

// Where there is no /proc, run cannot start itself again as the guard. It says so before it takes the lock.
func TestRun_WithoutProc(t *testing.T) {
	f := newFixture(t)
	if out, err := exec.Command("unshare", "-r", "-m", "mount", "-t", "tmpfs", "none",
		"/proc").CombinedOutput(); err != nil {
		t.Skipf("this system does not let us hide /proc: %v: %s", err, out)
	}
	cmd := f.command()
	path, err := exec.LookPath("unshare")
	require.NoError(t, err)
	cmd.Path = path
	cmd.Args = []string{"unshare", "-r", "-m", "sh", "-c", `mount -t tmpfs none /proc; exec "$@"`, "", program, "run", "x",
		"--min-hold", "1m", "--", "echo", "in"}
	r := f.start(cmd).wait()
	require.Equal(t, exitFailure, r.code, r.errs)
	require.Empty(t, r.out)
	require.Contains(t, r.errs, "on Linux, that needs /proc") // with -race, Go warns of the same before it
	require.Zero(t, f.state(f.client("").Mutex("x")).Fence, "nothing was sent")
}

// reap leaves a child that this process has started to its waiter, however late that comes to it. The test runs in a
// process of its own: reap would take the children of other tests.
func TestChildren_ReapLeavesOurs(t *testing.T) {
	const alone = "TEST_ALONE"
	if os.Getenv(alone) == "" {
		t.Parallel()
		tests, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(tests, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		zombie := func(cmd *exec.Cmd) int {
			require.NoError(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
			return cmd.Process.Pid
		}
		c := children{waiting: map[int]<-chan struct{}{}}
		ours, late := exec.Command("sh", "-c", "exit 7"), make(chan struct{})
		_, err := c.start(ours, func(int) { <-late; _ = ours.Wait() })
		require.NoError(t, err)
		zombie(ours)
		other := exec.Command("true")
		require.NoError(t, other.Start())
		orphan := zombie(other)

		reaped := make(chan struct{})
		go func() { defer close(reaped); c.reap() }()
		synctest.Wait() // reap has ended, or waits for the waiter
		close(late)
		<-reaped
		require.NotNil(t, ours.ProcessState, "its status was lost")
		require.Equal(t, 7, ours.ProcessState.ExitCode())
		_, err = unix.Wait4(orphan, nil, 0, nil)
		require.ErrorIs(t, err, unix.ECHILD, "it was reaped")
		require.Empty(t, c.waiting)
	})
}

// A signal that cannot be passed on, because CMD is another user's, is an error at once. Only root can be another user.
func TestChild_ForwardRefused(t *testing.T) {
	const of = "TEST_FORWARD_TO"
	if pid, err := strconv.Atoi(os.Getenv(of)); err == nil {
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR1} {
			require.EqualError(t, (&child{pid: pid}).forward(s),
				unix.SignalName(s)+" could not be passed on to CMD: operation not permitted")
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("no other user's process can be started")
	}
	require.NoError(t, os.Chmod(files, 0o711)) // so that the other user can start what is in there
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$")
	cmd.Args[0] = "tests" // not the command
	cmd.Env = append(os.Environ(), of+"="+strconv.Itoa(sleeper(t).Process.Pid))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
