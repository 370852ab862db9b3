package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
)

// showWait says on a terminal, from the first second on, who holds the lock and which place in the queue is ours. The
// returned function ends that and wipes it away.
func (r *runner) showWait(ctx context.Context, server view.Server, client string) (stop func()) {
	p := newProgress(os.Stderr)
	if r.try || !p.on {
		return p.clear
	}
	ctx, cancel := context.WithCancel(ctx)
	id := view.ID{Kind: view.Kind(r.kind), Name: r.name}
	var task sync.WaitGroup
	task.Go(func() {
		began := time.Now()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-tick.C:
				if locks, err := server.Look(ctx, view.Most, id); err == nil {
					p.show(fmt.Sprintf("%s: %s", id, standing(locks[0], client, time.Since(began))))
				}
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		task.Wait()
		p.clear()
	}
}

// standing says where we stand.
func standing(l view.Lock, client string, waited time.Duration) string {
	text := fmt.Sprintf("waiting for %v", waited.Round(time.Second))
	ours := func(w view.Waiter) bool { return w.Token.Client() == client }
	if i := slices.IndexFunc(l.Waiters, ours); i >= 0 {
		text += fmt.Sprintf(", place %d of %d", i+1, l.Waiting)
	}
	if len(l.Holders) > 0 && l.Holders[0].Token.Client() != "" {
		text += ", held by " + l.Holders[0].Token.Client()
	}
	return text
}
