//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// children are the processes that this one has started. A goroutine waits for each.
type children struct {
	mu      sync.Mutex
	waiting map[int]<-chan struct{} // guarded by mu; closed when the process has been waited for
}

// started has the children of this process.
var started = children{waiting: map[int]<-chan struct{}{}}

// start starts a process and calls wait in a goroutine. waited is closed when wait has returned.
func (c *children) start(cmd *exec.Cmd, wait func(pid int)) (waited <-chan struct{}, err error) {
	c.mu.Lock() // until it is known as ours
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid, done := cmd.Process.Pid, make(chan struct{})
	c.waiting[pid] = done
	go func() {
		wait(pid)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting[pid] == done { // the kernel may have given the number to another child already
			delete(c.waiting, pid)
		}
		close(done)
	}()
	return done, nil
}

// waited returns a channel that is closed when a child has been waited for, or nil if we have not started it.
func (c *children) waited(pid int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[pid]
}

// child is CMD and all that it starts. It is a process group of its own, so that all of it can be stopped.
type child struct {
	pid     int // also the group's
	tty     *tty
	gate    *os.File            // a byte on it lets the process become CMD
	ended   chan status         // gets CMD's final status
	stopped chan syscall.Signal // gets the signal that has stopped CMD, if anybody receives
}

// cmdName is the argument that starts the process that becomes CMD. The next arguments are the number of an open file,
// CMD's path, and CMD's arguments. A byte on the file means that it may become CMD; end of file means that fairlock has
// ended.
const cmdName = "run-cmd"

// startChild starts the process that becomes CMD, with our own standard files. It becomes CMD after begin, and never if
// we die before. So a guard can be set up before CMD runs. If input and output are the terminal, and our job owns it,
// the child gets it at once. Otherwise it gets it when it first reads from it.
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
	c := &child{tty: openTTY(), gate: gate, ended: make(chan status, 1), stopped: make(chan syscall.Signal, 1)}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if c.tty.foreground() && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		attr.Foreground, attr.Ctty = true, c.tty.fd()
	}
	// The process gets the gate under the number that it has here. ExtraFiles could take the number of a file that we have
	// inherited for CMD.
	fd := int(waits.Fd())
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0) // fails on no file that is open
	cmd := &exec.Cmd{
		Path: self, Args: slices.Concat([]string{os.Args[0], cmdName, strconv.Itoa(fd), path}, argv), Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: attr,
	}
	if _, err := started.start(cmd, c.wait); err != nil {
		c.tty.close()
		return nil, errors.Join(err, gate.Close())
	}
	c.pid = cmd.Process.Pid
	_ = cmd.Process.Release() // os.Process.Wait does not tell of stops
	return c, nil
}

// begin lets the process become CMD.
func (c *child) begin() {
	_, _ = c.gate.Write([]byte{0}) // an error: it has been killed, and wait reports that
	_ = c.gate.Close()
}

// becomeCMD makes this process CMD if it was started for that. In other processes it does nothing.
func becomeCMD() {
	if len(os.Args) < 2 || os.Args[1] != cmdName {
		return
	}
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT) // on which Go would print all stacks
	go func() {
		<-quit
		os.Exit(exitSignal + int(syscall.SIGQUIT))
	}()
	err := errors.New("no CMD (this command is started by run)")
	if args := os.Args[2:]; len(args) > 2 {
		fd, _ := strconv.Atoi(args[0])
		syscall.CloseOnExec(fd)
		if _, gone := os.NewFile(uintptr(fd), "gate").Read(make([]byte, 1)); gone != nil {
			os.Exit(exitFailure)
		}
		err = unstartable(args[2], syscall.Exec(args[1], args[2:], passedOn(os.Environ(), os.Getppid(), os.Getpid())))
	}
	say(os.Stderr, err, "run")
	os.Exit(exitCode(err))
}

// passedOn returns the environment of CMD. The variables by which systemd passes sockets and requests keep-alives name
// their process, so they must name CMD. The inode of its pidfd is removed, because it is that of this process.
func passedOn(env []string, from, to int) (passed []string) {
	moved := false
	for _, v := range env {
		for _, name := range []string{"LISTEN_PID=", "WATCHDOG_PID="} {
			if v == name+strconv.Itoa(from) {
				v, moved = name+strconv.Itoa(to), moved || name == "LISTEN_PID="
			}
		}
		passed = append(passed, v)
	}
	return slices.DeleteFunc(passed, func(v string) bool { return moved && strings.HasPrefix(v, "LISTEN_PIDFDID=") })
}

// wait reports CMD's stops and its end.
func (c *child) wait(pid int) {
	for {
		var s status
		_, err := syscall.Wait4(pid, &s, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err == nil && s.Stopped():
			select {
			case c.stopped <- s.StopSignal():
			default:
			}
		case err != nil: // it is gone, and its status is unknown
			c.ended <- exitFailure << 8
			return
		default:
			c.ended <- s
			return
		}
	}
}

