//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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

// give gives the terminal to a group. Who does not have it would be stopped for that, if SIGTTOU were not ignored; from
// then on it is, so CMD must have been started before.
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
