package fairlock

import (
	"context"
	"errors"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/hold"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// waiter is one acquisition, until its lease begins or it leaves:
//
//	              queued
//	┌───────────┐ ─── or Redis cannot serve it now ──▶ ┌─────────┐
//	│ acquiring │                                      │ waiting │
//	└───────────┘ ◀─────────────────────────────────── └─────────┘
//	  │       │     another acquire can help, or          │    │
//	  │       │     a grant that cannot be trusted        │    │
//	  │       │                                           │    │
//	  │       └─ granted ─────▶ granted ◀── notified ─────┘    │
//	  └────────── error ──────▶  left   ◀── ctx ends ──────────┘
//
// Only the goroutine of run changes it. Other goroutines post events to its localWaiter: the subscriber and releases of
// this client post grants, the queue posts what a heartbeat has found, and timers post that it is time to send acquire.
type waiter struct {
	*localWaiter

	rt     *runtime
	task   task.Task       // of the operation
	caller context.Context // of the operation, for Trace
	lock   *lock
	try    bool
	began  time.Time

	state     waiterState
	lease     *Lease                   // set when it is granted
	err       error                    // set when it has left: why
	ambiguous bool                     // a copy of an acquire may still reach Redis, or Redis has granted the lock and no lease began
	abandoned *dispatch.AbandonedError // the acquire that was in flight when ctx ended

	dropped     bool          // a heartbeat found that it is not queued any more
	acquireSent time.Time     // when the latest acquire was sent
	found       queuedSince   // by the latest request that found it queued
	holder      string        // token of a holder, in the latest reply
	free        time.Duration // of a try: after which a lease ends
	failure     error         // why the latest acquire had no reply, or Redis refused it; nil if it had one
	failing     time.Time     // when the first acquire was sent of those that have failed since the latest that did not
	pause       call.Backoff
	timer       Timer // posts an event; may be nil
	timerAt     time.Time
}

// queuedSince is what a reply says that found a waiter queued: a grant with a fence above last was given after that, and
// so after the request was sent. Also after Redis has lost data, an earlier grant has a lower fence.
type queuedSince struct {
	sent time.Time // when the request was sent
	last uint64    // the lock's last number in the reply
}

type waiterState int

const (
	acquiring waiterState = iota // it sends acquire
	waiting                      // it is queued, or Redis cannot serve it now, and it waits for events
	granted
	left
)

// notificationDelay is how long after the reply to a heartbeat a notification may still arrive that was sent before it,
// on another connection.
const notificationDelay = 10 * time.Millisecond

// newWaiter returns a waiter that receives events from now on. The caller calls close.
func newWaiter(caller context.Context, l *lock, t task.Task, tok token.Token, try bool) *waiter {
	return &waiter{
		localWaiter: l.queues.join(l, tok), rt: l.rt, task: t, caller: caller, lock: l, try: try, began: l.rt.clock.Now(),
	}
}

func (w *waiter) close() {
	w.stopTimer()
	w.lock.queues.leave(w.localWaiter)
}

func (w *waiter) run(ctx context.Context) (*Lease, error) {
	for {
		switch w.state {
		case acquiring:
			w.acquire(ctx)
		case waiting:
			w.wait(ctx)
		case granted:
			return w.lease, nil
		case left:
			waited := w.rt.clock.Now().Sub(w.began)
			emit(w.rt.trace.Left, LeftInfo{Event: w.event(), Wait: waited, Err: w.err, Queued: w.ticket != 0})
			w.leave()
			return nil, w.err
		}
	}
}

func (w *waiter) event() Event { return w.lock.event(w.caller, w.token) }

// acquire sends acquire, and handles the reply.
func (w *waiter) acquire(ctx context.Context) {
	w.stopTimer()
	subscription := w.lock.subscriber.up()
	r := script.Request{
		Token: w.token, WaiterTTL: w.lock.cfg.WaiterTTL, MaxWaiters: w.lock.settings.maxWaiters, Ticket: w.ticket,
		Try: w.try,
	}
	w.acquireSent = w.rt.clock.Now()
	reply, err := w.lock.redis.Acquire(ctx, r)
	w.ambiguous = w.ambiguous || reply.Ambiguous
	if err != nil {
		w.failed(ctx, err)
		return
	}
	w.pause, w.failure = call.Backoff{}, nil
	w.holder = reply.Holder
	w.comparePermits()
	switch reply.Outcome {
	case script.Granted:
		if reply.More {
			w.lock.queues.serve(w.task, w.lock)
		}
		w.grant(script.Grant{Token: w.token, Fence: reply.Fence, Given: w.token.TTL()}, w.acquireSent, false)
	case script.Queued:
		w.startWaiting(reply, subscription)
	case script.Busy:
		w.free = reply.RetryAfter
		if !reply.More { // else the lock may be free: the script dropped as many expired waiters as it may
			w.quit(ErrBusy)
		}
	case script.Full:
		w.quit(&QueueFullError{Waiting: reply.Position, Limit: w.lock.settings.maxWaiters})
	case script.Resized:
		w.quit(&CapacityError{Want: w.token.Weight(), Have: reply.Permits})
	}
}

// comparePermits warns, once for each lock, that a holder has brought another number of permits.
func (w *waiter) comparePermits() {
	holder, client := parse(w.holder)
	if tokens.Permits(holder.Text()) == tokens.Permits(w.token.Text()) || holder.IsZero() || !w.rt.firstTime(w.lock.redis.Key()) {
		return
	}
	w.rt.log.Warn("the semaphore is used with two numbers of permits: requests with the smaller one delay all others",
		"lock", w.lock.name, "permits", tokens.Permits(w.token.Text()), "others", tokens.Permits(holder.Text()), "holder", client)
}

// failed handles the error of an acquire: the waiter sends acquire again if that can help.
func (w *waiter) failed(ctx context.Context, err error) {
	errors.As(err, &w.abandoned)
	if call.OriginOf(err) == call.Permanent {
		w.quit(err)
		return
	}
	if w.failure == nil {
		w.failing = w.acquireSent
	}
	w.failure = call.Latest(ctx, w.failure, err)
	if ctx.Err() != nil {
		w.quitEnded(ctx)
		return
	}
	w.rt.log.DebugContext(ctx, "waiter will send acquire again", "lock", w.lock.name, "token", w.token, "err", err)
	w.state = waiting
	w.postAfter(w.pause.Next(call.Jitter(w.token.Text())), event{kind: acquireNow})
}

// startWaiting handles the reply that it is queued. subscription is the number of the one that was up when the request was sent.
func (w *waiter) startWaiting(reply script.Reply, subscription uint64) {
	w.state = waiting
	w.foundQueued(w.acquireSent, reply.Last)
	if reply.RetryAfter >= 0 {
		w.postAfter(reply.RetryAfter, event{kind: acquireNow})
	}
	if w.ticket == 0 {
		emit(w.rt.trace.Queued, QueuedInfo{Event: w.event(), Position: reply.Position, Ticket: uint64(reply.Ticket)})
	}
	w.queue.add(w.localWaiter, reply.Ticket, w.acquireSent, subscription)
	if w.lock.subscriber.start(w.task) > subscription {
		w.state = acquiring // a notification may have been sent before the subscription was up
	}
}

func (w *waiter) foundQueued(sent time.Time, last uint64) {
	if later := sent.Compare(w.found.sent); later > 0 || later == 0 && last > w.found.last {
		w.found = queuedSince{sent, last}
	}
	w.dropped = false
}

// wait handles the events that are there, or that come first.
func (w *waiter) wait(ctx context.Context) {
	select {
	case <-w.signal:
	case <-ctx.Done():
		w.quitEnded(ctx)
		return
	}
	var grant script.Grant // the latest
	for _, e := range w.take() {
		switch e.kind {
		case notified:
			if e.grant.Fence > grant.Fence {
				grant = e.grant
			}
		case stillQueued:
			w.foundQueued(e.sent, e.last)
		case notQueued:
			if e.sent.After(w.acquireSent) { // else its latest acquire has queued it again
				w.dropped, w.state = true, acquiring
			}
		case holding:
			if e.sent.After(w.acquireSent) {
				w.postAfter(notificationDelay, event{kind: notNotified, sent: e.sent, lost: e.lost})
			}
		case notNotified:
			if grant.Fence == 0 {
				w.notNotified(e)
				w.state = acquiring
			}
		case acquireLater:
			if now := w.rt.clock.Now(); !w.timerAt.After(now) || now.Add(e.after).Before(w.timerAt) { // a sooner end may be known
				w.postAfter(e.after, event{kind: acquireNow})
			}
		case acquireNow:
			w.state = acquiring
		}
	}
	if grant.Fence == 0 {
		return
	}
	w.state = acquiring
	cfg, now := w.lock.cfg, w.rt.clock.Now()
	since := clock.Elapsed(w.found.sent, now) // the grant is trusted from then on
	after := grant.Fence > w.found.last && !w.dropped
	if after && hold.Suffices(grant.Given, since, w.lock.settings.ttl, cfg.WaiterTTL) {
		w.grant(grant, now.Add(-since), true)
	}
}

// notNotified tells of a notification that is lost. None is if the subscription was not up when the lock was granted.
func (w *waiter) notNotified(e event) {
	w.rt.log.Debug("a heartbeat found the grant", "lock", w.lock.name, "token", w.token, "lost", e.lost != 0)
	if e.lost != 0 {
		w.lock.subscriber.missed(e.lost, e.sent)
		emit(w.rt.trace.NotificationLost, w.event())
	}
}

// grant begins the lease. If it has ended already, because this process was paused, the waiter sends
// acquire again.
func (w *waiter) grant(g script.Grant, sent time.Time, handoff bool) {
	lease, err := w.lock.beginLease(hold.Grant{
		Caller: w.caller, Token: w.token, Fence: g.Fence, Given: g.Given, Sent: sent, Handoff: handoff, Ambiguous: w.ambiguous,
	})
	if err != nil {
		w.ambiguous = true // in Redis it holds the lock
	}
	switch {
	case err == nil:
		w.state, w.lease = granted, lease
		lease.granted(GrantedInfo{
			Event: w.event(), Fence: g.Fence, Ticket: uint64(w.ticket), Wait: lease.held.Began.Sub(w.began), Handoff: handoff,
			Queued: w.ticket != 0,
		})
	case errors.Is(err, ErrExpired) && !w.try:
		w.state = acquiring
	default:
		w.quit(err)
	}
}

// quit ends the acquisition because of err, and names a holder if that can be of interest.
func (w *waiter) quit(err error) {
	w.state, w.err = left, err
	t, client := parse(w.holder)
	if !t.IsZero() && (errors.Is(err, ErrWaitTimeout) || errors.Is(err, ErrBusy) || errors.Is(err, context.DeadlineExceeded)) {
		held := &HeldError{Busy: BusyLock, Holder: client, Err: err}
		if held.Released = tokens.FlagsOf(t.Text())&tokens.Released != 0; held.Released {
			held.Free = max(w.free, 0)
		}
		w.err = held
	}
}

// quitEnded is quit because ctx has ended. If no holder is known, the error says what Redis failed with.
func (w *waiter) quitEnded(ctx context.Context) {
	w.quit(errs.Ended(ctx))
	var held *HeldError
	if w.failure != nil && !errors.As(w.err, &held) {
		w.err = &errs.Tried{Err: w.err, Failure: w.failure, Lasted: w.rt.clock.Now().Sub(w.failing)}
	}
}

// leave has Redis remove the waiter, if it may know of it. It waits a moment for that, so that a caller who looks then
// finds nothing.
func (w *waiter) leave() {
	if w.ticket == 0 && !w.ambiguous && !script.Aborted(w.err) {
		return
	}
	done := make(chan struct{})
	leave := func(t task.Task) {
		w.lock.queues.leaver.leave(t, w.lock, script.Leaving{Token: w.token, Tombstone: w.ambiguous}, done)
	}
	if w.abandoned == nil {
		leave(w.task)
	} else {
		w.task.Go(func(t task.Task) {
			<-w.abandoned.Over // it must not arrive after the leave
			leave(t)
		})
	}
	enough, cancel := w.rt.calls.WithTimeout(context.Background(), grace)
	defer cancel()
	select {
	case <-done:
	case <-enough.Done():
	}
}

// postAfter posts an event after d, instead of the one that was to be posted before.
func (w *waiter) postAfter(d time.Duration, e event) {
	w.stopTimer()
	w.timer, w.timerAt = w.rt.clock.AfterFunc(d, func() { w.post(e) }), w.rt.clock.Now().Add(d)
}

func (w *waiter) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timerAt = time.Time{}
	}
}
