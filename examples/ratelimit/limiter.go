package main

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// limiter lets calls start: all processes together no more than there are permits in any second, in the order in which
// they have asked.
type limiter struct{ permits fairlock.Semaphore }

func newLimiter(client *fairlock.Client, name string, perSecond int) limiter {
	// The TTL counts only if a process crashes, or cannot give a permit back: then the permit comes free 2 s after its
	// grant. So the limit holds even then, unless the process has learned of the grant a second late.
	return limiter{client.Semaphore(name, perSecond, fairlock.WithTTL(2*time.Second), fairlock.WithMinHold(time.Second))}
}

// do waits in line for a permit and calls f. The permit is given back while f runs, and comes free when the second is
// over: so only the starts are limited, and a call may take longer than a second. The second begins when this process
// has learned of its grant, so slow replies of Redis bring no two starts closer together.
//
// ctx bounds the wait. An error of do is one of f, or f was not called.
func (l limiter) do(ctx context.Context, f func(context.Context) error) error {
	lease, err := l.permits.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	released := make(chan struct{})
	go func() {
		defer close(released)
		_ = lease.Unlock(ctx) // after an error, the permit comes free when its TTL ends: later, and never earlier
	}()
	defer func() { <-released }() // the caller may close the client then
	return f(ctx)
}
