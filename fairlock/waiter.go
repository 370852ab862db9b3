package fairlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// waiter is one acquisition, until its lease begins or it leaves:
//
//	           queued
//	┌────────┐ ───────────────────────────────────▶ ┌─────────┐
//	│ asking │                                      │ waiting │
//	└────────┘ ◀─────────────────────────────────── └─────────┘
//	  │    │     another request can help, or          │    │
//	  │    │     a grant that cannot be trusted        │    │
//	  │    │                                           │    │
//	  │    └─ granted ─────▶ granted ◀── notified ─────┘    │
//	  └────── error ───────▶  left   ◀── ctx ends ──────────┘
//
// Only the goroutine of run changes it. Other goroutines post events: the subscriber and releases of this client post
// grants, localWaiters what a heartbeat found, timers that it is time to ask.
type waiter struct {
	client *Client
	lock   *lock
	local  *localWaiters
	token  token.Token
	weight int
	try    bool
	began  time.Time

	state     waiterState
	lease     *Lease                   // of granted
	err       error                    // of left
	ambiguous bool                     // Redis may grant it the lock, or has, though no lease begins
	abandoned *dispatch.AbandonedError // the acquire that was in flight when ctx ended

	ticket        lua.Ticket    // 0 until it was queued
	dropped       bool          // a heartbeat found that it is not queued any more
	asksAlways    bool          // it has asked again, and perhaps was queued anew: an old notification may still come
	askedAt       time.Time     // when the latest acquire was sent
	foundQueuedAt time.Time     // when the latest request was sent that found it queued
	holder        string        // token of a holder, in the latest reply
	holderTTL     time.Duration // of the latest holder that a reply named
	pause         backoff
	timer         Timer // posts an event; may be nil

	signal chan struct{} // holds one value while events is not empty
	mu     sync.Mutex
	events []event // guarded by mu
}

type waiterState int

const (
	asking  waiterState = iota // it sends acquire
	waiting                    // it is queued, and waits for events
	granted
	left
)

// event is what another goroutine tells a waiter.
type event struct {
	kind  eventKind
	grant lua.Grant     // notified
	sent  time.Time     // when the heartbeat was sent that found it
	after time.Duration // askLater: after which another request can help
}

type eventKind int

const (
	notified         eventKind = iota // it was granted the lock
	stillQueued                       // a heartbeat found it queued
	notQueued                         // a heartbeat did not find it queued
	holding                           // a heartbeat found that it was granted the lock before
	notificationLost                  // and the notification did not come
	askLater                          // another request can help after some time
	askNow                            // another request can help
)

// grace is how long a Lock whose ctx has ended waits for Redis to remove the waiter; then it returns all the same.
const grace = 25 * time.Millisecond

// notificationDelay is how long after the reply to a heartbeat a notification may still arrive that was sent before it,
// on another connection.
const notificationDelay = 10 * time.Millisecond

// ticketKept is for how long beyond WaiterTTL Redis surely keeps a queue for which no client sends heartbeats; it is a minute
// less than in docs/protocol.md.
const ticketKept = 9 * time.Minute

// queueKept is for how long beyond WaiterTTL Redis keeps a queue for which no client sends heartbeats.
const queueKept = 11 * time.Minute

// newWaiter registers a waiter before its first request: its grant may arrive before the reply. The caller calls close.
func newWaiter(l *lock, t token.Token, weight int, try bool) *waiter {
	w := &waiter{
		client: l.client, lock: l, token: t, weight: weight, try: try, began: l.client.clock.Now(),
		signal: make(chan struct{}, 1),
	}
	l.client.joinLocal(w)
	return w
}

func (w *waiter) close() {
	w.stopTimer()
	w.local.remove(w)
	w.client.leaveLocal(w)
}

func (w *waiter) run(ctx context.Context) (*Lease, error) {
	for {
		switch w.state {
		case asking:
			w.ask(ctx)
		case waiting:
			w.wait(ctx)
		case granted:
			return w.lease, nil
		case left:
			if !w.try {
				waited := w.client.clock.Now().Sub(w.began)
				call(w.client.trace.Left, LeftInfo{Event: w.event(), Wait: waited, Err: w.err})
			}
			w.leave()
			return nil, w.err
		}
	}
}

func (w *waiter) event() Event { return w.lock.event(w.token, w.weight) }

