package fairlock_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// childEnv makes the test binary a child process: it holds a childConfig in JSON. The child reads a childCommand a line
// on its stdin and writes a childEvent a line on its stdout; it ends when its stdin does.
const childEnv = "FAIRLOCK_TEST_CHILD"

// childConfig is what a child process is started with.
type childConfig struct {
	Network, Addr  string // of the server
	TTL, WaiterTTL time.Duration
	NoRenewal      bool
	Late           time.Duration // of its timers: what it must know on waking, the clock alone can tell it
	Slow           int           // so many times slower is its clock, if it is set: it believes for too long
	Kind           string        // of the lock: semaphore, rwmutex; a mutex if it is empty
	Permits        int           // of a semaphore
}

// childCommand tells a child what to do. Work tells got, held, failed and paused as they come, and done at the end.
type childCommand struct {
	Do    string        // lock, resume, err, unlock (an event of the same name each), watch (watching, woke, unlock), work
	ID    int           // of the lease it is about, chosen by the parent; of the first worker
	Token string        // resume: the token
	N     int           // work: how many workers
	Until time.Time     // work: no Lock begins later
	Hold  time.Duration // work: how long each lease is held

	// lock, work: how many permits to ask for, one of these at random each time; 1 if there are none. Under an RWMutex
	// 1 reads and lua.WriterWeight writes.
	Weights []int
}

// childEvent is what a child tells. Its times are the machine's: they compare with those of other processes.
type childEvent struct {
	Event    string
	ID       int
	From     time.Time     // just before the call, or when a pause began
	At       time.Time     // when Lock had returned or the pause was over; just before Unlock was called
	End      time.Time     // got: until when it holds the lock if it hears no more; held: when it still held it, if it did
	Wait     time.Duration // as Trace has it
	Weight   int
	Fence    uint64
	Ticket   uint64 // 0 if it never queued
	Token    string
	Deadline time.Time
	Err      string
	Lost     bool // Err is an ErrLost
	Done     bool // the lease's Done was closed
}

func TestChildProcess(t *testing.T) {
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		return // it is one only when procStart runs it
	}
	var cfg childConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		panic(err)
	}
	(&child{cfg: cfg, leases: map[int]*fairlock.Lease{}}).run()
	os.Exit(0) // no word of the test's end on stdout
}

// childClock is the system's, with late timers, or slow.
type childClock struct {
	clock.System
	late  time.Duration
	slow  int
	began time.Time
}

func (c childClock) Now() time.Time {
	now := c.System.Now()
	return c.began.Add(now.Sub(c.began) / time.Duration(c.slow))
}

func (c childClock) AfterFunc(d time.Duration, f func()) fairlock.Timer {
	return c.System.AfterFunc(time.Duration(c.slow)*d+c.late, f)
}

// child is the inside of a child process.
type child struct {
	cfg     childConfig
	rdb     *redis.Client
	acquire func(ctx context.Context, weight int) (*fairlock.Lease, error)
	goOn    func(ctx context.Context, t token.Token) (*fairlock.Lease, error)
	grants  sync.Map // token.Token to fairlock.GrantedInfo

	mu     sync.Mutex
	leases map[int]*fairlock.Lease // guarded by mu
	out    sync.Mutex              // for whole lines
}

func (c *child) run() {
	c.rdb = redis.NewClient(&redis.Options{Network: c.cfg.Network, Addr: c.cfg.Addr})
	client, err := fairlock.New(c.rdb, fairlock.Config{
		TTL: c.cfg.TTL, WaiterTTL: c.cfg.WaiterTTL, NoRenewal: c.cfg.NoRenewal,
		Clock:  childClock{late: c.cfg.Late, slow: max(c.cfg.Slow, 1), began: time.Now()},
		Trace:  &fairlock.Trace{Granted: func(i fairlock.GrantedInfo) { c.grants.Store(i.Token, i) }},
		Logger: slog.New(slog.DiscardHandler), // the parent takes anything on stderr for a failure
	})
	if err != nil {
		panic(err)
	}
	c.use(client)
	c.tell(childEvent{Event: "ready"})
	for in := json.NewDecoder(os.Stdin); ; {
		var cmd childCommand
		if err := in.Decode(&cmd); err != nil {
			break // the parent has ended, or has no more to say
		}
		go c.do(cmd)
	}
	_ = client.Close()
	_ = c.rdb.Close()
}

