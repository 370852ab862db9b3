package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlock/fairlock-go/fairlock"
)

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

// terminal is a command on a terminal of its own.
type terminal struct {
	*running
	fd int
}

func (f fixture) onTerminal(cmd *exec.Cmd) terminal {
	f.t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	require.NoError(f.t, err)
	require.NoError(f.t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	require.NoError(f.t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 80, Row: 24}))
	// On ^C, Linux sends the signal, and then throws away what is not read yet: also what a program writes at once.
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	require.NoError(f.t, err)
	mode.Lflag |= unix.NOFLSH
	require.NoError(f.t, unix.IoctlSetTermios(fd, unix.TCSETS, mode))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(f.t, err)
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(f.t, err)
	defer func() { _ = screen.Close() }()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "PS1=> ", "FL="+program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	s := terminal{f.start(cmd), fd}
	s.out = os.NewFile(uintptr(fd), "terminal")
	f.t.Cleanup(func() { _ = s.out.Close() }) // which sends SIGHUP to what is left on it
	return s
}

// shell runs a script, or an interactive shell, on a terminal. $FL is the command.
func (f fixture) shell(args ...string) terminal {
	f.t.Helper()
	cmd := f.command()
	path, err := exec.LookPath("bash")
	require.NoError(f.t, err)
	cmd.Path, cmd.Args = path, append([]string{"bash", "--norc", "--noprofile"}, args...)
	return f.onTerminal(cmd)
}

// enter types.
func (s terminal) enter(keys string) {
	s.t.Helper()
	_, err := s.out.WriteString(keys)
	require.NoError(s.t, err)
}

// talk types each line that begins with >, and waits for the text of the others.
func (s terminal) talk(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		if keys, ok := strings.CutPrefix(line, ">"); ok {
			s.enter(keys)
		} else {
			s.expect(line)
		}
	}
}

func TestTerminal_IsCMDs(t *testing.T) {
	type session struct {
		script string // of an interactive shell if it is empty
		talk   []string
	}
	together(newFixture(t), map[string]session{
		"CMD reads and writes": {
			`$FL run $D -- sh -c 'set -- $(ps -o pgid=,tpgid= -p $$); echo begun in $(($1 == $2)); read l; echo got $l; exit 5'; echo code $?`,
			[]string{"begun in 1", ">one\n", "got one", "code 5"}, // begun in the group of the foreground
		},
		// A pager may need the terminal. CMD gets it when it wants to read.
		"CMD is in a pipeline": {
			`mkfifo $D/paged; $FL run $D -- sh -c 'echo first; read p <$D/paged; read l; echo got $l' | ` +
				`(read a; read b </dev/tty; echo $a $b; echo > $D/paged; cat); echo code $?`,
			[]string{">pager\n", "first pager", ">cmd\n", "got cmd", "code 0"},
		},
		// There is nobody who could continue what ^Z has stopped.
		"stop without a shell": {
			`exec $FL run $D -- sh -c 'echo begun; read l; echo got-$l'`,
			[]string{"begun", ">" + ctrlZ, ">one\n", "got-one"},
		},
		"stop and continue": {"", []string{
			`>$FL run $D --ttl 60s -- sh -c 'echo be"gun"; while read l; do echo got-$l; done'` + "\n", "begun\r\n",
			">one\n", "got-one", ">" + ctrlZ, "Stopped", ">$FL status $D\n", ": held", ">echo $((40 + 2))\n", "42\r\n", ">fg\n",
			">two\n", "got-two", ">" + ctrlZ, "Stopped", ">echo $((41 + 2))\n", "43\r\n", ">fg\n",
			">three\n", "got-three", ">" + ctrlD, ">echo co\"de\" $?\n", "code 0", ">exit\n",
		}},
	}, func(t *testing.T, f fixture, _ string, c session) {
		args := []string{"-c", c.script}
		if c.script == "" {
			args = []string{"-i"}
		}
		sh := f.shell(args...)
		sh.talk(c.talk...)
		require.Zero(t, sh.wait().code)
	})
}

// Whether CMD has the terminal or not, ^C reaches it once, and ends the script, too.
func TestTerminal_Interrupt(t *testing.T) {
	f := newFixture(t)
	const script = `-- sh -c 'trap "echo got >&2; trap - INT; kill -INT \$\$" INT; echo ready >&2; while :; do sleep 0.02; done'`
	ways := map[string]string{"CMD has the terminal": "1 " + script, "CMD does not": "2 " + script + " | cat"}
	together(f, ways, func(t *testing.T, f fixture, _, words string) {
		sh := f.shell("-c", "$FL run "+words+"; echo after")
		sh.talk("ready\r\n", ">"+ctrlC)
		r := sh.wait()
		require.Negative(t, r.code, "the shell dies of SIGINT, too")
		require.Equal(t, "got", strings.TrimSpace(strings.TrimPrefix(r.out, "^C")))
	})
	f, link := f.linked()
	link.Hang()
	on := f.onTerminal(f.command("status", "x"))
	on.talk("connecting to "+link.Addr()+" …", ">"+ctrlC, "\r\x1b[K")
	require.NotContains(t, on.wait().out, "no answer")
}

