package demo

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
	"github.com/fairlock/fairlock-go/fairlock"
)

const (
	glance = 100 * time.Millisecond // between looks at the lock
	settle = 500 * time.Millisecond // after which what a process reports has arrived
	spare  = 20                     // judging while it runs takes at most one part in so many of the time
)

// observer sees what is to be shown: the lock's state, by asking Redis, and what the recorder has.
type observer struct {
	cfg  Config
	rec  *recorder
	cast *cast

	mu      sync.Mutex
	state   fairlock.State // guarded by mu
	seen    int64          // guarded by mu: when the state came, ns
	fault   error          // guarded by mu: why there is no newer state
	verdict judge.Verdict  // guarded by mu: on all but the last moments
}

// look keeps the state new until ctx ends.
func (o *observer) look(ctx context.Context) {
	client, err := fairlock.New(o.cast.rdb, fairlock.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return // the contenders report it
	}
	defer func() { _ = client.Close() }()
	for ctx.Err() == nil {
		state, err := o.cfg.inspect(ctx, client, o.cast.lock)
		o.mu.Lock()
		if o.fault = err; err == nil {
			o.state, o.seen = state, o.rec.clock()
		}
		o.mu.Unlock()
		sleep(ctx, glance)
	}
}

// weigh keeps the verdict new until ctx ends. The last moments are left out: a grant may have been reported, and the
// release before it not yet.
func (o *observer) weigh(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		verdict := o.rec.verdict(o.rec.clock() - int64(settle))
		o.mu.Lock()
		o.verdict = verdict
		o.mu.Unlock()
		sleep(ctx, max(2*glance, spare*time.Since(began)))
	}
}