// use chooses the lock, always "x".
func (c *child) use(client *fairlock.Client) {
	switch c.cfg.Kind {
	case "":
		m := client.Mutex("x")
		c.acquire = func(ctx context.Context, _ int) (*fairlock.Lease, error) { return m.Lock(ctx) }
		c.goOn = m.Resume
	case "semaphore":
		s := client.Semaphore("x", c.cfg.Permits)
		c.acquire, c.goOn = s.Acquire, s.Resume
	case "rwmutex":
		m := client.RWMutex("x")
		c.acquire = func(ctx context.Context, weight int) (*fairlock.Lease, error) {
			if weight == 1 {
				return m.RLock(ctx)
			}
			return m.Lock(ctx)
		}
		c.goOn = m.Resume
	default:
		panic("no such kind: " + c.cfg.Kind)
	}
}

func (c *child) tell(e childEvent) {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	c.out.Lock()
	defer c.out.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n'))
}

func (c *child) do(cmd childCommand) {
	switch cmd.Do {
	case "lock":
		e, lease := c.lock(cmd.ID, cmd.Weights)
		c.keep(cmd.ID, lease)
		c.tell(e)
	case "resume":
		e, lease := c.resume(cmd.ID, cmd.Token)
		c.keep(cmd.ID, lease)
		c.tell(e)
	case "watch":
		c.watch(cmd.ID)
	case "err":
		c.tell(childEvent{Event: "err", ID: cmd.ID, At: time.Now()}.failed(c.lease(cmd.ID).Err()))
	case "unlock":
		c.unlock(cmd.ID)
	case "work":
		c.work(cmd)
	default:
		panic("no such command: " + cmd.Do)
	}
}

func (c *child) keep(id int, lease *fairlock.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[id] = lease
}

func (c *child) lease(id int) *fairlock.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[id]
}

func (e childEvent) failed(err error) childEvent {
	if err != nil {
		e.Err, e.Lost = err.Error(), errors.Is(err, fairlock.ErrLost)
	}
	return e
}

func (e childEvent) leased(lease *fairlock.Lease) childEvent {
	e.Fence, e.Token, e.Deadline = lease.Fence(), lease.Token().Text(), lease.Deadline()
	return e
}

func (c *child) lock(id int, weights []int) (childEvent, *fairlock.Lease) {
	e := childEvent{Event: "lock", ID: id, Weight: 1, From: time.Now()}
	if len(weights) > 0 {
		e.Weight = weights[rand.IntN(len(weights))]
	}
	lease, err := c.acquire(context.Background(), e.Weight)
	e.At = time.Now()
	if err != nil {
		return e.failed(err), nil
	}
	if info, ok := c.grants.LoadAndDelete(lease.Token()); ok {
		e.Ticket, e.Wait = info.(fairlock.GrantedInfo).Ticket, info.(fairlock.GrantedInfo).Wait
	}
	return e.leased(lease), lease
}

func (c *child) resume(id int, text string) (childEvent, *fairlock.Lease) {
	e := childEvent{Event: "resume", ID: id, From: time.Now()}
	t, err := token.Parse(text)
	if err != nil {
		return e.failed(err), nil
	}
	lease, err := c.goOn(context.Background(), t)
	e.At = time.Now()
	if err != nil {
		return e.failed(err), nil
	}
	return e.leased(lease), lease
}

func (c *child) unlock(id int) {
	e := childEvent{Event: "unlock", ID: id, At: time.Now()}
	c.tell(e.failed(c.lease(id).Unlock(context.Background())))
}

// watch reads the clock until the process has been stopped for longer than a TTL. The first thing it does then is to
// look at its lease.
func (c *child) watch(id int) {
	lease := c.lease(id)
	done := lease.Done()
	last := time.Now() // before it is told: it may be stopped at once
	c.tell(childEvent{Event: "watching", ID: id})
	for {
		now := time.Now()
		if now.Sub(last) >= c.cfg.TTL {
			err := lease.Err()
			e := childEvent{Event: "woke", ID: id, From: last, At: now}.failed(err)
			select {
			case <-done:
				e.Done = true
			default:
			}
			c.tell(e)
			c.unlock(id)
			return
		}
		last = now
	}
}

