//go:build unix

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/token"
)

// workersConfig says what the workers of one process do, and what may happen to them.
type workersConfig struct {
	Process        int
	Workers        int
	Locks          []string
	TTL, WaiterTTL time.Duration
	Slow           int  // thousandths by which their clock is slower than the machine's
	Calm           bool // Redis and the way to it work
	Lossy          bool // Redis may take a lease away: it loses data, or its clock steps forward
	Outlast        bool // leases outlast what goes wrong
	Seed           uint64
}

// workers lock, use and unlock mutexes, and record what happens.
type workers struct {
	cfg               workersConfig
	write             func(history.Event)
	complain          func(format string, args ...any) // of what the library must not do
	clock             slowClock
	client            *fairlock.Client
	calls             atomic.Int64
	paused            atomic.Int64  // ns: when this process last stood still
	handoffs          atomic.Int64  // grants that were handed over and used without a request
	notificationsLost atomic.Int64  // notifications that were lost
	ending            chan struct{} // closed when they are to end

	byGoroutine sync.Map // uint64 to *call, of those in Lock
	byToken     sync.Map // token.Token to *call, of those that hold a lock
}

// call is one acquisition. Its fields belong to the worker's goroutine.
type call struct {
	id, worker  int
	lock, token string
	ticket      uint64
	granted     int64
}

func newWorkers(cfg workersConfig, rdb fairlock.Redis, write func(history.Event),
	complain func(string, ...any)) *workers {
	w := &workers{cfg: cfg, write: write, complain: complain, ending: make(chan struct{}),
		clock: slowClock{time.Now(), cfg.Slow}}
	config := fairlock.Config{
		TTL: cfg.TTL, WaiterTTL: cfg.WaiterTTL, Trace: w.trace(),
		Logger: slog.New(slog.DiscardHandler), // faults are the rule
	}
	if cfg.Slow > 0 {
		config.Clock = w.clock
	}
	var err error
	if w.client, err = fairlock.New(rdb, config); err != nil {
		panic(err)
	}
	return w
}

// run returns when all workers have ended.
func (w *workers) run() {
	var all sync.WaitGroup
	for i := range w.cfg.Workers {
		all.Go(func() { w.work(i) })
	}
	all.Wait()
	_ = w.client.Close()
}

// end lets them hold nothing any longer, begin nothing, and end.
func (w *workers) end() { close(w.ending) }

func (w *workers) record(c *call, e history.Event) {
	e.Process, e.Worker, e.Call, e.Lock, e.Token = w.cfg.Process, c.worker, c.id, c.lock, c.token
	if e.At == 0 {
		e.At = now()
	}
	w.write(e)
}

// until is when a deadline by the workers' clock is.
func (w *workers) until(deadline time.Time) int64 { return nanos(w.clock.when(deadline)) }

// trace records what Lock does not return. Queued and Granted are called in the goroutine that is in Lock.
func (w *workers) trace() *fairlock.Trace {
	caller := func(t token.Token, ticket uint64) *call {
		v, _ := w.byGoroutine.Load(goroutine())
		c := v.(*call)
		c.token, c.ticket = t.Text(), ticket
		return c
	}
	return &fairlock.Trace{
		Queued: func(i fairlock.QueuedInfo) {
			c := caller(i.Token, i.Ticket)
			w.record(c, history.Event{Op: history.Queued, Ticket: i.Ticket})
		},
		Granted: func(i fairlock.GrantedInfo) {
			w.byToken.Store(i.Token, caller(i.Token, i.Ticket))
			if i.Handoff {
				w.handoffs.Add(1)
			}
		},
		NotificationLost: func(fairlock.Event) { w.notificationsLost.Add(1) },
		Renewed: func(i fairlock.RenewedInfo) {
			if c, ok := w.byToken.Load(i.Token); ok && i.Err == nil {
				// the call does not change any more
				w.record(c.(*call), history.Event{Op: history.Renewed, Until: w.until(i.Deadline)})
			}
		},
	}
}

// goroutine is the number of the calling goroutine.
func goroutine() uint64 {
	var text [64]byte
	fields := bytes.Fields(text[:runtime.Stack(text[:], false)])
	n, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// sleep sleeps for d, or until the workers are to end.
func (w *workers) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ending:
	}
}

func (w *workers) isEnding() bool {
	select {
	case <-w.ending:
		return true
	default:
		return false
	}
}

func (w *workers) work(worker int) {
	d := newDice(w.cfg.Seed, fmt.Sprintf("worker %d of %d", worker, w.cfg.Process))
	me := goroutine()
	for !w.isEnding() {
		c := &call{id: int(w.calls.Add(1)), worker: worker, lock: w.cfg.Locks[d.IntN(len(w.cfg.Locks))]}
		w.byGoroutine.Store(me, c)
		lease := w.lock(c, d)
		w.byGoroutine.Delete(me)
		if lease == nil {
			w.sleep(d.upTo(20 * time.Millisecond))
			continue
		}
		if d.IntN(50) == 0 {
			w.renew(c, lease)
		}
		w.hold(c, lease, holdTime(d))
		w.unlock(c, lease)
		w.byToken.Delete(lease.Token())
		w.sleep(d.upTo(5 * time.Millisecond))
	}
}

// holdTime is how long a lock is held. It is mostly short, sometimes lasts beyond a renewal, and sometimes beyond TTL,
// so that faults meet holders and waiters.
func holdTime(d dice) time.Duration {
	switch n := d.IntN(100); {
	case n < 1:
		return 2 * ttl
	case n < 4:
		return ttl/3 + d.upTo(ttl/3)
	default:
		return d.upTo(2 * time.Millisecond)
	}
}

