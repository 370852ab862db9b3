package chaos_test

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
	cfg    processConfig
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer  // to be read when over is closed
	over   chan struct{} // closed when it has ended and was heard to the end
	hushed chan struct{} // has room for one
	ended  chan struct{} // closed when all its workers have ended
	told   func(report)  // of anything
}

// startProcess starts one. It is killed when the test ends.
func startProcess(tb testing.TB, cfg processConfig, told func(report)) (*process, error) {
	tb.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	p := &process{
		cfg: cfg, over: make(chan struct{}), hushed: make(chan struct{}, 1), ended: make(chan struct{}), told: told,
	}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "LD_PRELOAD=") // meant for the server
	}), workerEnv+"="+string(text))
	// In a group of its own a stopped process is ended by the system, too, should the tests be killed.
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
	go p.hear(out)
	tb.Cleanup(p.kill)
	return p, nil
}

func (p *process) hear(out io.Reader) {
	defer close(p.over)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // half a line of one that was killed
		}
		p.told(r)
		switch r.Event {
		case "hushed":
			select {
			case p.hushed <- struct{}{}:
			default:
			}
		case "ended":
			close(p.ended)
		}
	}
	_ = p.cmd.Wait()
}

// tell gives an order. One that is given to a process that has ended is lost.
func (p *process) tell(o order) { _, _ = fmt.Fprintln(p.in, o) }

// kill ends it as kill -9 does. When it returns the process has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.over
}

// stop stops it where it is, as a suspended machine does, and returns once it stands. It must be running.
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
			err = fmt.Errorf("%v has ended", p)
		}
		return err
	}
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

func (p *process) String() string { return fmt.Sprintf("process %d", p.cfg.Process) }

// await waits for something that must come, and reports whether it did.
func await(what <-chan struct{}, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-what:
		return true
	case <-timer.C:
	}
	select {
	case <-what: // just so
		return true
	default:
		return false
	}
}