// forward sends a signal to all of CMD's group, or to CMD alone if the signal's meaning is up to the program. With a
// terminal, suspended continues CMD. A second SIGCONT, somewhat later, would undo a ^Z in between. The error means that
// CMD belongs to another user.
func (c *child) forward(s os.Signal) error {
	number := s.(syscall.Signal)
	if number == syscall.SIGCONT && c.tty != nil {
		return nil
	}
	to := -c.pid
	if number == syscall.SIGUSR1 || number == syscall.SIGUSR2 {
		to = c.pid
	}
	if err := syscall.Kill(to, number); err == syscall.EPERM {
		return fmt.Errorf("%s could not be passed on to CMD: %w", unix.SignalName(number), err)
	}
	return nil // or CMD has just ended
}

// terminate sends SIGTERM to the whole group, even if it is stopped.
func (c *child) terminate() {
	_ = syscall.Kill(-c.pid, syscall.SIGTERM)
	_ = syscall.Kill(-c.pid, syscall.SIGCONT)
}

// killGroup kills a group. The error means that we may not kill some of its processes.
func killGroup(group int) error {
	if group < 2 {
		return nil // there is none; kill(-1) would signal all processes
	}
	err := syscall.Kill(-group, syscall.SIGKILL)
	if err == syscall.ESRCH {
		return nil
	}
	return err
}

// emptied waits until no process of a group runs, and reports whether that happened within the limit. It polls, because
// there is no event for it.
func emptied(group int, within time.Duration) bool {
	for until := time.Now().Add(within); group > 1 && alive(group); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			return false
		}
	}
	return true
}

// alive reports whether a process of a group runs. One that has ended stays in the group until its parent waits for it,
// which in a container may be never. Only Linux shows that it has ended (proc(5)).
func alive(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, _ := os.ReadFile(file) // it may be gone by now
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return len(files) == 0
}

// codeOf is the exit code that a shell shows for CMD's end.
func codeOf(s status) int {
	if by := s.Signal(); by > 0 {
		return exitSignal + int(by)
	}
	return s.ExitStatus()
}

// tty is the terminal that controls this process. A nil one stands for none, and does nothing.
type tty struct{ file *os.File }

func openTTY() *tty {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &tty{file}
}

func (t *tty) fd() int { return int(t.file.Fd()) }

func (t *tty) close() {
	if t != nil {
		_ = t.file.Close()
	}
}

// owner returns the foreground process group of the terminal.
func (t *tty) owner() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// foreground reports whether our process group is in the foreground.
func (t *tty) foreground() bool { return t.owner() == syscall.Getpgrp() }

// give gives the terminal to a group. A background group would be stopped for that, so SIGTTOU is ignored from then on.
// CMD must have been started before, or it would ignore it as well.
func (t *tty) give(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}

// suspended handles a stop of CMD. If CMD needed the terminal, it gets it. If the user has typed ^Z, the whole job must
// stop: we stop as well, so that the shell goes on. CMD continues when we do, unless the guard had to kill it
// meanwhile. A CMD that was stopped otherwise keeps the lock.
func (c *child) suspended(by syscall.Signal) {
	wants := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if c.tty == nil || !wants && by != syscall.SIGTSTP {
		return
	}
	had := c.tty.owner() == c.pid
	if wants && c.tty.foreground() {
		had = true
	} else {
		stopJob()
	}
	if had && c.tty.foreground() {
		c.tty.give(c.pid)
	}
	_ = syscall.Kill(-c.pid, syscall.SIGCONT)
}

// stopJob stops our process group, as ^Z does, and returns when it continues. The kernel does not stop an orphaned
// group, hence the limit. It does not use SIGTSTP, which we catch and Go cannot restore.
func stopJob() {
	awake := make(chan os.Signal, 1)
	signal.Notify(awake, syscall.SIGCONT)
	defer signal.Stop(awake)
	_ = syscall.Kill(0, syscall.SIGTTIN)
	select {
	case <-awake:
	case <-time.After(time.Second): // the clock goes on while we are stopped
	}
}

// over takes the terminal back when CMD has ended. If CMD had the terminal and died of a ^C, it was meant for the whole
// job.
func (c *child) over(s status) {
	if c.tty.owner() == c.pid {
		c.tty.give(syscall.Getpgrp())
		if by := s.Signal(); by == syscall.SIGINT || by == syscall.SIGQUIT {
			_ = syscall.Kill(0, by)
		}
	}
	c.tty.close()
}

// dieInterrupted dies of SIGINT if this job has the terminal. So a shell knows that its script should end as well. An
// exit code would tell it that we have handled the ^C.
func dieInterrupted() {
	t := openTTY()
	if !t.foreground() {
		return
	}
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // until it arrives
}

// hidePassword removes a password from the command line, which other users see in the list of processes. It executes
// this program again.
func hidePassword() {
	args, env, found := withoutPassword(os.Args, os.Environ())
	if !found {
		return
	}
	if self, err := os.Executable(); err == nil {
		_ = syscall.Exec(self, args, env) // an error: nothing has changed
	}
}
