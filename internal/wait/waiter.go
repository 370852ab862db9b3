package wait

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// Request describes an acquisition.
type Request struct {
	Token      token.Token
	TTL        time.Duration // of the lease after a renewal
	MaxWaiters int           // 0: any number
	MaxLine    int           // waiters of its key; 0: any number
	Try        bool          // do not queue

	Began      time.Time
	MaxOutage  time.Duration // it leaves when Redis has not served the lock's waiters for that long; 0: never
	MaxSilence time.Duration // in place of a MaxOutage of 0, while no server has ever answered the client
}

// Step is an event in the life of a waiter.
type Step struct {
	Kind  Kind
	Reply script.Reply // the latest to an acquire; for Queued that reply; for Left it names a holder

	Grant script.Grant // of Granted

	// Of Left:
	Err      error     // why; nil if Reply is the reason: Busy, Full or Resized
	Failure  error     // if ctx has ended, or MaxOutage is over: why the latest request failed; nil if it had a reply
	Unserved time.Time // since when Redis has not replied to this waiter or to a heartbeat for the lock
}

// Kind is the kind of a Step.
type Kind int

// The kinds.
const (
	Queued           Kind = iota + 1 // it has joined the queue; once, even if it is dropped and queued again
	NotificationLost                 // a heartbeat found that it was granted the lock without a notification
	Granted                          // it holds the lock in Redis
	Left                             // it has given up
)

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
//	  └────────── error ────▶  Left   ◀─── ctx or MaxOutage ───┘
//
// Only the goroutine that calls its methods changes it. Other goroutines post events to its localWaiter. The subscriber
// and releases of this client post grants, the queue posts results of heartbeats, and timers post that it is time to
// send acquire.
type Waiter struct {
	*localWaiter

	task    task.Task // of the operation
	request Request

	waits     bool      // for events; else it sends acquire
	step      Step      // the next one, with the latest reply; Kind is 0 while there is none
	sent      time.Time // when its latest acquire was sent
	pause     call.Backoff
	found     queuedSince // by the latest request that found it queued; zero if a later heartbeat did not
	known     bool        // Redis may have queued it or granted it the lock
	ambiguous bool        // an acquire may still reach Redis
	abandoned *dispatch.AbandonedError
	timer     clock.Timer // posts an event; may be nil
	timerAt   time.Time
}

// queuedSince is a reply that found a waiter queued. A grant with a fence above last was made after it, and so after
// the request was sent. An earlier grant has a lower fence, even after Redis has lost data.
type queuedSince struct {
	sent time.Time // when the request was sent
	last uint64    // the lock's last number in the reply
}

// notificationDelay is how long after the reply to a heartbeat an earlier notification may still arrive, on another
// connection.
const notificationDelay = 10 * time.Millisecond

// Next waits for the waiter's next Step. A call after Granted means that the grant cannot be used, and the waiter sends
// acquire again. After Left there is no further call.
func (w *Waiter) Next(ctx context.Context) Step {
	w.step = Step{Reply: w.step.Reply}
	for w.step.Kind == 0 {
		w.proceed(ctx)
	}
	return w.step
}

// proceed handles one reply, or the events that come first, within MaxOutage.
func (w *Waiter) proceed(ctx context.Context) {
	if left, limited := w.outageLeft(); limited {
		var cancel func()
		ctx, cancel = w.all.env.Calls.WithTimeoutCause(ctx, left, errs.Unreachable)
		defer cancel()
	}
	if w.waits {
		w.wait(ctx)
	} else {
		w.acquire(ctx)
	}
}

// outageLeft returns the remaining time in which Redis may not serve the lock's waiters; false: as long as ctx lasts.
func (w *Waiter) outageLeft() (left time.Duration, limited bool) {
	most := w.request.MaxOutage
	if most == 0 && !w.all.env.Calls.Answered() {
		most = w.request.MaxSilence
	}
	if most == 0 {
		return 0, false
	}
	since, _ := w.queue.unserved(w.request.Began)
	return most - w.all.env.Clock.Now().Sub(since), true
}

