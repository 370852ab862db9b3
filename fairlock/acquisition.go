package fairlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// grace is how long a Lock whose ctx has ended waits for Redis to forget the waiter; then it returns all the same.
const grace = 25 * time.Millisecond

// acquire asks, and waits unless it only tries, until the lock is granted or there is a reason to give up.
func (l lock) acquire(ctx context.Context, op string, try bool) (*Lease, error) {
	if l.fault != nil {
		return nil, l.wrap(op, l.fault)
	}
	if ctx.Err() != nil {
		return nil, l.wrap(op, ended(ctx))
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

// waiter is one acquisition until its lease begins.
type waiter struct {
	lock
	token  *lua.Leaving
	began  time.Time
	line   *line
	signal chan struct{} // has room for one: something below has changed

	ticket lua.Ticket // of the goroutine that waits; 0 until it was queued

	mu     sync.Mutex
	over   bool       // guarded by mu: nobody waits any more
	asking bool       // guarded by mu: a request is under way
	out    bool       // guarded by mu: it was found to be out of the queue
	since  time.Time  // guarded by mu: just before the last request that found it queued
	floor  uint64     // guarded by mu: the last fence at that time; its own will be above it
	handed *lua.Grant // guarded by mu: what it was told
	ask    bool       // guarded by mu: it should ask
	timer  Timer      // guarded by mu: when asking can help; may be nil
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
		case w.ticket != 0 && transient(err) && ctx.Err() == nil && w.client.life.Err() == nil:
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
	if err := w.line.open(ctx, w.client); err != nil {
		return nil, err
	}
	heard := w.client.ear.ups()
	w.setAsking(true)
	defer w.setAsking(false)
	ask := lua.Ask{Token: w.token.Token, TTL: w.ttl, Patience: w.client.cfg.WaiterTTL, Bound: w.maxWaiters, Ticket: w.ticket, Try: try}
	if w.ticket != 0 {
		ask.Bound = 0 // it has been let in before
	}
	sent := w.client.clock.Now()
	r := await(ctx, w.client, 0, func(rdb redis.Scripter) (lua.Answer, error) { return w.redis.Via(rdb).Acquire(ctx, ask) }, w.line.shut)
	if r.doubt {
		w.token.Unsure = true
	}
	if r.err != nil {
		return nil, r.err
	}
	answer := r.value
	switch answer.Outcome {
	case lua.Granted:
		return w.granted(answer.Fence, sent, w.ttl, false)
	case lua.Queued:
		w.queued(answer, sent, heard)
		return nil, nil
	case lua.Full:
		return nil, ErrQueueFull
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

// news takes what the waiter was told. A grant that is not above the fence at which it was last queued is an earlier
// one, which it lost.
func (w *waiter) news() (g *lua.Grant, since time.Time, ask bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g, ask = w.handed, w.ask
	w.handed, w.ask = nil, false
	if g != nil && g.Fence <= w.floor {
		g = nil
	}
	return g, w.since, ask
}

// hand tells it of a grant, which it may hear of before it hears that it was queued.
func (w *waiter) hand(g lua.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handed = &g
	w.ring()
}

// poke tells it to ask.
func (w *waiter) poke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ask = true
	w.ring()
}

// ring wakes the waiter. The caller holds mu.
func (w *waiter) ring() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// askAfter tells it to ask after d, in place of what was set before.
func (w *waiter) askAfter(d time.Duration) { w.after(d, w.poke) }

// after calls f after d, unless it is over by then, in place of what was set before.
func (w *waiter) after(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	if !w.over {
		w.timer = w.client.clock.AfterFunc(d, f)
	}
}

// confirm notes that a request sent at that time found it queued, and the last fence then. It reports whether it had
// been out of the queue.
func (w *waiter) confirm(sent time.Time, fence uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.out
	w.out = false
	if sent.After(w.since) {
		w.since = sent
	}
	w.floor = max(w.floor, fence)
	return out
}

// dropped notes that it is out of the queue, and has it ask for its place again.
func (w *waiter) dropped() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out, w.ask = true, true
	w.ring()
}

func (w *waiter) setAsking(asking bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking = asking
}

// deaf reports whether it waits and has not heard of a grant.
func (w *waiter) deaf() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over && !w.asking && w.handed == nil
}

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
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// leave takes it out of the queue, and gives back what it was granted in the meantime. It waits for its question that
// is still under way, and tries for as long as Redis could remember it, or once if the client is closed.
func (w *waiter) leave() {
	ctx := context.WithoutCancel(w.client.life)
	until := w.client.clock.Now().Add(max(w.ttl, w.client.cfg.WaiterTTL))
	again := w.token.Unsure
	var pause backoff
	for {
		w.line.gate <- struct{}{}
		h, err := w.redis.Leave(ctx, w.token, w.ttl, 0)
		w.line.shut()
		if err == nil {
			w.client.settle(w.lock, w.token, h)
			if !again {
				return
			}
			// A Redis that hung reads what was sent meanwhile in any order: a question may have come after this
			// leave. What is sent now comes after both.
			again = false
			continue
		}
		if !transient(err) || w.client.clock.Now().After(until) || !w.client.pause(pause.next()) {
			w.client.log.Warn("waiter could not leave; its place expires", "lock", w.name, "token", w.token.Token, "err", err)
			return
		}
	}
}

func (w *waiter) event() Event { return Event{Name: w.name, Token: w.token.Token} }

// join registers a waiter before its first request: it may be granted the lock before it hears that it is queued.
func (c *Client) join(w *waiter) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.tasks.Add(1)
	key := w.redis.Key()
	w.line = c.lines[key]
	if w.line == nil {
		w.line = &line{lock: w.lock, gate: make(chan struct{}, 1), waiting: map[*waiter]struct{}{}}
		c.lines[key] = w.line
	}
	w.line.users++
	c.waiters[w.token.Token] = w
	return nil
}

// part forgets a waiter.
func (c *Client) part(w *waiter) {
	w.mu.Lock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	if w.ticket != 0 {
		w.line.remove(w)
	}
	c.mu.Lock()
	delete(c.waiters, w.token.Token)
	if w.line.users--; w.line.users == 0 {
		delete(c.lines, w.redis.Key())
	}
	c.mu.Unlock()
	c.tasks.Done()
}
