package demo

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// role is what a client of the demo is to do. It travels to the client's process, if it has one.
type role struct {
	Contest
	Client   string
	Lock     string
	Workers  int
	TTL      time.Duration
	Patience time.Duration
	Hold     time.Duration
	Redis    string // URL; empty if the client shares this process
}

// contender is one client of the demo: its workers take the lock, again and again, in turn with everybody else's.
type contender struct {
	role
	clock  func() int64
	emit   func(report)
	client *fairlock.Client
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	wanted  order         // guarded by mu: what the next worker that asks is to do, if it is to do anything
	release chan struct{} // guarded by mu: closed when that worker is to let go
}

// contend starts a client's workers on rdb. They report to emit until stop is called.
func contend(rdb fairlock.Redis, r role, clock func() int64, emit func(report)) (*contender, error) {
	c := &contender{role: r, clock: clock, emit: emit}
	client, err := fairlock.New(rdb, fairlock.Config{
		Name: r.Client, TTL: r.TTL, WaiterTTL: r.Patience, Logger: slog.New(slog.DiscardHandler),
		Trace: &fairlock.Trace{Queued: c.queued, Left: c.left},
	})
	if err != nil {
		return nil, err
	}
	c.client = client
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for range r.Workers {
		c.tasks.Go(func() { c.work(ctx) })
	}
	return c, nil
}

// keep has the next worker that asks keep what it is granted until letGo.
func (c *contender) keep(all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted, c.release = keeping(all), make(chan struct{})
}

// letGo ends keep.
func (c *contender) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = ""
	if c.release != nil {
		close(c.release)
		c.release = nil
	}
}

// stop ends the workers: who holds releases, who waits leaves. It returns once they are gone.
func (c *contender) stop() {
	c.cancel()
	c.tasks.Wait()
	_ = c.client.Close() // never fails
}
