//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
	"time"
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
	ended   chan status         // gets the one that is CMD's last
	stopped chan syscall.Signal // gets what has stopped CMD, if anybody looks
}

// startChild starts CMD with our own standard files. If both input and output are the terminal, and it is ours to
// give, CMD gets it at once; otherwise as soon as it wants to read from it.
func startChild(path string, argv, env []string) (*child, error) {
	c := &child{tty: openTTY(), ended: make(chan status, 1), stopped: make(chan syscall.Signal, 1)}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if c.tty.foreground() && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		attr.Foreground, attr.Ctty = true, c.tty.fd()
	}
	cmd := &exec.Cmd{
		Path: path, Args: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: attr,
	}
	if err := cmd.Start(); err != nil {
		c.tty.close()
		return nil, err
	}
	c.pid = cmd.Process.Pid
	_ = cmd.Process.Release() // os.Process.Wait does not tell of stops
	go c.wait()
	return c, nil
}

// wait tells of CMD's stops and of its end.
func (c *child) wait() {
	for {
		var s status
		_, err := syscall.Wait4(c.pid, &s, syscall.WUNTRACED, nil)
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
