//go:build unix

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that CMD gets from fairlock.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	syscall.SIGTSTP, syscall.SIGCONT,
}

// status is how CMD ended.
type status = syscall.WaitStatus

// child is CMD and what it starts: a process group of its own, so that all of it can be stopped.
type child struct {
	pid     int // also the group's
	tty     *tty
	gate    *os.File            // at which it waits until it may be CMD
	ended   chan status         // gets the one that is CMD's last
	refused error               // why it could not be CMD; set before ended is sent
	stopped chan syscall.Signal // gets what has stopped CMD, if anybody looks
}

// cmdName is how we start the process that is to be CMD. Its arguments are two files that it has open beside those that
// CMD gets (a byte comes from the first when it may be CMD, and nothing if we are gone; the second is for why it cannot
// be), CMD's path, and CMD's arguments.
const cmdName = "run-cmd"

// startChild starts the process that is to be CMD, with our own standard files. It is CMD after begin, and never if we
// do not live to call that: so it can be guarded before there is anything to guard. If both input and output are the
// terminal, and it is ours to give, it gets it at once; otherwise as soon as it wants to read from it.
func startChild(path string, argv, env []string) (*child, error) {
	self, err := ourselves()
	if err != nil {
		return nil, err
	}
	waits, gate, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = waits.Close() }()
	refused, refuses, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, gate.Close())
	}
	defer func() { _ = refuses.Close() }()
	c := &child{tty: openTTY(), gate: gate, ended: make(chan status, 1), stopped: make(chan syscall.Signal, 1)}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if c.tty.foreground() && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		attr.Foreground, attr.Ctty = true, c.tty.fd()
	}
	cmd := &exec.Cmd{
		Path: self, Args: slices.Concat([]string{os.Args[0], cmdName, inherited(waits), inherited(refuses), path}, argv), Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: attr,
	}
	if err := cmd.Start(); err != nil {
		c.tty.close()
		return nil, errors.Join(err, gate.Close(), refused.Close())
	}
	c.pid = cmd.Process.Pid
	_ = cmd.Process.Release() // os.Process.Wait does not tell of stops
	go c.wait(refused)
	return c, nil
}

// inherited has the processes that are started from now on get a file under the number that it has here. (ExtraFiles would
// take numbers that somebody has given us a file under, which is for CMD.)
func inherited(f *os.File) string {
	fd := f.Fd()
	_, _ = unix.FcntlInt(fd, unix.F_SETFD, 0) // fails on no file that is open
	return strconv.Itoa(int(fd))
}

// begin lets it be CMD.
func (c *child) begin() {
	_, _ = c.gate.Write([]byte{0}) // if it has been killed, that is told soon
	_ = c.gate.Close()
}

// becomeCMD is all that the process does which is to be CMD. In any other it does nothing.
func becomeCMD() {
	if len(os.Args) < 2 || os.Args[1] != cmdName {
		return
	}
	args := os.Args[2:]
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT) // of which Go would print all stacks
	go func() {
		<-quit
		os.Exit(exitSignal + int(syscall.SIGQUIT))
	}()
	if len(args) < 4 {
		say(os.Stderr, errors.New("no CMD (this command is started by run)"))
		os.Exit(exitFailure)
	}
	file := func(text string) *os.File {
		fd, _ := strconv.Atoi(text)
		syscall.CloseOnExec(fd)
		return os.NewFile(uintptr(fd), text)
	}
	gate, refused := file(args[0]), file(args[1])
	if _, err := gate.Read(make([]byte, 1)); err == nil {
		reason, _ := errors.AsType[syscall.Errno](syscall.Exec(args[2], args[3:], os.Environ()))
		_ = binary.Write(refused, binary.NativeEndian, int64(reason))
	}
	os.Exit(exitFailure)
}

// wait tells of CMD's stops and of its end.
func (c *child) wait(refused *os.File) {
	defer func() { _ = refused.Close() }()
	for {
		var s status
		_, err := syscall.Wait4(c.pid, &s, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err == nil && s.Stopped():
			select {
			case c.stopped <- s.StopSignal():
			default:
			}
			continue
		case err != nil: // it is gone, and nobody knows how
			s = exitFailure << 8
		}
		var reason int64
		if binary.Read(refused, binary.NativeEndian, &reason) == nil {
			c.refused = syscall.Errno(reason)
		}
		c.ended <- s
		return
	}
}

// forward passes a signal on: to all of CMD's group, but for those that mean what a program makes of them.
func (c *child) forward(s os.Signal) {
	switch s := s.(syscall.Signal); s {
	case syscall.SIGUSR1, syscall.SIGUSR2:
		_ = syscall.Kill(c.pid, s)
	default:
		_ = syscall.Kill(-c.pid, s)
	}
}

// terminate asks all of it to end, also if it is stopped.
func (c *child) terminate() {
	_ = syscall.Kill(-c.pid, syscall.SIGTERM)
	_ = syscall.Kill(-c.pid, syscall.SIGCONT)
}

// kill ends all of it. The error says that some of it is not ours to kill.
func (c *child) kill() error { return killGroup(c.pid) }

func killGroup(group int) error {
	err := syscall.Kill(-group, syscall.SIGKILL)
	if err == syscall.ESRCH {
		return nil
	}
	return err
}

// empty waits until nothing is left of the group, and reports whether that was so in time. No event tells; and what is
// dead counts until its parent, init perhaps, has taken note.
func (c *child) empty(within time.Duration) bool {
	for until := time.Now().Add(within); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		if syscall.Kill(-c.pid, 0) == syscall.ESRCH {
			return true
		}
	}
	return false
}

// apart keeps what is meant for our group, from a terminal for example, from a process of ours.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// codeOf is the exit code that a shell shows for CMD's end.
func codeOf(s status) int {
	if by := s.Signal(); by > 0 {
		return exitSignal + int(by)
	}
	return s.ExitStatus()
}