// A job that is stopped for longer than its lease lasts is ended.
func TestTerminal_StoppedForTooLong(t *testing.T) {
	f := sleepingFixture(t)
	ps := f.processes()
	sh := f.shell("-i")
	sh.talk(">$FL run x --ttl 10s -- sh -c 'exec 3>$D/processes; echo be\"gun\"; exec sleep 600'\n", "begun\r\n", ">"+
		ctrlZ, "Stopped")
	f.hold(f.client("").Mutex("x").Lock)
	require.False(t, ps.alive())
	sh.talk(">fg\n", "fairlock: x: lock is lost: ", "; CMD was stopped\r\n", ">echo co\"de\" $?\n", "code 76", ">exit\n")
	sh.wait()
}

// With a terminal, CMD may have been stopped once more since suspended has continued it.
func TestChild_SIGCONTIsPassedOnWithoutATerminal(t *testing.T) {
	pid := sleeper(t).Process.Pid
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	var s status
	_, err := syscall.Wait4(pid, &s, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.NoError(t, (&child{pid: pid, tty: &tty{}}).forward(syscall.SIGCONT))
	changed, err := syscall.Wait4(pid, &s, syscall.WCONTINUED|syscall.WNOHANG, nil)
	require.NoError(t, err)
	require.Zero(t, changed, "it is stopped")
	require.NoError(t, (&child{pid: pid}).forward(syscall.SIGCONT))
	_, err = syscall.Wait4(pid, &s, syscall.WCONTINUED, nil)
	require.NoError(t, err)
	require.True(t, s.Continued())
}

// In the background, a job does not show that it waits, and is stopped when it wants to read.
func TestTerminal_Background(t *testing.T) {
	f := newFixture(t)
	m := f.client("somebody").Mutex("x")
	lease := f.hold(m.Lock)
	sh := f.shell("-i")
	sh.enter(`$FL run x --ttl 60s -- sh -c 'echo be"gun"; read l; echo got-$l' &` + "\n")
	f.queued(m, 1)
	waits := f.shell("-c", `$FL run x -- true`)
	require.Regexp(t, `mutex x: waiting for [1-9]\d*s$`, waits.expect(", position 2 of 2, held by somebody for "))
	require.NoError(t, lease.Unlock(t.Context()))
	assert.NotContains(t, sh.expect("begun\r\n"), "waiting")
	sh.talk(">wait %1; fg\n", "Stopped", ">one\n", "got-one", ">exit\n") // wait returns when the job is stopped
	sh.wait()
	require.True(t, strings.HasSuffix(waits.wait().out, "\r\x1b[K"), "the line is wiped away")
}

// colour is a sequence that sets one, or bold or faint letters.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*[1-9][0-9;]*m`)

// The lock is taken from those who were shown, and from nobody else.
func TestTerminal_Release(t *testing.T) {
	f := newFixture(t)
	m := f.client("first").Mutex("x")
	lease := f.hold(m.Lock)
	ask := func() terminal {
		on := f.onTerminal(f.with("NO_COLOR=1").command("release", "x"))
		on.talk("mutex x: held, no waiters", fmt.Sprintf("Take mutex x from first (fence %d)? [y/N] ", lease.Fence()))
		return on
	}
	for _, answer := range []string{"\n", "what\n", ctrlD, ctrlC} {
		on := ask()
		on.enter(answer)
		r := on.wait()
		if answer == ctrlC {
			require.Negative(t, r.code, "it dies of SIGINT")
		} else {
			require.Equal(t, exitFailure, r.code)
			require.Contains(t, r.out, "fairlock: mutex x was not released\r\n")
		}
		require.NoError(t, lease.Renew(t.Context()))
	}
	on := ask()
	require.NoError(t, lease.Unlock(t.Context()))
	lease = f.hold(f.client("second").Mutex("x").Lock)
	on.talk(">y\n", fmt.Sprintf("mutex x was released meanwhile; nothing was done; now held by second (fence %d",
		lease.Fence()))
	on.wait()
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))

	lease = f.hold(m.Lock)
	on = ask()
	on.talk(">Yes\n", "mutex x was taken from first (fence ")
	require.Zero(t, on.wait().code)
	require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
}

