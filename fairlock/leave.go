package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/lua"
)

// grace is how long a Lock whose ctx has ended waits for Redis to forget the waiter; then it returns all the same.
const grace = 25 * time.Millisecond

// giveUp ends the waiting because of err.
func (w *waiter) giveUp(err error) error {
	call(w.client.trace.Left, LeftInfo{Event: w.event(), Wait: w.client.clock.Now().Sub(w.began), Err: err})
	w.forget()
	return err
}

// forget has Redis forget the waiter, if it may know of it. It waits a moment for that, so that a caller who looks
// finds nothing.
func (w *waiter) forget() {
	if w.ticket == 0 && !w.token.Unsure {
		return
	}
	done := make(chan struct{})
	w.client.background(func() {
		defer close(done)
		w.leave()
	})
	over := make(chan struct{})
	timer := w.client.clock.AfterFunc(grace, func() { close(over) })
	defer timer.Stop()
	select {
	case <-done:
	case <-over:
	}
}

// leave takes it out of the queue, and gives back what it was granted in the meantime. It waits for its question that
// is still under way, and tries for as long as Redis could remember it, or once if the client is closed; then the first
// who gets no answer speaks for all. A question that may arrive later still is refused then.
func (w *waiter) leave() {
	ctx := context.WithoutCancel(w.client.life)
	until := w.client.clock.Now().Add(max(w.ttl, w.client.cfg.WaiterTTL))
	var pause backoff
	w.sent.Wait()
	for {
		gate := w.gate()
		gate <- struct{}{}
		h, err := lua.Handover{}, ErrClosed
		if !w.client.mute.Load() {
			h, err = w.redis.Leave(ctx, w.token, w.ttl, w.client.burial(w.token))
		}
		if err != nil && !refused(err) && w.client.life.Err() != nil {
			w.client.mute.Store(true)
		}
		gate.shut()
		if err == nil {
			w.client.settle(w.lock, h)
			return
		}
		if !transient(err) || w.client.clock.Now().After(until) || !w.client.pause(pause.next()) {
			w.client.log.Warn("waiter could not leave; its place expires", "lock", w.name, "token", w.token.Token, "err", err)
			return
		}
	}
}
