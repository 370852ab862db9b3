package fairlock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// acquire asks, and waits unless it only tries, until the lock is granted or there is a reason to give up.
func (l lock) acquire(ctx context.Context, op string, try bool) (*Lease, error) {
	if err := l.check(ctx); err != nil {
		return nil, l.wrap(op, err)
	}
	t, err := token.New(l.client.cfg.Name)
	if err != nil {
		return nil, l.wrap(op, err)
	}
	w := &waiter{lock: l, token: &lua.Leaving{Token: t}, began: l.client.clock.Now(), signal: make(chan struct{}, 1)}
	if err := l.client.join(w); err != nil {
		return nil, l.wrap(op, err)
	}
	defer l.client.part(w)
	var lease *Lease
	if try {
		lease, err = w.try(ctx)
	} else {
		lease, err = w.wait(ctx)
	}
	return lease, l.wrap(op, err)
}

// try asks once. An answer that comes too late to be believed is given back.
func (w *waiter) try(ctx context.Context) (*Lease, error) {
	lease, err := w.request(ctx, true)
	if lease != nil {
		return lease, nil
	}
	if err == nil {
		err = lost(ErrExpired)
	}
	w.forget()
	return nil, err
}

// wait asks, sleeps until it is told of the lock or told to ask, and asks again.
func (w *waiter) wait(ctx context.Context) (*Lease, error) {
	var pause backoff
	for {
		lease, err := w.request(ctx, false)
		if lease != nil {
			return lease, nil
		}
		switch {
		case err == nil:
			pause = backoff{}
		case w.ticket != 0 && transient(err) && w.client.life.Err() == nil:
			if ctx.Err() != nil { // since the answer came
				return nil, w.giveUp(ended(ctx))
			}
			w.client.log.DebugContext(ctx, "waiter will ask again", "lock", w.name, "token", w.token.Token, "err", err)
			w.askAfter(pause.next())
		default:
			return nil, w.giveUp(err)
		}
		lease, err = w.sleep(ctx)
		if lease != nil {
			return lease, nil
		}
		if err != nil {
			return nil, w.giveUp(err)
		}
	}
}

// request asks Redis once. It returns a lease, or nil and no error if it is to wait, or was granted a lease that is
// over already (a pause of this process): then it is to ask again.
func (w *waiter) request(ctx context.Context, try bool) (*Lease, error) {
	w.setAsking(true) // also while it waits for its turn
	defer w.setAsking(false)
	gate := w.gate()
	if err := gate.open(ctx, w.client); err != nil {
		return nil, err
	}
	heard := w.client.ear.ups()
	ask := lua.Ask{Token: w.token.Token, TTL: w.ttl, Patience: w.client.cfg.WaiterTTL, Bound: w.maxWaiters, Ticket: w.ticket, Try: try, Weight: w.weight}
	if w.ticket != 0 {
		ask.Bound = 0 // it has been let in before
	}
	w.sent.Add(1)
	sent := w.client.clock.Now()
	r := await(ctx, w.client, 0, func(ctx context.Context, rdb redis.Scripter) (a lua.Answer, err error) {
		resent := false
		for again := true; again; again = err == nil && a.Outcome == lua.Busy && a.More { // busy with the dead
			a, err = w.redis.Via(rdb).Acquire(ctx, ask)
			resent = resent || a.Resent
		}
		a.Resent = resent
		return a, err
	}, func() {
		gate.shut()
		w.sent.Done()
	})
	if r.doubt || r.value.Resent {
		w.token.Unsure = true
	}
	if r.err != nil {
		return nil, r.err
	}
	answer := r.value
	if answer.More {
		w.client.serveQueue(w.lock)
	}
	switch answer.Outcome {
	case lua.Granted:
		return w.granted(answer.Fence, sent, w.ttl, false)
	case lua.Queued:
		w.queued(answer, sent, heard)
		return nil, nil
	case lua.Full:
		return nil, ErrQueueFull
	case lua.Capacity:
		return nil, &CapacityError{Want: w.redis.Capacity(), Have: answer.Capacity}
	default:
		return nil, ErrBusy
	}
}

// granted begins the lease, unless it is over before it has begun.
func (w *waiter) granted(fence uint64, sent time.Time, given time.Duration, handed bool) (*Lease, error) {
	lease, err := newLease(w.lock, w.token, fence, sent, given)
	if err != nil {
		w.token.Unsure = true // Redis believes that it holds the lock
	}
	if errors.Is(err, ErrExpired) {
		w.poke()
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	call(w.client.trace.Granted, GrantedInfo{
		Event: w.event(), Fence: fence, Ticket: uint64(w.ticket), Wait: lease.began.Sub(w.began), Handed: handed,
	})
	return lease, nil
}

// queued notes its place, and sees to it that it will be woken and kept.
func (w *waiter) queued(a lua.Answer, sent time.Time, heard uint64) {
	fresh := w.ticket == 0
	w.ticket = a.Ticket
	fresh = w.confirm(sent, a.Fence) || fresh
	if a.Helps >= 0 {
		w.askAfter(a.Helps)
	}
	if fresh {
		call(w.client.trace.Queued, QueuedInfo{Event: w.event(), Position: a.Position, Ticket: uint64(a.Ticket)})
	}
	w.line.add(w)
	if w.client.ear.listen() != heard {
		// The subscription came up after the question was sent: what was said in between, nobody heard.
		w.client.background(w.line.catchUp)
	}
}

// sleep returns a lease that was handed over, or neither lease nor error when it is time to ask.
func (w *waiter) sleep(ctx context.Context) (*Lease, error) {
	for {
		select {
		case <-w.signal:
		case <-ctx.Done():
			return nil, ended(ctx)
		case <-w.client.life.Done():
			return nil, ErrClosed
		}
		g, since, ask := w.news()
		if g != nil && !w.client.cfg.NoRenewal && w.suffices(since, g.Given) {
			return w.granted(g.Fence, since, g.Given, true)
		}
		if g != nil || ask {
			return nil, nil
		}
	}
}

// suffices reports whether a lease handed over can be used without asking: enough of it is left by the only reckoning
// that is safe. The server granted it after the moment at which it last called this waiter queued, so it lasts at
// least from just before that question was sent. A sixth of TTL is enough to renew in; and at any moment between two
// beats it is left of a patience that is over half of TTL, as the default is.
func (w *waiter) suffices(since time.Time, given time.Duration) bool {
	return believed(since, given, w.ttl).Sub(w.client.clock.Now()) >= w.ttl/6
}
