//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a process of workers as its parent sees it.
type process struct {
	cfg    childConfig
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer  // to be read when over is closed
	over   chan struct{} // closed when it has ended and all its reports were read
	ended  chan struct{} // closed when all its workers have ended
}

// startProcess starts one. It is killed when the test ends. Its reports are passed to onReport.
func startProcess(tb testing.TB, cfg childConfig, onReport func(report)) (*process, error) {
	tb.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	p := &process{
		cfg: cfg, over: make(chan struct{}), ended: make(chan struct{}), cmd: exec.Command(os.Args[0]),
	}
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "LD_PRELOAD=") // it is meant for the server
	}), childEnv+"="+string(text))
	// In a group of its own a stopped process is ended by the system as well if the tests are killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out, onReport)
	tb.Cleanup(p.kill)
	return p, nil
}

func (p *process) read(out io.Reader, onReport func(report)) {
	defer close(p.over)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // half a line of one that was killed
		}
		onReport(r)
		if r.Event == "ended" {
			close(p.ended)
		}
	}
	_ = p.cmd.Wait()
}

// order gives it an order. A process that has ended ignores it.
func (p *process) order(o order) { _, _ = fmt.Fprintln(p.in, o) }

// kill ends it as kill -9 does. When it returns the process has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.over
}

// stop sends SIGSTOP, and returns once the process has stopped. It must be running.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && !status.Stopped() {
			err = fmt.Errorf("process %d has ended", p.cfg.Process)
		}
		return err
	}
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// closedWithin reports whether a channel is closed or receives something within a time.
func closedWithin(c <-chan struct{}, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
	}
	select {
	case <-c: // at the same time
		return true
	default:
		return false
	}
}