// ends are the ways to end a display that fills the terminal.
var ends = map[string]func(terminal){
	"q":       func(s terminal) { s.enter("q") },
	"^C":      func(s terminal) { s.enter(ctrlC) },
	"SIGTERM": func(s terminal) { s.signal(syscall.SIGTERM) },
}

func TestTerminal_Watch(t *testing.T) {
	const entersScreen, leavesScreen = "\x1b[?1049h", "\x1b[?1049l"
	const lineByLine = unix.ICANON | unix.ECHO | unix.ISIG // how a shell's terminal reads: whole lines, and ^C is a signal
	together(newFixture(t), ends, func(t *testing.T, f fixture, name string, end func(terminal)) {
		f = f.apart()
		on := f.onTerminal(f.command(strings.Fields("watch --interval 100ms" + map[string]string{"^C": " x"}[name])...))
		mode := func() uint32 {
			mode, err := unix.IoctlGetTermios(on.fd, unix.TCGETS)
			require.NoError(t, err)
			return mode.Lflag & lineByLine
		}
		on.talk(entersScreen, "q ends it")
		lease := f.hold(f.client("web-1").Mutex("x").Lock)
		require.Regexp(t, colour, on.expect("web-1"))
		require.Zero(t, mode(), "keys are read as they come")
		require.NoError(t, lease.Unlock(t.Context()))
		f.hold(f.client("batch-7").Mutex("x").Lock)
		on.expect("batch-7")
		require.NoError(t, unix.IoctlSetWinsize(on.fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 20, Row: 5}))
		require.NotContains(t, on.expect("…"), leavesScreen)
		end(on)
		on.expect(leavesScreen)
		require.Zero(t, on.wait().code)
		require.EqualValues(t, lineByLine, mode(), "the terminal is as it was")
	})
}

// A terminal that can do nothing gets lines.
func TestTerminal_Dumb(t *testing.T) {
	f := newFixture(t)
	f.hold(f.client("web-1").Mutex("x").Lock)
	on := func(words string) terminal {
		cmd := f.command("-c", "TERM=dumb exec "+program+" "+words)
		cmd.Path = "/bin/sh"
		return f.onTerminal(cmd)
	}
	require.NotContains(t, on("watch").expect("mutex x: held, no waiters; holders: web-1"), "\x1b")
	require.NotContains(t, on("run x --wait 1500ms -- true").wait().out, "\x1b", "nor while it waits")
}

func TestTerminal_Demo(t *testing.T) {
	together(newFixture(t), map[string]bool{"q": true, "SIGTERM": true},
		func(t *testing.T, f fixture, name string, _ bool) {
			on := f.onTerminal(f.command("demo", "--duration", "10m", "--hold", "50ms"))
			on.talk("\x1b[?1049h", "fairlock demo   mutex · 4 clients × 4 workers · Redis in memory", "mutex demo-", " waiting",
				"client-")
			ends[name](on)
			on.talk("\x1b[?1049l", "  handoff ", "ok", "strict FIFO")
			require.Zero(t, on.wait().code)
		})
}

func TestTerminal_Colours(t *testing.T) {
	f := newFixture(t)
	f.hold(f.client("").Mutex("x").Lock)
	for _, env := range []string{"NO_COLOR=", "NO_COLOR=1"} {
		shown := f.onTerminal(f.with(env).command("status", "x")).wait().out
		require.Contains(t, shown, "held")
		require.Equal(t, env == "NO_COLOR=", colour.MatchString(shown), "%s %q", env, shown)
	}
}

func TestProgress_FitsTheTerminal(t *testing.T) {
	var shown strings.Builder
	p := &progress{out: &shown, on: true, width: func(io.Writer) int { return 12 }, from: time.Now()}
	p.show("checking the next one")
	p.clear()
	p.show("too late")
	assert.Equal(t, "\r\x1b[Kchecking t…\r\x1b[K", shown.String())
}

func TestLook_OutputCannotBeWritten(t *testing.T) {
	f := newFixture(t)
	f.hold(f.client("").Mutex("x").Lock)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = full.Close() }()
	for _, words := range []string{"status x", "list --json"} {
		cmd := f.command(strings.Fields(words)...)
		cmd.Stdout = full
		refused(t, f.start(cmd).wait(), exitFailure, "no space left")
	}
}

// A process that has ended does not run, even if its parent never waits for it.
func TestChild_EndedProcessIsNotAlive(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	require.True(t, alive(cmd.Process.Pid))
	require.NoError(t, killGroup(cmd.Process.Pid))
	require.True(t, emptied(cmd.Process.Pid, 10*time.Second))
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, 0), "it is still there")
	_ = cmd.Wait()
	require.False(t, alive(cmd.Process.Pid))
}
