package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/internal/tools/workload"
)

const (
	clients = 8 // of each peer, at most
	waiters = 100
	ttl     = 10 * time.Second
	// In the workload crash, leases are short, and crashLocks locks are left behind.
	crashTTL   = 2 * time.Second
	crashLocks = 8
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
	Stalled   int     `json:"stalled,omitempty"` // goroutines that wanted free locks, and got none in the whole window
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
	ctx, cancel := context.WithTimeout(ctx, crashTTL)
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

// pairs measures goroutines that lock and unlock free locks.
func (c *cell) pairs(ctx context.Context, goroutines int) (figures, error) {
	if err := c.open(min(goroutines, clients)); err != nil {
		return figures{}, err
	}
	defer c.close()
	c.warmUp(ctx, goroutines)
	var count atomic.Int64
	moved := make([]atomic.Bool, goroutines)
	w := window{cell: c, ramp: c.slice / 4, count: func() (int64, int64) { return count.Load(), 0 }}
	pair := workload.Pairs(c.own)
	f, err := w.measure(ctx, goroutines, func(ctx context.Context, i int) (time.Duration, error) {
		took, err := pair(ctx, i)
		if err == nil {
			count.Add(1)
			moved[i].Store(moved[i].Load() || w.open.Load())
		}
		return took, err
	})
	for i := range moved {
		if !moved[i].Load() {
			f.Stalled++
		}
	}
	return f, err
}

// handoffs measures goroutines that contend for one lock.
func (c *cell) handoffs(ctx context.Context, goroutines int, rtt time.Duration) (figures, error) {
	if err := c.open(min(goroutines, clients)); err != nil {
		return figures{}, err
	}
	defer c.close()
	c.warmUp(ctx, goroutines)
	var held atomic.Bool
	var last, grants, again atomic.Int64 // the holder; all grants; those to the last holder
	last.Store(-1)
	// All contenders are in the queue when measuring begins.
	w := window{cell: c, ramp: 300*time.Millisecond + 20*rtt,
		count: func() (int64, int64) { return grants.Load(), again.Load() }}
	return w.measure(ctx, goroutines, workload.Handoffs(func(ctx context.Context, i int) (func(context.Context) error,
		error) {
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
}

// window is the time in which a workload is measured: after a ramp, for one slice. The workload goes on until the
// window is closed. What is under way then is cancelled.
type window struct {
	cell  *cell
	ramp  time.Duration
	count func() (grants, again int64) // until now; again are those to the last holder
	open  atomic.Bool
	ended atomic.Bool
}

// tooLong ends a workload that does not end.
const tooLong = time.Minute

func (w *window) measure(ctx context.Context, goroutines int, op workload.Operation) (figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var f figures
	observed := make(chan error, 1)
	go func() {
		defer cancel()
		observed <- w.watch(ctx, &f)
	}()
	var us []float64
	err := workload.Measure(ctx, goroutines, tooLong, 0, op, func(latency time.Duration) {
		if w.open.Load() && latency != workload.Unknown {
			us = append(us, float64(latency.Nanoseconds())/1e3)
		}
	})
	cancel()
	watched := <-observed
	if !w.ended.Load() || errors.Is(err, workload.ErrNotExcluded) {
		return figures{}, cmp.Or(err, watched)
	}
	slices.Sort(us)
	f.PerSecond = float64(len(us)) / w.cell.slice.Seconds()
	if len(us) > 0 {
		f.P50, f.P99 = us[len(us)/2], us[len(us)*99/100]
	}
	return f, watched
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
	holder, _, err := child{Locks: &lockHolder{Peer: c.peer.name, Addr: c.addr, TTL: crashTTL, Names: names}}.command()
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
			switch {
			case err == nil:
				errs[i] = unlock(ctx)
			case ctx.Err() == nil:
				errs[i] = err
			} // else the waiter was not notified that the lock is free: it has waited at least that long
		})
	}
	_ = holder.Process.Kill() // before a renewal is due
	_ = holder.Wait()         // it was killed
	all.Wait()
	slices.Sort(beyond)
	return figures{BeyondTTL: (beyond[crashLocks/2-1] + beyond[crashLocks/2]) / 2}, errors.Join(errs...)
}
