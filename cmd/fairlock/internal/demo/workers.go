package demo

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/history"
	"github.com/fairlock/fairlock-go/token"
)

// clientConfig says what a client of the demo does. It is sent to the client's process, if it has one.
type clientConfig struct {
	Contest
	Process   int
	Client    string
	Lock      string
	Workers   int
	TTL       time.Duration
	WaiterTTL time.Duration
	Hold      time.Duration
	Redis     string // URL; empty if the client shares this process
}

// workers are the workers of one client. Each locks, holds and unlocks the lock, again and again.
type workers struct {
	clientConfig
	clock  clock
	emit   func(history.Event)
	client *fairlock.Client
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	calls  atomic.Int64

	byGoroutine sync.Map // uint64 to *call, of those in Lock
	byToken     sync.Map // token.Token to *call, of those that hold the lock

	mu      sync.Mutex
	wanted  order         // guarded by mu: what the next worker that asks is to do, if it is to do anything
	release chan struct{} // guarded by mu: closed when that worker is to let go
}

// call is one acquisition. Its fields belong to the worker's goroutine.
type call struct {
	id, worker, weight int
	token              token.Token
	ticket             uint64
}

// startWorkers starts a client's workers on rdb. They report to emit until stop is called.
func startWorkers(rdb fairlock.Redis, cfg clientConfig, clock clock, emit func(history.Event)) (*workers, error) {
	w := &workers{clientConfig: cfg, clock: clock, emit: emit}
	client, err := fairlock.New(rdb, fairlock.Config{
		Name: cfg.Client, TTL: cfg.TTL, WaiterTTL: cfg.WaiterTTL, Logger: slog.New(slog.DiscardHandler), Trace: w.trace(),
	})
	if err != nil {
		return nil, err
	}
	w.client = client
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	for i := range cfg.Workers {
		w.tasks.Go(func() { w.work(ctx, i) })
	}
	return w, nil
}

// keep lets the next worker that asks keep what it is granted until letGo.
func (w *workers) keep(all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted, w.release = keeping(all), make(chan struct{})
}

// letGo ends keep.
func (w *workers) letGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = ""
	if w.release != nil {
		close(w.release)
		w.release = nil
	}
}

// stop ends the workers: holders release, waiters leave. It returns once they are gone.
func (w *workers) stop() {
	w.cancel()
	w.tasks.Wait()
	_ = w.client.Close() // never fails
}

// record records an event of a call, which happens now if it has no time.
func (w *workers) record(c *call, e history.Event) {
	e.Process, e.Worker, e.Call, e.Lock = w.Process, c.worker, c.id, w.Lock
	if c.token != (token.Token{}) {
		e.Token = c.token.Text() // all that could be done with it is to disturb a demo
	}
	if e.At == 0 {
		e.At = w.clock.now()
	}
	w.emit(e)
}

// trace records what Lock does not return. Queued and Granted are called in the goroutine that is in Lock.
func (w *workers) trace() *fairlock.Trace {
	caller := func(t token.Token, ticket uint64) *call {
		v, _ := w.byGoroutine.Load(goroutine())
		c := v.(*call)
		c.token, c.ticket = t, ticket
		return c
	}
	return &fairlock.Trace{
		Queued: func(i fairlock.QueuedInfo) {
			w.record(caller(i.Token, i.Ticket), history.Event{Op: history.Queued, Ticket: i.Ticket})
		},
		Granted: func(i fairlock.GrantedInfo) { w.byToken.Store(i.Token, caller(i.Token, i.Ticket)) },
		Renewed: func(i fairlock.RenewedInfo) {
			if c, ok := w.byToken.Load(i.Token); ok && i.Err == nil {
				w.record(c.(*call), history.Event{Op: history.Renewed, Until: w.clock(i.Deadline)}) // the call does not change any more
			}
		},
	}
}

// goroutine is the number of the calling goroutine.
func goroutine() uint64 {
	var text [64]byte
	fields := bytes.Fields(text[:runtime.Stack(text[:], false)])
	n, _ := strconv.ParseUint(string(fields[1]), 10, 64) // "goroutine 7 [running]:"
	return n
}

func (w *workers) work(ctx context.Context, worker int) {
	for ctx.Err() == nil {
		c := &call{id: int(w.calls.Add(1)), worker: worker}
		if err := w.turn(ctx, c); err != nil && ctx.Err() == nil {
			w.record(c, history.Event{Op: trouble, Err: err.Error()})
			sleep(ctx, 100*time.Millisecond)
		}
		w.byToken.Delete(c.token)
		sleep(ctx, about(w.Hold))
	}
}

// turn locks, holds and unlocks the lock.
func (w *workers) turn(ctx context.Context, c *call) error {
	weight, release := w.task()
	c.weight = weight
	w.byGoroutine.Store(goroutine(), c)
	defer w.byGoroutine.Delete(goroutine())
	w.record(c, history.Event{Op: history.Request, Weight: weight})
	lease, err := w.acquire(ctx, w.client, w.Lock, weight)
	if err != nil {
		w.record(c, history.Event{Op: history.Failed, Err: err.Error()})
		return err
	}
	w.record(c, history.Event{Op: history.Granted, Fence: lease.Fence(), Ticket: c.ticket, Until: w.clock(lease.Deadline())})
	w.hold(ctx, c, lease, release)
	return w.unlock(ctx, c, lease)
}

// hold does what one does under a lock, and keeps it until release if there is one.
func (w *workers) hold(ctx context.Context, c *call, lease *fairlock.Lease, release <-chan struct{}) {
	ctx, cancel := lease.Context(ctx)
	defer cancel()
	if release != nil {
		w.record(c, history.Event{Op: keeps, Weight: c.weight})
		select {
		case <-release:
		case <-ctx.Done():
		}
	}
	sleep(ctx, about(w.Hold))
}

// task says what a worker is to ask for, and until when to keep it, if it is to.
func (w *workers) task() (weight int, release <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	weight = w.weight()
	if w.wanted == "" {
		return weight, nil
	}
	if w.wanted == orderKeepAll {
		weight = w.capacity()
	}
	w.wanted = ""
	return weight, w.release
}

func (w *workers) unlock(ctx context.Context, c *call, lease *fairlock.Lease) error {
	if lost := lease.Err(); lost != nil {
		w.record(c, history.Event{Op: history.Lost, Err: lost.Error()})
		return nil //nolint:nilerr // it is recorded, and there is nothing to unlock
	}
	w.record(c, history.Event{Op: history.Unlock})
	err := lease.Unlock(ctx)
	switch {
	case err == nil:
		w.record(c, history.Event{Op: history.Released})
	case errors.Is(err, fairlock.ErrLost):
		w.record(c, history.Event{Op: history.NotHeld, Err: err.Error()})
	default:
		w.record(c, history.Event{Op: history.Ambiguous, Err: err.Error()})
	}
	return err
}

// about is d, give or take a half: turns of equal length would always fall to the same workers in the same order.
func about(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
