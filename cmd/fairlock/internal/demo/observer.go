package demo

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

const (
	glance = 100 * time.Millisecond // between looks at the lock
	settle = 500 * time.Millisecond // after which what a process reports has arrived
	spare  = 20                     // checking while it runs takes at most one part in so many of the time
)

// observer sees what is to be shown: the lock's state, by asking Redis, and what the recorder has.
type observer struct {
	cfg   Config
	rec   *recorder
	setup *setup

	mu     sync.Mutex
	state  fairlock.State // guarded by mu
	seen   int64          // guarded by mu: when the state came, ns
	fault  error          // guarded by mu: why there is no newer state
	result Result         // guarded by mu: of all but the last moments
}

// look keeps the state new until ctx ends.
func (o *observer) look(ctx context.Context) {
	client, err := fairlock.New(o.setup.rdb, fairlock.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return // the clients report it
	}
	defer func() { _ = client.Close() }()
	for ctx.Err() == nil {
		state, err := o.cfg.inspect(ctx, client, o.setup.lock)
		o.mu.Lock()
		if o.fault = err; err == nil {
			o.state, o.seen = state, o.rec.clock.now()
		}
		o.mu.Unlock()
		sleep(ctx, glance)
	}
}

// check keeps the result new until ctx ends. The last moments are left out: a grant may have been reported, and the
// release before it not yet.
func (o *observer) check(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		result := o.rec.result(o.rec.clock.now() - int64(settle))
		o.mu.Lock()
		o.result = result
		o.mu.Unlock()
		sleep(ctx, max(2*glance, spare*time.Since(began)))
	}
}