// ask sends acquire.
func (w *waiter) ask(ctx context.Context) {
	w.stopTimer()
	subscriptions := w.client.subscriber.subscriptions()
	request := lua.Request{
		Token: w.token, WaiterTTL: w.lock.cfg.WaiterTTL, MaxWaiters: w.lock.cfg.MaxWaiters, Ticket: w.ticket,
		Try: w.try, Weight: w.weight,
	}
	if w.ticket != 0 {
		request.Quarantine = w.quarantine()
		w.asksAlways = true
	}
	w.askedAt = w.client.clock.Now()
	reply, err := w.lock.redis.Acquire(ctx, request)
	if reply.Ambiguous { // it may have been queued twice
		w.ambiguous, w.asksAlways = true, true
	}
	if err != nil {
		w.failed(ctx, err)
		return
	}
	w.pause = backoff{}
	w.holder = reply.Holder
	switch reply.Outcome {
	case lua.Granted:
		if reply.More {
			w.client.serveQueue(w.lock)
		}
		w.grant(lua.Grant{Token: w.token, Fence: reply.Fence, Given: w.lock.cfg.TTL}, w.askedAt, false)
	case lua.Queued:
		w.startWaiting(reply, subscriptions)
	case lua.Busy:
		if !reply.More { // else the lock may be free: the script dropped as many expired waiters as it may
			w.quit(ErrBusy)
		}
	case lua.Full:
		w.quit(ErrQueueFull)
	case lua.CapacityDiffers:
		w.quit(&CapacityError{Want: w.lock.redis.Capacity(), Have: reply.Capacity})
	}
}

// quarantine is for how long the lock should be granted to nobody if Redis has lost the ticket: no lease that this client knows
// of lasts longer. It is 0 if Redis may have forgotten the queue because nobody sent heartbeats.
func (w *waiter) quarantine() time.Duration {
	if elapsed(w.foundQueuedAt, w.client.clock.Now()) > w.lock.cfg.WaiterTTL+ticketKept {
		return 0
	}
	return max(w.holderTTL, w.client.longestTTL(w.lock))
}

// elapsed also counts the time in which the machine was suspended, and the monotonic clock may have stood still.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// failed handles the error of an acquire: a waiter that was queued before asks again if that can help.
func (w *waiter) failed(ctx context.Context, err error) {
	switch {
	case lua.OriginOf(err) == lua.Permanent:
		w.quit(err)
	case ctx.Err() != nil:
		errors.As(err, &w.abandoned)
		w.quit(ended(ctx))
	case w.ticket != 0:
		w.client.log.DebugContext(ctx, "waiter will ask again", "lock", w.lock.name, "token", w.token, "err", err)
		w.state = waiting
		w.postAfter(w.pause.next(w.client.share), event{kind: askNow})
	default:
		w.quit(err)
	}
}

// startWaiting handles the reply that it is queued. subscriptions is how often the subscription had come up before the
// request was sent.
func (w *waiter) startWaiting(reply lua.Reply, subscriptions uint64) {
	wasQueued := w.ticket != 0 && !w.dropped
	w.state, w.ticket = waiting, reply.Ticket
	if t, _ := parse(reply.Holder); !t.IsZero() {
		w.holderTTL = t.TTL()
	}
	w.foundQueued(w.askedAt)
	if reply.RetryAfter >= 0 {
		w.postAfter(reply.RetryAfter, event{kind: askNow})
	}
	if !wasQueued {
		call(w.client.trace.Queued, QueuedInfo{Event: w.event(), Position: reply.Position, Ticket: uint64(w.ticket)})
	}
	w.local.add(w, reply.Ticket, w.askedAt)
	if reply.Holder == lua.Quarantined {
		w.local.noteMissed()
	}
	if w.client.subscriber.start() != subscriptions {
		w.state = asking // a notification may have been sent before the subscription was up
	}
}

func (w *waiter) foundQueued(sent time.Time) {
	if sent.After(w.foundQueuedAt) {
		w.foundQueuedAt = sent
	}
	w.dropped = false
}

