package wait

import (
	"context"
	"errors"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// Request is what an acquisition asks for.
type Request struct {
	Token      token.Token
	TTL        time.Duration // of the lease, as it is renewed
	MaxWaiters int           // 0: any number
	MaxLine    int           // of those of its key; 0: any number
	Try        bool          // do not queue
}

// Step is what has happened to a waiter.
type Step struct {
	Kind  Kind
	Reply script.Reply // the latest to an acquire: of Queued it is that reply; of Left it names a holder

	Grant Grant // of Granted

	// Of Left:
	Err     error     // why; nil if Reply is the reason: Busy, Full or Resized
	Failure error     // if ctx has ended: why the latest acquire had no reply, or Redis refused it; nil if it had one
	Failing time.Time // when the first acquire was sent of those that have failed since the latest that did not
}

// Kind is the kind of a Step.
type Kind int

// The kinds.
const (
	Queued           Kind = iota + 1 // it has joined the queue. That happens once, also if it is dropped and comes back
	NotificationLost                 // a heartbeat found that it was granted the lock, and no notification came
	Granted                          // it holds the lock in Redis
	Left                             // it does not go on
)

// Grant is the lock as Redis has given it to a waiter.
type Grant struct {
	Fence     uint64
	Sent      time.Time     // when the request was sent after which Redis gave it: it can be trusted from then on
	Given     time.Duration // for how long
	Handoff   bool          // by a release, without a further request of the waiter
	Ambiguous bool          // an acquire of the token may still reach Redis
	Ticket    script.Ticket // the waiter's; 0: it was never queued
}

// Waiter is one acquisition, until it is granted the lock or leaves:
//
//	              queued
//	┌───────────┐ ─── or Redis cannot serve it now ──▶ ┌─────────┐
//	│ acquiring │                                      │ waiting │
//	└───────────┘ ◀─────────────────────────────────── └─────────┘
//	  │     │ ▲     another acquire can help, or          │    │
//	  │     │ │     a grant that cannot be trusted        │    │
//	  │     │ └── of no use ───┐                          │    │
//	  │     └──── granted ──▶ Granted ◀─── notified ──────┘    │
//	  └────────── error ────▶  Left   ◀─── ctx ends ───────────┘
//
// Only the goroutine that calls its methods changes it. Other goroutines post events to its localWaiter: the subscriber
// and releases of this client post grants, the queue posts what a heartbeat has found, and timers post that it is time
// to send acquire.
type Waiter struct {
	*localWaiter

	task    task.Task // of the operation
	request Request

	waits     bool // for events; else it sends acquire
	step      Step // the next one, with the latest reply; Kind is 0 as long as there is none
	tried     tried
	found     queuedSince // by the latest request that found it queued; zero if a heartbeat has not found it since
	known     bool        // Redis may have queued it, or granted it the lock
	ambiguous bool        // an acquire may still reach Redis
	abandoned *dispatch.AbandonedError
	timer     clock.Timer // posts an event; may be nil
	timerAt   time.Time
}

// tried is what became of a waiter's acquires.
type tried struct {
	sent    time.Time // when the latest was sent
	failure error     // of the latest; nil if it had a reply
	failing time.Time // when the first was sent of those that have failed since the latest reply
	pause   call.Backoff
}

// queuedSince is what a reply says that found a waiter queued: a grant with a fence above last was given after that,
// and so after the request was sent. Also after Redis has lost data, an earlier grant has a lower fence.
type queuedSince struct {
	sent time.Time // when the request was sent
	last uint64    // the lock's last number in the reply
}

const (
	// notificationDelay is how long after the reply to a heartbeat a notification may still arrive that was sent before
	// it, on another connection.
	notificationDelay = 10 * time.Millisecond
	// grace is how long Leave waits for Redis to remove the waiter.
	grace = 25 * time.Millisecond
)

// Next returns when something happens to the waiter. After Granted, a further call means that the grant is of no use:
// the waiter sends acquire again. After Left there is no further call.
func (w *Waiter) Next(ctx context.Context) Step {
	w.step = Step{Reply: w.step.Reply}
	for w.step.Kind == 0 {
		if w.waits {
			w.wait(ctx)
		} else {
			w.acquire(ctx)
		}
	}
	return w.step
}

// acquire sends acquire, and handles the reply.
func (w *Waiter) acquire(ctx context.Context) {
	w.stopTimer()
	subscription := w.all.subscriber.up()
	w.tried.sent = w.all.env.Clock.Now()
	reply, err := w.queue.lock.Acquire(ctx, script.Request{
		Token: w.token, WaiterTTL: w.all.env.WaiterTTL, MaxWaiters: w.request.MaxWaiters, MaxLine: w.request.MaxLine,
		Ticket: w.ticket,
		Try:    w.request.Try,
	})
	w.ambiguous = w.ambiguous || reply.Ambiguous
	w.known = w.known || w.ambiguous
	if err != nil {
		w.failed(ctx, err)
		return
	}
	w.tried, w.step.Reply = tried{sent: w.tried.sent}, reply
	switch reply.Outcome {
	case script.Granted:
		if reply.More {
			w.all.env.serve(w.task, w.queue.lock)
		}
		w.granted(Grant{Fence: reply.Fence, Sent: w.tried.sent, Given: w.token.TTL()})
	case script.Queued:
		w.queued(reply, subscription)
	case script.Busy:
		if !reply.More { // else the lock may be free: the script dropped as many expired waiters as it may
			w.left(nil)
		}
	case script.Full, script.Resized:
		w.left(nil)
	}
}

// failed handles the error of an acquire: the waiter sends acquire again if that can help.
func (w *Waiter) failed(ctx context.Context, err error) {
	errors.As(err, &w.abandoned)
	isRefused := call.OriginOf(err) == call.Refused
	if !call.Passes(err) && (!isRefused || w.ticket == 0) {
		w.known = w.known || script.Aborted(err)
		w.left(err)
		return
	}
	if isRefused {
		w.queue.refused(w.tried.sent, err)
	} else {
		if w.tried.failure == nil {
			w.tried.failing = w.tried.sent
		}
		w.tried.failure = call.Latest(ctx, w.tried.failure, err)
	}
	if ctx.Err() != nil {
		w.ended(ctx)
		return
	}
	w.all.env.Log.DebugContext(ctx, "waiter will send acquire again", "lock", w.queue.lock.Name, "token", w.token, "err",
		err)
	w.waits = true
	if isRefused { // what the next heartbeat finds wakes it: a thousand waiters ask once a second
		return
	}
	w.postAfter(w.tried.pause.Next(call.Jitter(w.token.Text())), event{kind: acquireNow})
}

// queued handles the reply that it is queued. subscription is the number of the one that was up when the request was
// sent.
func (w *Waiter) queued(reply script.Reply, subscription uint64) {
	if w.ticket == 0 {
		w.step.Kind = Queued
	}
	w.known = true
	w.foundQueued(w.tried.sent, reply.Last)
	if reply.RetryAfter >= 0 {
		w.postAfter(reply.RetryAfter, event{kind: acquireNow})
	}
	w.queue.add(w.localWaiter, reply.Ticket, w.tried.sent, subscription)
	// Otherwise a notification may have been sent before the subscription was up.
	w.waits = w.all.subscriber.start(w.task) <= subscription
}

func (w *Waiter) foundQueued(sent time.Time, last uint64) {
	if later := sent.Compare(w.found.sent); later > 0 || later == 0 && last > w.found.last {
		w.found = queuedSince{sent, last}
	}
}

// wait handles the events that are there, or that come first.
func (w *Waiter) wait(ctx context.Context) {
	select {
	case <-w.signal:
	case <-ctx.Done():
		w.ended(ctx)
		return
	}
	events := w.take()
	var grant script.Grant // the latest
	for _, e := range events {
		if e.kind == notified && e.grant.Fence > grant.Fence {
			grant = e.grant
		}
	}
	for _, e := range events {
		w.handle(e, grant.Fence != 0)
	}
	if grant.Fence == 0 {
		return
	}
	w.waits = false
	if grant.Fence > w.found.last && !w.found.sent.IsZero() {
		now := w.all.env.Clock.Now()
		since := clock.Elapsed(w.found.sent, now)
		w.granted(Grant{Fence: grant.Fence, Sent: now.Add(-since), Given: grant.Given, Handoff: true})
	}
}

// handle handles an event; isNotified tells that a notification came with it.
func (w *Waiter) handle(e event, isNotified bool) {
	now := w.all.env.Clock.Now()
	switch e.kind {
	case notified:
	case stillQueued:
		w.foundQueued(e.sent, e.last)
	case notQueued:
		if e.sent.After(w.tried.sent) { // else its latest acquire has queued it again
			w.found, w.waits = queuedSince{}, false
		}
	case holding:
		if e.sent.After(w.tried.sent) {
			w.postAfter(notificationDelay, event{kind: notNotified, sent: e.sent, lost: e.lost})
		}
	case notNotified:
		if !isNotified {
			w.notNotified(e)
			w.waits = false
		}
	case acquireLater:
		if !w.timerAt.After(now) || now.Add(e.after).Before(w.timerAt) { // a sooner end may be known
			w.postAfter(e.after, event{kind: acquireNow})
		}
	case acquireNow:
		w.waits = false
	}
}

// notNotified notes that a notification is lost. None is if the subscription was not up when the lock was granted.
func (w *Waiter) notNotified(e event) {
	w.all.env.Log.Debug("a heartbeat found the grant", "lock", w.queue.lock.Name, "token", w.token, "lost", e.lost != 0)
	if e.lost != 0 {
		w.all.subscriber.miss(e.lost)
		w.step.Kind = NotificationLost
	}
}

func (w *Waiter) granted(g Grant) {
	g.Ambiguous, g.Ticket = w.ambiguous, w.ticket
	w.step.Kind, w.step.Grant = Granted, g
	w.known, w.waits = true, false
}

// left ends the acquisition because of err, or of the reply.
func (w *Waiter) left(err error) { w.step.Kind, w.step.Err = Left, err }

// ended ends it because ctx has ended.
func (w *Waiter) ended(ctx context.Context) {
	w.left(errs.Ended(ctx))
	w.step.Failing, w.step.Failure = w.queue.refusal()
	if w.step.Failure == nil {
		w.step.Failing, w.step.Failure = w.tried.failing, w.tried.failure
	}
}

// Leave has Redis remove a waiter that has Left, or was Granted the lock and no lease began, if Redis may know of it.
// It waits for that, but for 25 ms at most, so that a caller who looks then finds nothing. It goes on in the
// background.
func (w *Waiter) Leave() {
	if !w.known {
		return
	}
	over := make(chan struct{})
	leave := func(t task.Task) {
		w.queue.leave(t, script.Leaving{Token: w.token, Tombstone: w.ambiguous}, over)
	}
	w.queue.enter() // until it has left
	if w.abandoned == nil {
		leave(w.task)
	} else {
		w.task.Go(func(t task.Task) {
			<-w.abandoned.Over // it must not arrive after the leave
			leave(t)
		})
	}
	enough, cancel := w.all.env.Calls.WithTimeout(context.Background(), grace)
	defer cancel()
	select {
	case <-over:
	case <-enough.Done():
	}
}

// Close ends what Join has begun: nothing more is told to the waiter.
func (w *Waiter) Close() {
	w.stopTimer()
	w.all.close(w.localWaiter)
}

// postAfter posts an event after d, instead of the one that was to be posted before.
func (w *Waiter) postAfter(d time.Duration, e event) {
	w.stopTimer()
	w.timer, w.timerAt = w.all.env.after(d, func(task.Task) { w.post(e) }), w.all.env.Clock.Now().Add(d)
}

func (w *Waiter) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timerAt = time.Time{}
	}
}