// work has workers lock and unlock without a pause.
func (c *child) work(cmd childCommand) {
	stop := make(chan struct{})
	go c.heed(stop)
	var workers sync.WaitGroup
	for i := range cmd.N {
		workers.Go(func() {
			for time.Now().Before(cmd.Until) {
				if !c.round(cmd.ID+i, cmd) {
					return
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	c.tell(childEvent{Event: "done", ID: cmd.ID})
}

// round holds the lock once. It tells both ends while it holds it, because it may be killed at any moment.
func (c *child) round(id int, cmd childCommand) bool {
	e, lease := c.lock(id, cmd.Weights)
	if e.Err != "" {
		e.Event = "failed"
		c.tell(e)
		return false
	}
	e.Event, e.End = "got", e.Deadline
	c.tell(e)
	if cmd.Hold > time.Millisecond {
		time.Sleep(cmd.Hold) // many may hold at once
	}
	for held := time.Now(); cmd.Hold <= time.Millisecond && time.Since(held) < cmd.Hold; {
		continue // on the processor: a sleep that short is a millisecond
	}
	e.Event, e.End = "held", time.Now()
	if lease.Err() != nil {
		e.End = time.Time{}
	}
	c.tell(e)
	if err := lease.Unlock(context.Background()); err != nil {
		e.Event = "failed"
		c.tell(e.failed(err))
	}
	return true
}

// heed tells when this process, or its way to Redis, stood still for a while, as happens on a busy machine.
func (c *child) heed(stop chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		err := c.rdb.Ping(context.Background()).Err()
		now := time.Now()
		if now.Sub(last) > procPause || err != nil {
			c.tell(childEvent{Event: "paused", From: last, At: now}.failed(err))
		}
		last = now
	}
}

// procPause is from when on a pause counts.
const procPause = 60 * time.Millisecond

// process is a child process as its parent sees it.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer  // to be read when over is closed
	over   chan struct{} // it has ended, and was heard to the end
	killed time.Time     // just before it was; zero if it was not

	mu      sync.Mutex
	answers map[string]chan childEvent // guarded by mu
	work    []childEvent               // guarded by mu: what its workers told
}

// procStart starts a child process. It need not be ready yet: what it is told meanwhile waits in its pipe.
func procStart(t *testing.T, s *redistest.Server, cfg childConfig) *process {
	t.Helper()
	cfg.Network, cfg.Addr = s.Network(), s.Addr()
	text, err := json.Marshal(cfg)
	require.NoError(t, err)
	p := &process{t: t, over: make(chan struct{}), answers: map[string]chan childEvent{}}
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestChildProcess$")
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	// In a group of its own a stopped child is ended by the system, too, should the tests be killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.stderr
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go p.hear(out)
	t.Cleanup(func() {
		p.kill()
		assert.Empty(t, p.stderr.String(), "a child has complained")
	})
	return p
}

// hear sorts what the child tells, until it ends.
func (p *process) hear(out io.Reader) {
	defer close(p.over)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e childEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the half line of one that was killed
		}
		switch e.Event {
		case "got", "held", "paused", "failed":
			p.mu.Lock()
			p.work = append(p.work, e)
			p.mu.Unlock()
		default:
			p.answer(e.Event, e.ID) <- e
		}
	}
	_ = p.cmd.Wait()
}

func (p *process) answer(event string, id int) chan childEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := event + strconv.Itoa(id)
	if p.answers[key] == nil {
		p.answers[key] = make(chan childEvent, 8)
	}
	return p.answers[key]
}

func (p *process) tell(cmd childCommand) {
	p.t.Helper()
	require.NoError(p.t, json.NewEncoder(p.in).Encode(cmd))
}

// await returns the child's next event of that kind about that lease.
func (p *process) await(event string, id int) childEvent {
	p.t.Helper()
	answer := p.answer(event, id)
	select {
	case e := <-answer:
		return e
	default:
	}
	select {
	case e := <-answer:
		return e
	case <-p.over:
		p.t.Fatalf("the child ended before %q %d\n%s", event, id, p.stderr.String())
	case <-time.After(soon):
		p.t.Fatalf("the child does not tell %q %d", event, id)
	}
	return childEvent{}
}

// got awaits that it has locked or resumed.
func (p *process) got(event string, id int) childEvent {
	p.t.Helper()
	e := p.await(event, id)
	require.Empty(p.t, e.Err)
	return e
}

// told reports whether there is such an event, without taking it.
func (p *process) told(event string, id int) bool { return len(p.answer(event, id)) > 0 }

// ask is a command and its answer.
func (p *process) ask(do string, id int) childEvent {
	p.t.Helper()
	p.tell(childCommand{Do: do, ID: id})
	return p.await(do, id)
}

// kill ends the child as kill -9 does. It has ended then.
func (p *process) kill() {
	select {
	case <-p.over:
		return
	default:
	}
	at := time.Now()
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.over
	p.killed = at
}

// stop stops the child where it is, as a suspended machine does, and returns once it stands.
func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		require.NoError(p.t, err)
		require.True(p.t, status.Stopped(), "the child has ended")
		return
	}
}

// resume has the child go on, and returns the time just before.
func (p *process) resume() time.Time {
	p.t.Helper()
	at := time.Now()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
	return at
}

func (p *process) String() string { return fmt.Sprintf("process %d", p.cmd.Process.Pid) }