// wait handles the events that are there, or that come first.
func (w *waiter) wait(ctx context.Context) {
	select {
	case <-w.signal:
	case <-ctx.Done():
		w.quit(ended(ctx))
		return
	}
	var grant lua.Grant // the latest
	for _, e := range w.take() {
		switch e.kind {
		case notified:
			if e.grant.Fence > grant.Fence {
				grant = e.grant
			}
		case stillQueued:
			w.foundQueued(e.sent)
		case notQueued:
			if e.sent.After(w.askedAt) { // else its latest acquire has queued it again
				w.dropped, w.state = true, asking
			}
		case holding:
			if e.sent.After(w.askedAt) {
				w.postAfter(notificationDelay, event{kind: notificationLost})
			}
		case notificationLost:
			if grant.Fence == 0 {
				w.notificationLost()
				w.state = asking
			}
		case askLater:
			w.postAfter(e.after, event{kind: askNow})
		case askNow:
			w.state = asking
		}
	}
	if grant.Fence == 0 {
		return
	}
	w.state = asking
	now := w.client.clock.Now()
	since := elapsed(w.foundQueuedAt, now)
	if !w.lock.cfg.NoRenewal && !w.asksAlways && w.suffices(grant, since) {
		w.grant(grant, now.Add(-since), true)
	}
}

// suffices reports whether a grant can be used without asking Redis. The lease began after the latest request that found
// the waiter queued was sent, so it is trusted from then on. TTL/6 must be left of it, for a renewal.
func (w *waiter) suffices(g lua.Grant, since time.Duration) bool {
	return g.Given-safetyMargin(w.lock.cfg.TTL)-since >= w.lock.cfg.TTL/6
}

func (w *waiter) notificationLost() {
	c := w.client
	c.log.Warn("notification lost; a heartbeat found the grant", "lock", w.lock.name, "token", w.token)
	call(c.trace.NotificationLost, w.event())
	c.subscriber.replace()
}

// grant begins the lease. If it has ended already, because this process was paused, the waiter asks again.
func (w *waiter) grant(g lua.Grant, sent time.Time, handoff bool) {
	lease, err := newLease(w.lock, w.token, w.weight, g.Fence, sent, g.Given)
	if err != nil {
		w.ambiguous = true // in Redis it holds the lock
	}
	switch {
	case err == nil:
		lease.ambiguous = w.ambiguous
		w.state, w.lease = granted, lease
		call(w.client.trace.Granted, GrantedInfo{
			Event: w.event(), Fence: g.Fence, Ticket: uint64(w.ticket), Wait: lease.began.Sub(w.began), Handoff: handoff,
		})
	case errors.Is(err, ErrExpired) && !w.try:
		w.state = asking
	default:
		w.quit(err)
	}
}

// quit ends the acquisition because of err, and names a holder if that can be of interest.
func (w *waiter) quit(err error) {
	w.state, w.err = left, err
	t, client := parse(w.holder)
	if !t.IsZero() && (errors.Is(err, ErrBusy) || errors.Is(err, context.DeadlineExceeded)) {
		w.err = &HeldError{Holder: client, Err: err}
	}
}

// leave has Redis remove the waiter, if it may know of it. It waits a moment for that, so that a caller who looks then
// finds nothing.
func (w *waiter) leave() {
	if w.ticket == 0 && !w.ambiguous && !lua.Aborted(w.err) {
		return
	}
	done := make(chan struct{})
	w.client.background(func() {
		defer close(done)
		w.sendLeave()
	})
	over, cancel := w.client.withTimeout(context.Background(), grace)
	defer cancel()
	select {
	case <-done:
	case <-over.Done():
	}
}

// sendLeave removes the waiter from the queue, and releases the lock if it was granted meanwhile. It tries for as long
// as the waiter can stand in the queue or hold the lock, or once if the client is closed.
func (w *waiter) sendLeave() {
	l, c := w.lock, w.client
	if w.abandoned != nil {
		<-w.abandoned.Over // it must not arrive after the leave, which has its whole time then
	}
	ctx, cancel := c.withTimeout(c.leaves, l.cfg.TTL+l.cfg.WaiterTTL+queueKept)
	defer cancel()
	err := c.retry(ctx, func() error {
		h, err := l.redis.Leave(ctx, w.token, w.ambiguous)
		c.handoff(l, h)
		return err
	})
	if err != nil {
		c.log.Warn("waiter could not leave; its ticket expires", "lock", l.name, "token", w.token, "err", err)
	}
}

// post tells the waiter of an event.
func (w *waiter) post(e event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// postAfter posts an event after d, instead of the one that was to be posted before.
func (w *waiter) postAfter(d time.Duration, e event) {
	w.stopTimer()
	w.timer = w.client.clock.AfterFunc(d, func() { w.post(e) })
}

func (w *waiter) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *waiter) take() []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}
