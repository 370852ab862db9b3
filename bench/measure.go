package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/internal/workload"
)

const (
	clients = 8 // of each peer, at most
	waiters = 100
	ttl     = 10 * time.Second
	// In the workload crash: leases are short, and so many locks are left behind.
	crashTTL   = 2 * time.Second
	crashLocks = 8
	// A Lock of a free name that takes longer has stalled.
	stallsAfter = 3 * time.Second
)

// figures are what one cell has measured. A workload has some of them.
type figures struct {
	PerSecond float64 `json:"per_second,omitempty"` // pairs, or handoffs to a waiter
	P50       float64 `json:"p50_us,omitempty"`     // of them
	P99       float64 `json:"p99_us,omitempty"`
	Commands  float64 `json:"commands,omitempty"`      // for each pair or grant; of idle waiters, per second
	ServerCPU float64 `json:"server_cpu_us,omitempty"` // for each pair or grant
	// SameAgain is the share of grants that went to the goroutine that had just released the lock.
	SameAgain float64 `json:"same_again,omitempty"`
	Stalled   bool    `json:"stalled,omitempty"` // a Lock of a free name did not return
	// BeyondTTL is when the next one got the lock of a holder that has crashed, after the end of its TTL.
	BeyondTTL float64 `json:"beyond_ttl_ms,omitempty"`
}

// cell measures one peer on a server, through its proxy.
type cell struct {
	peer     peer
	server   *server
	addr     string // of the server, or of the proxy before it
	prefix   string // of every name; no other cell has it
	slice    time.Duration
	sessions []session
}

func (c *cell) open(n int) error {
	for range n {
		s, err := c.peer.open(c.addr, ttl)
		if err != nil {
			return err
		}
		c.sessions = append(c.sessions, s)
	}
	return nil
}

func (c *cell) close() {
	var all sync.WaitGroup
	for _, s := range c.sessions {
		all.Go(s.close)
	}
	all.Wait()
}

// session is that of the i-th goroutine.
func (c *cell) session(i int) session { return c.sessions[i%len(c.sessions)] }

// own locks a name that only the i-th goroutine uses.
func (c *cell) own(ctx context.Context, i int) (func(context.Context) error, error) {
	return c.session(i).lock(ctx, c.prefix+"-"+strconv.Itoa(i))
}

// warmUp has all goroutines hold a lock at the same time, so that connections, scripts and leases are there.
func (c *cell) warmUp(ctx context.Context, goroutines int) {
	ctx, cancel := context.WithTimeout(ctx, stallsAfter)
	defer cancel()
	var locked, all sync.WaitGroup
	locked.Add(goroutines)
	for i := range goroutines {
		all.Go(func() {
			unlock, err := c.session(i).lock(ctx, c.prefix+"-warm-"+strconv.Itoa(i))
			locked.Done()
			locked.Wait()
			if err == nil {
				_ = unlock(ctx) // what is wrong shows in the measurement
			}
		})
	}
	all.Wait()
}

// pairs measures so many goroutines that lock and unlock free locks.
func (c *cell) pairs(ctx context.Context, goroutines int) (figures, error) {
	if err := c.open(min(goroutines, clients)); err != nil {
		return figures{}, err
	}
	defer c.close()
	c.warmUp(ctx, goroutines)
	w := window{cell: c, ramp: c.slice / 4}
	f, err := w.measure(ctx, goroutines, stallsAfter, workload.Pairs(c.own))
	if errors.Is(err, context.DeadlineExceeded) {
		f.Stalled, err = true, nil
	}
	return f, err
}

// handoffs measures so many goroutines that want one lock.
func (c *cell) handoffs(ctx context.Context, goroutines int, rtt time.Duration) (figures, error) {
	if err := c.open(min(goroutines, clients)); err != nil {
		return figures{}, err
	}
	defer c.close()
	c.warmUp(ctx, goroutines)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var held atomic.Bool
	var last, grants, again atomic.Int64 // the holder; all grants; those to the last holder
	last.Store(-1)
	// All contenders are in the queue when measuring begins. When it ends, those that still wait are told so.
	w := window{cell: c, ramp: 300*time.Millisecond + 20*rtt, over: cancel, count: func() (int64, int64) {
		return grants.Load(), again.Load()
	}}
	f, err := w.measure(ctx, goroutines, 0, workload.Handoffs(func(ctx context.Context, i int) (func(context.Context) error, error) {
		unlock, err := c.session(i).lock(ctx, c.prefix)
		if err != nil {
			return nil, err
		}
		if held.Swap(true) {
			return nil, workload.ErrNotExcluded
		}
		grants.Add(1)
		if last.Swap(int64(i)) == int64(i) {
			again.Add(1)
		}
		return func(ctx context.Context) error {
			held.Store(false)
			return unlock(ctx)
		}, nil
	}))
	if w.ended.Load() && !errors.Is(err, workload.ErrNotExcluded) {
		err = nil // that is the end
	}
	return f, err
}

// window is the time in which a workload is measured: after a ramp, for one slice.
type window struct {
	cell  *cell
	ramp  time.Duration
	over  func()                // is called when the window is over
	count func() (int64, int64) // the grants, and those to the last holder; nil: of pairs
	open  atomic.Bool
	ended atomic.Bool
}

