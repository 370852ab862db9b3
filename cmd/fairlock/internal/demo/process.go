package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/history"
)

// ChildCommand is the argument with which the program is started again as one client; it then calls Child.
const ChildCommand = "demo-client"

// goodbye is how long a client's process may take to end in order.
const goodbye = 5 * time.Second

// processes finds the server and starts every client in a process of its own.
func (s *setup) processes(cfg Config, rec *recorder) error {
	opts, err := cfg.options()
	if err != nil {
		return err
	}
	s.rdb = redis.NewClient(opts)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	for _, r := range s.configs(cfg) {
		p, err := spawn(self, r, rec)
		if err != nil {
			return fmt.Errorf("%s: %w", s.short(r.Client), err)
		}
		s.clients = append(s.clients, p)
	}
	return nil
}

// process is a client in a process of its own.
type process struct {
	id     int
	rec    *recorder
	cmd    *exec.Cmd
	errors bytes.Buffer  // what it wrote to its standard error; to be read once it is gone
	gone   chan struct{} // closed when it has ended and everything it said is recorded

	mu    sync.Mutex
	in    io.WriteCloser // guarded by mu
	ended bool           // guarded by mu: it was told to end, or killed
}

// spawn starts a client's process and tells it its role. Not on its command line: the URL may hold a password.
func spawn(self string, r clientConfig, rec *recorder) (*process, error) {
	p := &process{id: r.Process, rec: rec, cmd: exec.Command(self, ChildCommand), gone: make(chan struct{})}
	p.cmd.Stderr = &p.errors
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.in = in
	go p.listen(out) // stop waits for it
	p.tell(r)
	return p, nil
}

// listen records what the process reports until it ends. A killed one may stop in the middle of a line.
func (p *process) listen(out io.Reader) {
	defer close(p.gone)
	lines := json.NewDecoder(out)
	for {
		var e history.Event
		if err := lines.Decode(&e); err != nil {
			break
		}
		p.rec.add(e)
	}
	_, _ = io.Copy(io.Discard, out) // it must not block on what nobody reads
	err := p.cmd.Wait()
	if !p.end() {
		why := errors.Join(err, errors.New(strings.TrimSpace(p.errors.String())))
		p.rec.add(history.Event{Op: trouble, Process: p.id, Err: "its process ended: " + why.Error()})
	}
}

// end notes that the process is to end, and reports whether that was known.
func (p *process) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.ended
	p.ended = true
	return before
}

// tell sends a line. One that does not arrive is for a process that has ended, which listen reports.
func (p *process) tell(v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = json.NewEncoder(p.in).Encode(v)
}

func (p *process) number() int   { return p.id }
func (p *process) keep(all bool) { p.tell(keeping(all)) }
func (p *process) letGo()        { p.tell(orderLetGo) }

func (p *process) crash() {
	p.end()
	_ = p.cmd.Process.Kill()
	p.rec.kill(p.id) // after that: what it reported before may have reached the server
	<-p.gone
}

func (p *process) stop() {
	p.end()
	_ = p.in.Close() // which tells it to end
	timer := time.AfterFunc(goodbye, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.gone
}