// acquire sends acquire, and handles the reply.
func (w *Waiter) acquire(ctx context.Context) {
	w.stopTimer()
	subscription := w.all.subscriber.up()
	w.sent = w.all.env.Clock.Now()
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
	w.queue.replied()
	w.pause, w.step.Reply = call.Backoff{}, reply
	switch reply.Outcome {
	case script.Granted:
		if reply.More {
			w.all.env.serve(w.task, w.queue.lock)
		}
		w.granted(script.Grant{Fence: reply.Fence, Sent: w.sent, Given: w.token.TTL()})
	case script.Queued:
		w.queued(reply, subscription)
	case script.Busy:
		if !reply.More { // with More, the lock may be free: the script has stopped at its bound of expired waiters
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
	if ctx.Err() != nil {
		w.ended(ctx, err)
		return
	}
	w.queue.failed(err)
	w.all.env.Log.DebugContext(ctx, "waiter will send acquire again", "lock", w.queue.lock.Name, "token", w.token, "err",
		err)
	w.waits = true
	if isRefused { // the next heartbeat posts an event to it, so that a thousand waiters send one request a second
		return
	}
	w.postAfter(w.pause.Next(call.Jitter(w.token.Text())), event{kind: acquireNow})
}

// queued handles the reply that the waiter is queued. subscription is the one that was up when the request was sent.
func (w *Waiter) queued(reply script.Reply, subscription uint64) {
	if w.ticket == 0 {
		w.step.Kind = Queued
	}
	w.known = true
	w.foundQueued(w.sent, reply.Last)
	if reply.RetryAfter >= 0 {
		w.postAfter(reply.RetryAfter, event{kind: acquireNow})
	}
	w.queue.add(w.localWaiter, reply.Ticket, w.sent, subscription)
	// A notification may have come before the subscription was up.
	w.waits = w.all.subscriber.start(w.task) <= subscription
}

func (w *Waiter) foundQueued(sent time.Time, last uint64) {
	if later := sent.Compare(w.found.sent); later > 0 || later == 0 && last > w.found.last {
		w.found = queuedSince{sent, last}
	}
}

// wait handles the posted events, or waits for the next one.
func (w *Waiter) wait(ctx context.Context) {
	select {
	case <-w.signal:
	case <-ctx.Done():
		w.ended(ctx, nil)
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
		grant.Sent, grant.Handoff = now.Add(-since), true
		w.granted(grant)
	}
}

// handle handles an event. A notification has come as well if isNotified is set.
func (w *Waiter) handle(e event, isNotified bool) {
	now := w.all.env.Clock.Now()
	switch e.kind {
	case notified:
	case stillQueued:
		w.foundQueued(e.sent, e.last)
	case notQueued:
		if e.sent.After(w.sent) { // its latest acquire has not queued it again
			w.found, w.waits = queuedSince{}, false
		}
	case holding:
		if e.sent.After(w.sent) {
			w.postAfter(notificationDelay, event{kind: notNotified, lost: e.lost})
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

// notNotified handles a lost notification. If no subscription was up when the lock was granted, none was lost.
func (w *Waiter) notNotified(e event) {
	w.all.env.Log.Debug("a heartbeat found the grant", "lock", w.queue.lock.Name, "token", w.token, "lost", e.lost != 0)
	if e.lost != 0 {
		w.all.subscriber.miss(e.lost)
		w.step.Kind = NotificationLost
	}
}

func (w *Waiter) granted(g script.Grant) {
	g.Token, g.Ambiguous = w.token, w.ambiguous
	w.step.Kind, w.step.Grant = Granted, g
	w.known, w.waits = true, false
}

// left ends the acquisition because of err or the reply.
func (w *Waiter) left(err error) { w.step.Kind, w.step.Err = Left, err }

// ended ends the acquisition because ctx has ended, or because MaxOutage is over, unless Redis has served another
// waiter meanwhile. If ctx has ended an acquire, own is its error, otherwise nil.
func (w *Waiter) ended(ctx context.Context, own error) {
	err := errs.Ended(ctx)
	since, failure := w.queue.unserved(w.request.Began)
	if own != nil {
		failure = call.Latest(ctx, failure, own)
	}
	if err == errs.Unreachable { //nolint:errorlint // the ctx of proceed has that value; one of a caller may wrap it
		if left, limited := w.outageLeft(); !limited || left > 0 {
			return
		}
		if failure == nil {
			failure = call.WithOrigin(call.ErrNoReply)
		}
		if call.OriginOf(failure) == call.Refused { // it was reached
			err, failure = failure, nil
		}
	}
	w.left(err)
	w.step.Failure, w.step.Unserved = failure, since
}

// Leave removes, in the background, a waiter that has Left, or that was Granted the lock without a lease. It does
// nothing if Redis cannot know the waiter.
func (w *Waiter) Leave() {
	if !w.known {
		return
	}
	leaving := script.Leaving{Token: w.token, Tombstone: w.ambiguous}
	w.queue.enter() // until it has left
	if w.abandoned == nil {
		w.queue.leave(w.task, leaving)
		return
	}
	w.task.Go(func(t task.Task) {
		<-w.abandoned.Over // it must not arrive after the leave
		w.queue.leave(t, leaving)
	})
}

// Close ends what Join has begun. No further event reaches the waiter.
func (w *Waiter) Close() {
	w.stopTimer()
	w.all.close(w.localWaiter)
}

// postAfter posts an event after d. It replaces the one that was to be posted before.
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

// localWaiter is a waiter as other goroutines see it.
type localWaiter struct {
	all   *Waiters
	queue *queue
	token token.Token
	ttl   time.Duration

	// 0 until it was queued; guarded by queue.mu, but only the waiter changes it, and reads it without
	ticket       script.Ticket
	foundAt      time.Time // guarded by queue.mu: when the latest request that found it queued was sent
	subscription uint64    // guarded by queue.mu: the number of the one that was up then; 0: none was

	signal chan struct{} // holds one value while events is not empty
	mu     sync.Mutex
	events []event // guarded by mu: not yet handled
}

func (w *localWaiter) post(e event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *localWaiter) take() []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// event is a message from another goroutine to a waiter.
type event struct {
	kind  eventKind
	grant script.Grant  // notified
	sent  time.Time     // when the heartbeat was sent
	last  uint64        // stillQueued: the lock's last number then
	after time.Duration // acquireLater: when another request can help
	lost  uint64        // holding, notNotified: the subscription that has lost the notification; 0: none was up
}

type eventKind int

const (
	notified     eventKind = iota // it was granted the lock
	stillQueued                   // a heartbeat found it queued
	notQueued                     // a heartbeat did not find it queued
	holding                       // a heartbeat found that it was granted the lock before
	notNotified                   // and no notification has come
	acquireLater                  // another request can help after some time
	acquireNow                    // another request can help
)
