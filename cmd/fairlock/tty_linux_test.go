package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// terminal is one on which a program runs.
type terminal struct {
	*running
	keys *os.File

	mu     sync.Mutex
	change *sync.Cond // on mu
	text   string     // guarded by mu: what was shown and not yet expected
	closed bool       // guarded by mu
}

// onTerminal starts a command on a terminal of its own.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	if cmd.Stdin == nil {
		cmd.Stdin = screen
	}
	cmd.Stdout, cmd.Stderr = screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	s := &terminal{running: begin(t, cmd), keys: keys}
	s.change = sync.NewCond(&s.mu)
	_ = screen.Close()
	var reader sync.WaitGroup
	reader.Go(s.read)
	t.Cleanup(func() { // after the command, which may sit in an unfinished write, was killed
		_ = keys.Close()
		reader.Wait()
	})
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			for _, p := range processes(t) {
				if p.session == cmd.Process.Pid {
					_ = syscall.Kill(p.pid, syscall.SIGKILL)
				}
			}
		}
	})
	return s
}

func (s *terminal) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := s.keys.Read(buffer)
		s.mu.Lock()
		s.text += string(buffer[:n])
		s.closed = err != nil
		s.change.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// enter types.
func (s *terminal) enter(keys string) {
	s.t.Helper()
	_, err := s.keys.WriteString(keys)
	require.NoError(s.t, err)
}

// expect waits until a text is shown, after what was expected before, and returns what came before it.
func (s *terminal) expect(text string) string {
	s.t.Helper()
	late := false
	limit := time.AfterFunc(soon, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.change.Broadcast()
	})
	defer limit.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if before, after, ok := strings.Cut(s.text, text); ok {
			s.text = after
			return before
		}
		if late || s.closed {
			require.FailNow(s.t, "the terminal does not show "+text, "%q", s.text)
		}
		s.change.Wait()
	}
}

// rest waits until the command has ended, and returns what else was shown.
func (s *terminal) rest() (int, string) {
	s.t.Helper()
	code := s.wait().code
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed { // the last who had the terminal open has ended
		s.change.Wait()
	}
	return code, s.text
}

// shell is a shell on a terminal, which finds the command in $FL and the test's directory in $D.
func shell(t *testing.T, s *redistest.Server, dir string, args ...string) *terminal {
	t.Helper()
	cmd := command(t, serverURL(s))
	path, err := exec.LookPath("bash")
	require.NoError(t, err)
	cmd.Path, cmd.Args = path, append([]string{"bash", "--norc", "--noprofile"}, args...)
	cmd.Env = append(cmd.Env, "D="+dir, "FL="+program, "PS1=> ", "TERM=dumb")
	return onTerminal(t, cmd)
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

func TestOnATerminalCmdReadsAndWritesThere(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	sh := shell(t, s, t.TempDir(), "-c", `$FL run x -- sh -c 'set -- $(ps -o pgid=,tpgid= -p $$); echo begun in $(($1 == $2)); read l; echo got $l; exit 5'; echo code $?`)
	sh.expect("begun in 1") // the group of the foreground
	sh.enter("one\n")
	sh.expect("got one")
	sh.expect("code 5")
	code, _ := sh.rest()
	require.Equal(t, 0, code)
}

// If the output goes elsewhere, a pager may need the terminal. CMD gets it when it wants it.
func TestInAPipelineCmdGetsTheTerminalWhenItReads(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	sh := shell(t, s, t.TempDir(), "-c", `$FL run x -- sh -c 'echo first; while [ ! -e $D/paged ]; do sleep 0.02; done; read l; echo got $l' | `+
		`(read a; read b </dev/tty; echo $a $b; echo > $D/paged; cat); echo code $?`)
	sh.enter("pager\n")
	sh.expect("first pager")
	sh.enter("cmd\n")
	sh.expect("got cmd")
	sh.expect("code 0")
	sh.rest()
}

// Whether CMD has the terminal or not, ^C reaches it once, and ends the script, too.
func TestInterruptOnATerminalReachesCmdOnceAndEndsTheScript(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, pipe := range map[string]string{"CMD has the terminal": "", "CMD does not": " | cat"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sh := shell(t, s, dir, "-c", `$FL run '`+name+`' -- sh -c 'trap "echo got >> $D/log; trap - INT; kill -INT \$\$" INT; `+
				`echo ready >&2; while :; do sleep 0.02; done'`+pipe+`; echo after > $D/after`)
			sh.expect("ready")
			sh.enter(ctrlC)
			code, text := sh.rest()
			require.Negative(t, code, "the shell dies of SIGINT, too: %s", text)
			require.NotContains(t, text, "fairlock:")
			log, err := os.ReadFile(filepath.Join(dir, "log"))
			require.NoError(t, err)
			require.Equal(t, "got\n", string(log))
			require.NoFileExists(t, filepath.Join(dir, "after"))
		})
	}
	t.Run("while it waits", func(t *testing.T) {
		t.Parallel()
		m := onLock(t, s, fairlock.Config{}).Mutex("x")
		lease := locked(t, m)
		dir := t.TempDir()
		sh := shell(t, s, dir, "-c", `$FL run x -- true; echo after > $D/after`)
		waiting(t, m, 1)
		sh.enter(ctrlC)
		code, _ := sh.rest()
		require.Negative(t, code)
		require.NoFileExists(t, filepath.Join(dir, "after"))
		left(t, m)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

func TestStopAndContinueOnATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{}).Mutex("x")
	sh := shell(t, s, t.TempDir(), "-i")
	sh.enter(`$FL run x --ttl 60s -- sh -c 'echo begun; while read l; do echo got-$l; done'` + "\n")
	sh.expect("begun\r\n")
	for _, line := range []string{"one", "two"} {
		sh.enter(line + "\n")
		sh.expect("got-" + line)
		sh.enter(ctrlZ)
		sh.expect("Stopped")
		require.True(t, state(t, m).Held)
		sh.enter("echo $((40 + 2))\n")
		sh.expect("42\r\n") // the shell has the terminal
		sh.enter("fg\n")
	}
	sh.enter("three\n")
	sh.expect("got-three")
	sh.enter(ctrlD)
	sh.enter("echo co\"de\" $?\n")
	sh.expect("code 0")
	sh.enter("exit\n")
	sh.rest()
	onlyFences(t, s.Client())
}

