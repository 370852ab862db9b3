package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/history"
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

// start starts a client's process. When ctx ends, the process has 5 s to end by itself.
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
			d.quit(fmt.Errorf("%s has ended: %v: %s", clientName(p.number), p.cmd.ProcessState,
				strings.TrimSpace(said.String())))
		}
	}()
	return p.orders.Encode(cfg)
}

// kill kills a process, and returns when it is dead and all events that it has sent are recorded.
func (d *demo) kill(p *process) {
	c := crash{Span: history.Span{Process: p.number, From: time.Now().UnixNano()}, how: "while it held the lock"}
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // an error: the process has ended, which ends the demo
	<-p.gone
	c.To = time.Now().UnixNano()
	d.mu.Lock()
	if d.countLocked(p, history.Used) == 0 {
		c.how = fmt.Sprintf("while %d of its workers waited", d.countLocked(p, history.Queued))
	}
	d.mu.Unlock()
	d.crashes = append(d.crashes, c)
	d.note(clientName(p.number) + " was killed " + c.how)
}

// childConfig is the first message to a client's process. Orders follow. true: the next worker that requests the lock
// takes all of it and keeps it until false.
type childConfig struct {
	Config
	Namespace string
	Process   int
	Lock      string
}

// child is one client.
type child struct {
	childConfig
	keep atomic.Bool

	mu     sync.Mutex
	events *json.Encoder // guarded by mu
}

// Child is one client of a demo: it reads its configuration and its orders from in, and writes events to out. It
// returns nil when in ends, as it does when the parent process dies. Otherwise it returns an error.
func Child(open func() (redis.UniversalClient, error), in io.Reader, out io.Writer) error {
	c, orders := child{events: json.NewEncoder(out)}, json.NewDecoder(in)
	if err := orders.Decode(&c.childConfig); err != nil {
		return fmt.Errorf("no configuration (this command is started by demo): %w", err)
	}
	rdb, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	var workers sync.WaitGroup
	defer workers.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range c.Workers {
		w := &worker{child: &c, number: i}
		w.client, err = fairlock.New(rdb, fairlock.Config{
			Namespace: c.Namespace, Name: fmt.Sprintf("%s.%d", clientName(c.Process), i+1),
			TTL: c.TTL, WaiterTTL: c.WaiterTTL, Logger: slog.New(slog.DiscardHandler),
			Trace: &fairlock.Trace{Queued: func(i fairlock.QueuedInfo) {
				w.token, w.ticket = i.Token.Text(), i.Ticket
				w.record(history.Event{Op: history.Queued, Ticket: i.Ticket})
			}},
		})
		if err != nil {
			return err
		}
		workers.Go(func() { w.run(ctx) })
	}
	for keep := false; orders.Decode(&keep) == nil; {
		c.keep.Store(keep)
	}
	return nil
}

// worker locks, holds and unlocks, again and again. It has a fairlock.Client of its own, so that its Trace reports only
// the acquisition under way, in the goroutine of run.
type worker struct {
	*child
	number int
	client *fairlock.Client
	call   int
	token  string
	ticket uint64
}

// record writes an event in one write before it returns, so that a killed process has reported all that it has done.
func (w *worker) record(e history.Event) {
	e.At = cmp.Or(e.At, time.Now().UnixNano())
	e.Process, e.Worker, e.Call, e.Lock, e.Token = w.Process, w.number, w.call*w.Workers+w.number, w.Lock, w.token
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.events.Encode(e) // an error: the parent has died, so the orders end as well
}

func (w *worker) run(ctx context.Context) {
	for ; ctx.Err() == nil; w.call++ {
		w.token, w.ticket = "", 0
		w.turn(ctx)
		sleep(ctx, about(w.Hold))
	}
	_ = w.client.Close() // it never fails
}

// turn locks, holds and unlocks the lock once.
func (w *worker) turn(ctx context.Context) {
	keep, weight := w.keep.Load(), w.weight()
	if keep {
		weight = w.Capacity()
	}
	w.record(history.Event{Op: history.Request, Weight: weight})
	longest := w.longestWait() // if all wait when Redis goes down, no call fails
	waiting, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not granted the lock within %v", longest))
	lease, err := w.Acquire(waiting, w.client, w.Lock, weight, false)
	cancel()
	if err != nil {
		w.record(history.Event{Op: history.Failed, Err: err.Error()})
		return
	}
	w.token = lease.Token().Text() // it can only be used to disturb a demo
	w.record(history.Event{Op: history.Granted, Fence: lease.Fence(), Ticket: w.ticket,
		Until: lease.Deadline().UnixNano()})
	held, release := lease.Context(ctx)
	defer release()
	if at := time.Now(); keep && lease.Err() == nil {
		w.record(history.Event{At: at.UnixNano(), Op: history.Used})
	}
	for keep && w.keep.Load() && held.Err() == nil {
		sleep(held, 10*time.Millisecond)
	}
	sleep(held, about(w.Hold))
	if err := lease.Err(); err != nil {
		w.record(history.Event{Op: history.Lost, Err: err.Error()})
		return
	}
	w.record(history.Event{Op: history.Unlock})
	e := history.Event{Op: history.Released}
	if err := lease.Unlock(ctx); errors.Is(err, fairlock.ErrLost) {
		e.Op, e.Err = history.NotHeld, err.Error()
	} else if err != nil {
		e.Op, e.Err = history.Ambiguous, err.Error()
	}
	w.record(e)
}

// weight returns the weight of a worker's next request: mostly one permit, sometimes two or three. One in seven writes.
func (w *worker) weight() int {
	switch n := rand.N(14); {
	case w.Kind == fairlock.KindSemaphore && n < 3:
		return min(2+n%2, w.Permits)
	case w.Kind == fairlock.KindRWMutex && n < 2:
		return w.Capacity()
	}
	return 1
}

// about returns d plus or minus up to a half. Turns of equal length would always come in the same order.
func about(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