// lock locks, in some calls with TryLock, in some with a deadline. It returns nil after an error.
func (w *workers) lock(c *call, d dice) *fairlock.Lease {
	ctx, method, try := context.Background(), w.client.Mutex(c.lock).Lock, false
	switch n := d.IntN(20); {
	case n < 2:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.between(time.Millisecond, w.cfg.TTL))
		defer cancel()
	case n < 3:
		method, try = w.client.Mutex(c.lock).TryLock, true
	}
	e := history.Event{At: now(), Op: history.Request}
	if deadline, ok := ctx.Deadline(); ok {
		e.Until = nanos(deadline)
	}
	w.record(c, e)
	lease, err := method(ctx)
	at := now()
	if err != nil {
		w.record(c, history.Event{At: at, Op: history.Failed, Err: err.Error()})
		w.checkLockError(ctx, c, try, e.At, err)
		return nil
	}
	c.granted = at
	w.record(c, history.Event{At: at, Op: history.Granted, Fence: lease.Fence(), Ticket: c.ticket,
		Until: w.until(lease.Deadline())})
	return lease
}

// renew renews a lease, which fails only if the lease is over.
func (w *workers) renew(c *call, lease *fairlock.Lease) {
	if err := lease.Renew(context.Background()); err != nil && lease.Err() == nil {
		w.complain("%s: Renew: an error though the lease has time: %v", c.lock, err)
	}
}

// hold is in the critical section for a time, or until the lease ends. It checks the more often the nearer that is.
func (w *workers) hold(c *call, lease *fairlock.Lease, d time.Duration) {
	for end := time.Now().Add(d); ; {
		at := now()
		if err := lease.Err(); err != nil {
			w.record(c, history.Event{Op: history.Lost, Err: err.Error()})
			w.checkLoss(c, err)
			return
		}
		w.record(c, history.Event{At: at, Op: history.Used})
		left := time.Until(end)
		select {
		case <-w.ending:
			return
		default:
		}
		if left <= 0 {
			return
		}
		timer := time.NewTimer(min(max(lease.Deadline().Sub(w.clock.Now())/4, 500*time.Microsecond), 20*time.Millisecond,
			left))
		select {
		case <-timer.C:
		case <-lease.Done():
		case <-w.ending:
		}
		timer.Stop()
	}
}

func (w *workers) unlock(c *call, lease *fairlock.Lease) {
	deadline := lease.Deadline()
	w.record(c, history.Event{Op: history.Unlock})
	e := history.Event{Op: history.Released}
	switch err := lease.Unlock(context.Background()); {
	case err == nil:
	case errors.Is(err, fairlock.ErrLost):
		e.Op, e.Err = history.NotHeld, err.Error()
		w.checkLoss(c, err)
	default:
		e.Op, e.Err = history.Ambiguous, err.Error()
		if !errors.Is(err, fairlock.ErrUnreachable) || w.clock.Now().Before(deadline) {
			w.complain("%s: Unlock: an error though the lease has time: %v", c.lock, err)
		}
		w.checkLoss(c, err)
	}
	w.record(c, e)
}

// checkLockError complains of an error that the documentation of Lock does not mention.
func (w *workers) checkLockError(ctx context.Context, c *call, try bool, requested int64, err error) {
	late := time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		late = time.Since(end)
	}
	stoodStill := func() bool { return w.stoodStill(requested) }
	switch {
	case late > time.Second && !stoodStill():
		w.complain("%s: Lock returned %v after its ctx had ended: %v", c.lock, late, err)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case !try:
		w.complain("%s: Lock: an error though its ctx has time: %v", c.lock, err)
	case errors.Is(err, fairlock.ErrBusy), errors.Is(err, fairlock.ErrExpired): // the answer came too late
	case !errors.Is(err, fairlock.ErrUnreachable), w.cfg.Calm && !stoodStill(): // it tries for some seconds only
		w.complain("%s: TryLock: %v", c.lock, err)
	}
}

// checkLoss complains if a lease was taken away that nothing can have taken, or has ended by itself that outlasts what
// goes wrong.
func (w *workers) checkLoss(c *call, err error) {
	switch taken := errors.Is(err, fairlock.ErrRevoked); {
	case taken && !w.cfg.Lossy:
		w.complain("%s: a trusted lease was taken: %s: %v", c.lock, c.token, err)
	case !taken && w.cfg.Outlast && !w.stoodStill(c.granted):
		w.complain("%s: a lease has ended that outlasts what goes wrong: %s: %v", c.lock, c.token, err)
	}
}

// stoodStill reports whether this process stood still since then, which may not be known at once.
func (w *workers) stoodStill(since int64) bool {
	time.Sleep(stillness)
	return w.paused.Load() >= since
}

// slowClock is the system's clock, slow by slow thousandths.
type slowClock struct {
	began time.Time
	slow  int
}

// Now is the time by this clock.
func (c slowClock) Now() time.Time {
	d := time.Since(c.began)
	return c.began.Add(d - d*time.Duration(c.slow)/1000)
}

// when is when this clock shows a time.
func (c slowClock) when(t time.Time) time.Time { return c.began.Add(c.real(t.Sub(c.began))) }

// real is how long d of this clock takes.
func (c slowClock) real(d time.Duration) time.Duration { return d * 1000 / time.Duration(1000-c.slow) }

// AfterFunc is time.AfterFunc by this clock.
func (c slowClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return time.AfterFunc(c.real(d), f)
}
