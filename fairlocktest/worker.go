package fairlocktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Worker is a process of World.Work. It has a client of its own.
type Worker struct {
	*Client

	clock *LocalClock
	ttl   time.Duration
	rng   *rand.Rand
	ctx   context.Context // ends when the client crashes
}

// errCrashed is the cause of a Worker's ctx.
var errCrashed = errors.New("fairlocktest: the client of this worker has crashed")

// restart is how long it takes to start another process in place of a crashed one.
const restart = time.Second

// Work starts n workers that call f again and again until all faults have ended. It returns when their last calls have
// returned. Each worker is like a process. It has a client with the faults of this run, made from cfg, which must not
// set Name or Clock. When the client crashes, ctx ends. A second after f has returned, another worker takes its place,
// with a new client.
//
// f does under a lock what the code under test does, and calls Busy where that takes time. The error of f is ignored,
// because errors are normal here. Check what has become of the resource, not which calls have returned nil: the code
// may have written before its call failed. Do not call FailNow in f, which runs in goroutines of the workers.
//
// Explore fails if no lease of these workers was lost while it was held, with any seed. See ExploreConfig.AllowNoLoss.
func (w *World) Work(n int, cfg fairlock.Config, f func(ctx context.Context, p *Worker) error) {
	w.t.Helper()
	if cfg.Name != "" || cfg.Clock != nil {
		w.t.Fatalf("fairlocktest: Config.Name and Config.Clock must not be set: each worker gets its own")
	}
	w.tally.working()
	var all sync.WaitGroup
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(w.seed), uint64(i)<<32)) // World.Client uses those below
		p := w.worker(cfg, rng)
		all.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					w.panicked(r)
				}
			}()
			for !w.t.Failed() {
				_ = f(p.ctx, p)
				pause := time.Duration(rng.Int64N(int64(p.ttl / 4)))
				if p.crashed.Load() {
					pause = restart
				}
				if !w.sleep(w.since() + pause) {
					return
				}
				if p.crashed.Load() {
					p = w.worker(cfg, rng)
				}
			}
		})
	}
	all.Wait()
}

// worker starts a process.
func (w *World) worker(cfg fairlock.Config, rng *rand.Rand) *Worker {
	w.t.Helper()
	v := w.client(cfg, true)
	ttl := cfg.TTL
	if ttl == 0 {
		ttl = bounds.DefaultTTL
	}
	return &Worker{Client: v.Client, clock: v.local, ttl: ttl, rng: rng, ctx: v.alive}
}

// Busy sleeps as long as the work under a lock takes, by the clock of the process, which stands still during a pause.
// About every other call lasts one to two times the client's TTL, the others up to a quarter of TTL. So the lease must
// be renewed meanwhile, and can be lost. The seed and the number of the call determine it. If ctx ends first, Busy
// returns its cause. For work that does not stop then, pass context.WithoutCancel(ctx). When the client crashes, Busy
// returns at once in any case. A Worker's calls of Busy must not overlap.
func (p *Worker) Busy(ctx context.Context) error {
	d := time.Duration(p.rng.Int64N(int64(p.ttl / 4)))
	if p.rng.IntN(2) == 0 {
		d = p.ttl + time.Duration(p.rng.Int64N(int64(p.ttl)))
	}
	over := make(chan struct{})
	timer := p.clock.AfterFunc(d, func() { close(over) })
	defer timer.Stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}