func (w *window) measure(
	ctx context.Context, goroutines int, grace time.Duration, op workload.Operation,
) (figures, error) {
	var us []float64
	var pairs atomic.Int64
	record := func(latency time.Duration) {
		if w.open.Load() {
			pairs.Add(1)
			if latency != workload.Unknown {
				us = append(us, float64(latency.Nanoseconds())/1e3)
			}
		}
	}
	if w.count == nil {
		w.count = func() (int64, int64) { return pairs.Load(), 0 }
	}
	var f figures
	observed := make(chan error, 1)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { observed <- w.watch(watching, &f) }()
	// The workload goes on for longer than the window, so that it is the same to its end.
	length := w.ramp + w.cell.slice + w.cell.slice/4
	if w.over != nil {
		length = time.Minute // over ends it
	}
	err := workload.Measure(ctx, goroutines, length, grace, op, record)
	cancel()
	watched := <-observed
	slices.Sort(us)
	if len(us) > 0 {
		f.P50, f.P99 = us[len(us)/2], us[len(us)*99/100]
	}
	if watched == nil {
		f.PerSecond = float64(len(us)) / w.cell.slice.Seconds()
	}
	if err == nil || w.ended.Load() {
		return f, errors.Join(watched, err)
	}
	return f, err
}

// watch opens the window and closes it, and sees what the server does meanwhile.
func (w *window) watch(ctx context.Context, f *figures) error {
	if err := sleep(ctx, w.ramp); err != nil {
		return err
	}
	before, err := w.cell.server.usage(ctx, w.cell.peer.sends)
	if err != nil {
		return err
	}
	grants, again := w.count()
	w.open.Store(true)
	if err := sleep(ctx, w.cell.slice); err != nil {
		return err
	}
	w.open.Store(false)
	grantsAfter, againAfter := w.count()
	after, err := w.cell.server.usage(ctx, w.cell.peer.sends)
	if n := float64(grantsAfter - grants); n > 0 {
		f.Commands, f.ServerCPU = (after.commands-before.commands)/n, 1e6*(after.cpu-before.cpu)/n
		f.SameAgain = float64(againAfter-again) / n
	}
	w.ended.Store(true)
	if w.over != nil {
		w.over()
	}
	return err
}

// sleep sleeps, and ends early with ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idle measures what waiters cost that wait.
func (c *cell) idle(ctx context.Context, window time.Duration) (f figures, err error) {
	if err := c.open(clients + 1); err != nil {
		return figures{}, err
	}
	defer c.close()
	holder := len(c.sessions) - 1
	lock := func(ctx context.Context, i int) (func(context.Context) error, error) {
		s := c.sessions[i%holder]
		if i == waiters {
			s = c.sessions[holder]
		}
		return s.lock(ctx, c.prefix)
	}
	err = workload.Idle(ctx, waiters, lock, func() error {
		if err := sleep(ctx, time.Second); err != nil { // until all wait
			return err
		}
		before, err := c.server.usage(ctx, c.peer.sends)
		if err != nil {
			return err
		}
		if err := sleep(ctx, window); err != nil {
			return err
		}
		after, err := c.server.usage(ctx, c.peer.sends)
		f.Commands = (after.commands - before.commands) / window.Seconds()
		f.ServerCPU = 1e6 * (after.cpu - before.cpu) / window.Seconds()
		return err
	})
	return f, err
}

// crash measures how long after the end of a TTL a waiter gets the lock of a process that was killed.
func (c *cell) crash(ctx context.Context) (figures, error) {
	if err := c.open(clients); err != nil {
		return figures{}, err
	}
	defer c.close()
	c.warmUp(ctx, crashLocks)
	names := make([]string, crashLocks)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", c.prefix, i)
	}
	holder, err := child{Locks: &lockHolder{Peer: c.peer.name, Addr: c.addr, TTL: crashTTL, Names: names}}.command()
	if err != nil {
		return figures{}, err
	}
	var since []time.Time
	if err := startChild(ctx, holder, &since); err != nil {
		return figures{}, fmt.Errorf("holder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*crashTTL)
	defer cancel()
	var all sync.WaitGroup
	errs, beyond := make([]error, crashLocks), make([]float64, crashLocks)
	for i, name := range names {
		phase := rand.N(300 * time.Millisecond) // of those that poll
		all.Go(func() {
			if errs[i] = sleep(ctx, phase); errs[i] != nil {
				return
			}
			unlock, err := c.session(i).lock(ctx, name)
			beyond[i] = float64((time.Since(since[i]) - crashTTL).Microseconds()) / 1e3
			if err == nil {
				err = unlock(ctx)
			}
			errs[i] = err
		})
	}
	_ = holder.Process.Kill() // before a renewal is due
	_ = holder.Wait()         // it was killed
	all.Wait()
	slices.Sort(beyond)
	return figures{BeyondTTL: (beyond[crashLocks/2-1] + beyond[crashLocks/2]) / 2}, errors.Join(errs...)
}