// Who stops a job for longer than its lease lasts finds that it has been ended.
func TestAJobThatIsStoppedForTooLongIsEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	sh := shell(t, s, dir, "-i")
	// (A shell that loops is no good here: where it uses vfork, ^Z can make it hang.)
	sh.enter("$FL run x --ttl 3s -- env " + writerEnv + "=$D/log " + os.Args[0] + "\n")
	appears(t, filepath.Join(dir, "log"))
	sh.enter(ctrlZ)
	sh.expect("Stopped")
	still(t, begin(t, runScript(t, serverURL(s), dir, "x", witness)).wait())
	sh.enter("fg\n")
	shown := sh.expect("fairlock: x: lock is lost: ") + sh.expect("; CMD was stopped\r\n")
	assert.NotContains(t, shown, "woken")
	sh.enter("echo co\"de\" $?\n")
	sh.expect("code 76")
	sh.enter("exit\n")
	sh.rest()
}

// In a session without a shell there is nobody to continue what ^Z has stopped.
func TestStopDoesNothingWhereNobodyCouldContinue(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	on := onTerminal(t, command(t, serverURL(s), "run", "x", "--", "sh", "-c", "echo begun; read l; echo got-$l"))
	on.expect("begun")
	on.enter(ctrlZ)
	on.enter("one\n")
	on.expect("got-one")
	code, _ := on.rest()
	require.Equal(t, 0, code)
}

// A job in the background that wants to read is stopped, as others are.
func TestAJobInTheBackgroundWaitsForTheTerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	sh := shell(t, s, dir, "-i")
	sh.enter(`$FL run x --ttl 60s -- sh -c 'echo > $D/ready; read l; echo got-$l' &` + "\n")
	appears(t, filepath.Join(dir, "ready"))
	require.Eventually(t, func() bool {
		sh.enter("jobs; echo $((40 + 2))\n")
		return strings.Contains(sh.expect("42\r\n"), "Stopped")
	}, soon, 50*time.Millisecond)
	sh.enter("fg\n")
	sh.enter("one\n")
	sh.expect("got-one")
	sh.enter("exit\n")
	sh.rest()
}

// Whoever types there would have it wiped away.
func TestAJobInTheBackgroundDoesNotShowThatItWaits(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{Name: "somebody"}).Mutex("x")
	lease := locked(t, m)
	sh := shell(t, s, t.TempDir(), "-i")
	sh.enter("$FL run x -- echo begun &\n")
	waiting(t, m, 1)
	time.Sleep(2500 * time.Millisecond) // in the foreground it would show that after 1 s
	require.NoError(t, lease.Unlock(t.Context()))
	require.NotContains(t, sh.expect("begun\r\n"), "waiting")
	sh.enter("exit\n")
	sh.rest()
}

func TestInterruptEndsWhoConnectsToARedisThatHangs(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Pause()
	defer s.Continue()
	on := onTerminal(t, command(t, serverURL(s), "status", "x"))
	on.expect("connecting to " + s.Addr() + " …")
	began := time.Now()
	on.enter(ctrlC)
	on.expect("\r\x1b[K")
	on.rest()
	require.Less(t, time.Since(began), connecting/2)
}

func TestWaitingIsShownOnATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{Name: "somebody"}).Mutex("x")
	lease := locked(t, m)
	sh := shell(t, s, t.TempDir(), "-c", `$FL run x -- echo begun; $FL run x -- echo again`)
	require.Regexp(t, `mutex x: waiting for [1-9]\d*s$`, sh.expect(", place 1 of 1, held by somebody"))
	require.NoError(t, lease.Unlock(t.Context()))
	sh.expect("\r\x1b[K")
	sh.expect("begun\r\nagain\r\n")
	_, text := sh.rest()
	require.Empty(t, text)
}
