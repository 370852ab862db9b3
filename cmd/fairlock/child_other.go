//go:build !unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

// Where there are no process groups, CMD alone is stopped, and by force.

var forwarded = []os.Signal{os.Interrupt}

type status = int // exit code

type child struct {
	pid     int
	process *os.Process
	ended   chan status
	refused error // none: it has been CMD from the start
	stopped chan struct{}
}

func startChild(path string, argv, env []string) (*child, error) {
	cmd := &exec.Cmd{Path: path, Args: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{pid: cmd.Process.Pid, process: cmd.Process, ended: make(chan status, 1)}
	go func() {
		_ = cmd.Wait()
		c.ended <- cmd.ProcessState.ExitCode()
	}()
	return c, nil
}

func (c *child) forward(os.Signal) {} // the console has told CMD, too

func (c *child) terminate() { _ = c.kill() }

func (c *child) kill() error {
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func becomeCMD()                          {}
func (c *child) begin()                   {}
func (c *child) empty(time.Duration) bool { return false }
func (c *child) suspended(struct{})       {}
func (c *child) over(status)              {}
func codeOf(s status) int                 { return s }
func apart(*exec.Cmd)                     {}
func dieInterrupted()                     {}
func hidePassword()                       {}

func killGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil //nolint:nilerr // there is none any more
	}
	return p.Kill()
}

// tty is the terminal, of which nothing is known here.
type tty struct{}

func openTTY() *tty           { return nil }
func (*tty) foreground() bool { return true }
func (*tty) close()           {}
