package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/internal/history"
)

// ChildCommand is the argument with which the program is started again as one client; it then calls Child.
const ChildCommand = "demo-client"

// clientName is the name of the client with that number, and of its process.
func clientName(number int) string { return fmt.Sprintf("client-%d", number+1) }

// process is a client's process.
type process struct {
	number int
	cmd    *exec.Cmd
	orders *json.Encoder
	killed atomic.Bool
	gone   chan struct{} // closed when the process has ended and all its events are recorded
}

// start starts a client's process, which gets 5 s to end by itself when ctx has ended.
func (d *demo) start(ctx context.Context, cfg childConfig) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := &process{number: cfg.Process, cmd: exec.CommandContext(ctx, self, ChildCommand), gone: make(chan struct{})}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	p.cmd.Env, p.cmd.Stderr, p.cmd.Cancel, p.cmd.WaitDelay = d.Env, &said, in.Close, 5*time.Second
	if err := p.cmd.Start(); err != nil {
		return err
	}
	d.processes, p.orders = append(d.processes, p), json.NewEncoder(in)
	go func() {
		defer close(p.gone)
		var e history.Event
		for events := json.NewDecoder(out); events.Decode(&e) == nil; e = (history.Event{}) {
			d.add(e)
		}
		if _ = p.cmd.Wait(); !p.killed.Load() { // its error is in ProcessState
			d.quit(fmt.Errorf("%s has ended: %v: %s", clientName(p.number), p.cmd.ProcessState, strings.TrimSpace(said.String())))
		}
	}()
	return p.orders.Encode(cfg)
}

// kill kills a process, and returns when it is dead and all that it has told is recorded.
func (d *demo) kill(p *process, how string) {
	c := crash{history.Span{Process: p.number, From: time.Now().UnixNano()}, how}
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // it fails if the process has ended, which ends the demo
	<-p.gone
	c.To = time.Now().UnixNano()
	d.crashes = append(d.crashes, c)
	d.note(clientName(p.number) + " was killed " + how)
}
