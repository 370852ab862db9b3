package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	crand "crypto/rand"

	"github.com/alicebob/miniredis/v2"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/locks"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// Config has the settings of a demo. There are no defaults.
type Config struct {
	locks.Type
	Where     string   // the server, as it is shown
	Env       []string `json:"-"` // of the clients' processes
	Clients   int
	Workers   int           // of each client
	Duration  time.Duration // of the contention, without the delays by crashes
	TTL       time.Duration
	WaiterTTL time.Duration
	Hold      time.Duration // about how long a worker holds the lock, and pauses before its next request
	Live      bool          // draw the live display; the output is a terminal then
}

// Check returns what is wrong with a Config.
func (c Config) Check() error {
	return cmp.Or(
		c.Type.Check(),
		locks.Within("clients", c.Clients, 3, 64), // two are killed
		locks.Within("workers", c.Workers, 1, 64),
		locks.Within("duration", c.Duration, 100*time.Millisecond, 10*time.Minute),
		locks.Within("ttl", c.TTL, time.Second, time.Minute), // a client that is paused for longer loses the lock
		locks.Within("waiter-ttl", c.WaiterTTL, bounds.MinWaiterTTL, time.Minute),
		locks.Within("hold", c.Hold, 0, time.Second),
	)
}

// crashCosts returns how long a killed client can delay the others. Its waiter may be granted the lock after its death,
// until its WaiterTTL ends.
func (c Config) crashCosts() time.Duration { return max(c.TTL, c.WaiterTTL) }

// longestWait returns how long a worker waits at most while Redis is up.
func (c Config) longestWait() time.Duration {
	return 10*time.Second + 2*c.crashCosts() + 10*time.Duration(c.Clients*c.Workers)*c.Hold
}

// crash is the death of a client.
type crash struct {
	history.Span
	how string
}

// demo is one run.
type demo struct {
	Config
	lock      string
	began     time.Time
	out       io.Writer
	quit      context.CancelCauseFunc // ends everything
	processes []*process              // by number
	crashes   []crash

	mu      sync.Mutex            // also for out, unless the display is live
	events  []history.Event       // guarded by mu
	last    map[[2]int]history.Op // guarded by mu; by process and worker
	granted int64                 // guarded by mu; when the last grant was recorded
	grants  []int                 // guarded by mu; by client
	notes   []string              // guarded by mu
}

// Memory starts a Redis in memory, on a port of the loopback interface with a random password. The caller closes it.
func Memory() (server *miniredis.Miniredis, url string, err error) {
	server, password := miniredis.NewMiniRedis(), crand.Text()
	server.ClockTTL(true)
	server.RequireAuth(password)
	err = server.Start()
	return server, "redis://:" + password + "@" + server.Addr(), err
}

// Run shows a demo on out, and writes a summary in the end. The error says that a lock broke a promise, or why the demo
// could not go on. If ctx ends, or a key on in ends the live display, Run checks what was recorded until then.
func Run(ctx context.Context, cfg Config, server *inspect.Server, in io.Reader, out io.Writer) error {
	d := &demo{
		Config: cfg, lock: "demo-" + strings.ToLower(crand.Text()[:6]), began: time.Now(), out: out,
		last: map[[2]int]history.Op{}, grants: make([]int, cfg.Clients),
	}
	failed := d.run(ctx, server, in)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// remaining keys expire
	_ = server.Redis.Del(clean, inspect.ID{Kind: d.Kind, Name: d.lock}.Keys(server.Namespace)...).Err()
	return d.conclude(failed)
}

// run runs and shows the demo. When it returns, all processes have ended.
func (d *demo) run(user context.Context, server *inspect.Server, in io.Reader) error {
	limit := time.Minute + d.Duration + d.longestWait()
	ctx, cancel := context.WithTimeoutCause(user, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	ctx, d.quit = context.WithCancelCause(ctx)
	var display sync.WaitGroup
	display.Go(func() { d.quit(d.show(ctx, server, in)) })
	d.quit(d.play(ctx, server.Namespace))
	display.Wait()
	for _, p := range d.processes {
		<-p.gone
	}
	if err := context.Cause(ctx); user.Err() == nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// play starts the clients. It kills one that holds the lock and one whose workers wait.
func (d *demo) play(ctx context.Context, namespace string) error {
	for i := range d.Clients {
		if err := d.start(ctx, childConfig{d.Config, namespace, i, d.lock}); err != nil {
			return fmt.Errorf("%s: %w", clientName(i), err)
		}
	}
	order := rand.Perm(d.Clients)
	holder, waiter, keeper := d.processes[order[0]], d.processes[order[1]], d.processes[order[2]]
	d.contend(ctx, d.began)
	d.crash(ctx, holder, holder)
	d.crash(ctx, waiter, keeper)
	return nil
}

// contend waits for a grant after some time, and then a third of the duration.
func (d *demo) contend(ctx context.Context, after time.Time) {
	d.until(ctx, func() bool { return d.granted > after.UnixNano() })
	sleep(ctx, d.Duration/3)
}

// crash kills victim while keeper holds the whole lock and the other workers of victim wait. Then the remaining clients
// contend.
func (d *demo) crash(ctx context.Context, victim, keeper *process) {
	_ = keeper.orders.Encode(true) // a process that has ended ends the demo
	d.until(ctx, func() bool {
		return d.countLocked(keeper, history.Used) == 1 &&
			(victim == keeper || d.countLocked(victim, history.Queued) == d.Workers)
	})
	if sleep(ctx, 300*time.Millisecond); ctx.Err() != nil { // to be seen
		return
	}
	d.kill(victim)
	_ = keeper.orders.Encode(false)
	d.contend(ctx, time.Now().Add(d.crashCosts()))
}

// countLocked returns how many workers of a client have recorded op last.
func (d *demo) countLocked(p *process, op history.Op) (n int) {
	for worker := range d.Workers {
		if d.last[[2]int{p.number, worker}] == op {
			n++
		}
	}
	return n
}

// until waits until a condition on the recorded events is true, or ctx ends.
func (d *demo) until(ctx context.Context, condition func() bool) {
	for holds := false; !holds && ctx.Err() == nil; sleep(ctx, 10*time.Millisecond) {
		d.mu.Lock()
		holds = condition()
		d.mu.Unlock()
	}
}

// add records an event. A Lock that has failed ends the demo, because a waiter survives a short failure of Redis.
func (d *demo) add(e history.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events, d.last[[2]int{e.Process, e.Worker}] = append(d.events, e), e.Op
	switch e.Op {
	case history.Granted:
		d.granted = max(d.granted, e.At)
		d.grants[e.Process]++
	case history.Failed:
		d.quit(fmt.Errorf("%s: %s", clientName(e.Process), e.Err))
	}
}

// note adds a line about what the demo does.
func (d *demo) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text = fmt.Sprintf("%5.1fs  %s", time.Since(d.began).Seconds(), text)
	d.notes = append(d.notes, text)
	if !d.Live {
		_, _ = fmt.Fprintln(d.out, text)
	}
}
