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

// children are the processes that this one has started: somebody waits for each.
type children struct {
	mu      sync.Mutex
	waiting map[int]<-chan struct{} // guarded by mu; closed when the process has been waited for
}

// started are the children of this process.
var started = children{waiting: map[int]<-chan struct{}{}}

// start starts a process, and has wait wait for it. The channel is closed after that.
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
		if c.waiting[pid] == done { // else the number has been given to another child already
			delete(c.waiting, pid)
		}
		close(done)
	}()
	return done, nil
}

// waited is closed when a child of ours has been waited for; nil if we have not started it.
func (c *children) waited(pid int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[pid]
}

// child is CMD and what it starts: a process group of its own, so that all of it can be stopped.
type child struct {
	pid     int // also the group's
	tty     *tty
	gate    *os.File            // at which it waits until it may be CMD
	ended   chan status         // gets the one that is CMD's last
	stopped chan syscall.Signal // gets what has stopped CMD, if anybody looks
}

// cmdName is how we start the process that is to be CMD. Its arguments are a file that it has open beside those that
// CMD gets (a byte comes from it when it may be CMD, and nothing if we are gone), CMD's path, and CMD's arguments.
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
	c := &child{tty: openTTY(), gate: gate, ended: make(chan status, 1), stopped: make(chan syscall.Signal, 1)}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if c.tty.foreground() && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		attr.Foreground, attr.Ctty = true, c.tty.fd()
	}
	// The process gets the gate under the number that it has here. (ExtraFiles would take numbers that somebody has given
	// us a file under, which is for CMD.)
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
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT) // of which Go would print all stacks
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

// passedOn returns the environment of CMD, in which it is CMD to whom systemd has given sockets, and of whom it wants
// signs of life. Each variable names the process that it is meant for; the inode of its pidfd would be that of the
// other one.
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

// wait tells of CMD's stops and of its end.
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
		case err != nil: // it is gone, and nobody knows how
			c.ended <- exitFailure << 8
			return
		default:
			c.ended <- s
			return
		}
	}
}

// forward passes a signal on: to all of CMD's group, but for those that mean what a program makes of them. With a
// terminal, suspended continues CMD: a second SIGCONT, somewhat later, would undo a ^Z that came in between. The error
// says that CMD is another user's.
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

// terminate asks all of it to end, also if it is stopped.
func (c *child) terminate() {
	_ = syscall.Kill(-c.pid, syscall.SIGTERM)
	_ = syscall.Kill(-c.pid, syscall.SIGCONT)
}

// killGroup ends all of a group. The error says that some of it is not ours to kill.
func killGroup(group int) error {
	if group < 2 {
		return nil // there is none; 1 would be everybody
	}
	err := syscall.Kill(-group, syscall.SIGKILL)
	if err == syscall.ESRCH {
		return nil
	}
	return err
}

// emptied waits until nothing of a group lives, and reports whether that was so in time. No event tells.
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

// owner is the process group to which the terminal belongs at present.
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

// foreground reports whether that is our own.
func (t *tty) foreground() bool { return t.owner() == syscall.Getpgrp() }

// give gives the terminal to a group. A group that does not have it would be stopped for that, so SIGTTOU
// is ignored from then on, and CMD must have been started before.
func (t *tty) give(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}

// suspended does what is to be done when CMD was stopped. If that was for want of the terminal, it gets it. If it was
// by the terminal's user, they mean all of the job: we stop too, so that their shell goes on, and CMD goes on when we
// do, unless the guard had to kill it meanwhile. A CMD that somebody else has stopped keeps the lock.
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

// stopJob stops our process group, as ^Z does, and returns when it goes on. In a group that nobody would wake up again
// the system does not let that happen, hence the limit. It is not by SIGTSTP, which we catch and Go cannot undo.
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

// over takes the terminal back when CMD has ended. A ^C that CMD alone got, because it had the terminal, and died of,
// was meant for all of the job.
func (c *child) over(s status) {
	if c.tty.owner() == c.pid {
		c.tty.give(syscall.Getpgrp())
		if by := s.Signal(); by == syscall.SIGINT || by == syscall.SIGQUIT {
			_ = syscall.Kill(0, by)
		}
	}
	c.tty.close()
}

// dieInterrupted dies of SIGINT if this is the terminal's job: so a shell knows that its script is to end, too. A
// plain exit code would tell it that we have dealt with the ^C.
func dieInterrupted() {
	t := openTTY()
	if !t.foreground() {
		return
	}
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // until it arrives
}

// hidePassword takes a password off the command line, for all to see in the list of processes, by starting this
// program again in its place.
func hidePassword() {
	args, env, found := withoutPassword(os.Args, os.Environ())
	if !found {
		return
	}
	if self, err := os.Executable(); err == nil {
		_ = syscall.Exec(self, args, env) // if it fails, all is as it was
	}
}
