package wait

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// queue has the waiters for one lock in one client. One heartbeat keeps the tickets of many of them, and one request at
// a time removes those that leave.
type queue struct {
	all   *Waiters
	lock  Lock // of the first acquisition
	users int  // guarded by all.mu: acquisitions that are under way or leave; without any, the queue is forgotten

	mu      sync.Mutex
	queued  map[*localWaiter]struct{} // guarded by mu
	minTTL  time.Duration             // guarded by mu: the smallest of those that were queued at the last tick, or since
	timer   clock.Timer               // guarded by mu: calls tick at next; nil while nobody is queued
	next    time.Time                 // guarded by mu
	leaving []leaving                 // guarded by mu: to be sent
	sends   bool                      // guarded by mu: a task sends leaving

	served  time.Time // guarded by mu: when the latest reply to an acquire or a heartbeat came; zero: none has
	failing error     // guarded by mu: of the latest of these requests that has failed since
}

// leaving is a waiter that leaves.
type leaving struct {
	script.Leaving
	until time.Time // from then on it cannot be in the queue or hold the lock
}

// maxLeaving is how many waiters of a lock may wait to be removed, while Redis refuses that or is away.
const maxLeaving = 10_000

// enter adds a user. The queue stays registered until its last user calls exit.
func (q *queue) enter() {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.users++
}

// exit removes n users, which enter or Join have added.
func (q *queue) exit(n int) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if q.users -= n; q.users == 0 {
		delete(q.all.byLock, q.lock.Key())
	}
}

// add starts heartbeats for w. sent is when the request that queued w was sent; subscription is the one that was up at
// that time. A running timer is kept, unless the waiter's TTL is so short that it needs an earlier heartbeat.
func (q *queue) add(w *localWaiter, ticket script.Ticket, sent time.Time, subscription uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued[w] = struct{}{}
	w.ticket, w.foundAt, w.subscription = ticket, sent, subscription
	q.minTTL = min(q.minTTL, w.ttl)
	if q.timer == nil || q.next.Sub(q.all.env.Clock.Now()) > q.intervalLocked() {
		q.setTimerLocked()
	}
}

// remove stops heartbeats for w. It does not look at other waiters, because ten thousand may leave at once.
func (q *queue) remove(w *localWaiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.queued, w)
	if len(q.queued) == 0 && q.timer != nil {
		q.timer.Stop()
		q.timer, q.minTTL = nil, bounds.MaxTTL
	}
}

// setTimerLocked starts the timer that calls tick after an interval.
func (q *queue) setTimerLocked() {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.next = q.all.env.Clock.Now().Add(q.intervalLocked())
	q.timer = q.all.env.after(q.intervalLocked(), q.tick)
}

// intervalLocked returns the time between heartbeats. Each advances the queue's clock, by at most a second. A third of
// TTL finds a grant whose notification was lost before its lease ends.
func (q *queue) intervalLocked() time.Duration { return min(time.Second, q.minTTL/3) }

// tick sets the timer for the next heartbeat, and sends one, which may hang.
func (q *queue) tick(t task.Task) {
	q.mu.Lock()
	q.minTTL = bounds.MaxTTL
	for w := range q.queued {
		q.minTTL = min(q.minTTL, w.ttl)
	}
	if q.timer != nil { // some waiters are still queued
		q.setTimerLocked()
	}
	due := q.dueLocked()
	q.mu.Unlock()
	q.heartbeat(t, due)
}

// dueLocked returns the waiters that the next heartbeat lists, in the order of their tickets. These are the first,
// which may be the head of the queue, and those that would otherwise be listed too late. Each must be listed within a
// third of its WaiterTTL, and of its TTL, after the last time.
func (q *queue) dueLocked() (due []*localWaiter) {
	next := q.all.env.Clock.Now().Add(q.intervalLocked())
	var first *localWaiter
	for w := range q.queued {
		if first == nil || orderLocked(w, first) < 0 {
			first = w
		}
		if next.After(w.foundAt.Add(min(q.all.env.WaiterTTL, w.ttl) / 3)) {
			due = append(due, w)
		}
	}
	slices.SortFunc(due, orderLocked)
	if first != nil && !slices.Contains(due, first) {
		due = slices.Insert(due, 0, first)
	}
	return due
}

// orderLocked compares the positions of two waiters of a queue. After a loss of data two can have the same ticket;
// Redis then orders them by token.
func orderLocked(a, b *localWaiter) int {
	return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.token.Text(), b.token.Text()))
}

// heartbeatOfAll sends heartbeats for all queued waiters, which also find grants that they may have missed.
func (q *queue) heartbeatOfAll(t task.Task) {
	q.mu.Lock()
	all := slices.SortedFunc(maps.Keys(q.queued), orderLocked)
	q.mu.Unlock()
	q.heartbeat(t, all)
}

// heartbeat sends a heartbeat for some waiters, in their order. It waits for the reply until the third heartbeat after
// it. It waits for at least a second, because a TTL may be shorter than a round trip.
func (q *queue) heartbeat(t task.Task, waiters []*localWaiter) {
	q.mu.Lock()
	timeout := max(3*q.intervalLocked(), time.Second)
	q.mu.Unlock()
	ctx, cancel := q.all.env.Calls.WithTimeout(q.all.env.Tasks.Life(), timeout)
	defer cancel()
	for some := range slices.Chunk(waiters, script.MaxHeartbeat) {
		// as the next would be
		if err := q.heartbeatOf(ctx, t, some); ctx.Err() != nil || call.OriginOf(err) == call.Refused {
			return
		}
	}
}

func (q *queue) heartbeatOf(ctx context.Context, t task.Task, waiters []*localWaiter) error {
	tokens := make([]token.Token, len(waiters))
	for i, w := range waiters {
		tokens[i] = w.token
	}
	sent, subscription := q.all.env.Clock.Now(), q.all.subscriber.up()
	reply, err := q.lock.Heartbeat(ctx, q.all.env.WaiterTTL, tokens)
	if err != nil {
		q.heartbeatFailed(ctx, waiters, err)
		return err
	}
	q.postFound(waiters, reply, sent, subscription)
	first := slices.Index(reply.States, script.StillQueued)
	switch {
	case reply.RetryAfter < 0: // only a notification can help
	case first >= 0:
		waiters[first].post(event{kind: acquireLater, after: reply.RetryAfter})
	default:
		q.all.env.serve(t, q.lock)
	}
	return nil
}

func (q *queue) heartbeatFailed(ctx context.Context, waiters []*localWaiter, err error) {
	log := q.all.env.Log.With("lock", q.lock.Name, "waiters", len(waiters))
	switch {
	case q.all.env.Tasks.Life().Err() != nil:
	case call.OriginOf(err) == call.Refused:
		q.failed(err)
	case call.Passes(err):
		q.failed(err)
		log.Debug("heartbeat failed; the next one follows", "err", call.OrEnded(ctx, err))
	default: // the waiters' own requests fail in the same way and return the error
		log.Warn("a heartbeat failed; the next one follows", "err", err)
		for _, w := range waiters {
			w.post(event{kind: acquireNow})
		}
	}
}

// failed records that a request of a waiter, or a heartbeat, has failed or was refused.
func (q *queue) failed(err error) {
	if call.OriginOf(err) == call.Refused {
		q.all.env.Calls.Refused(q.lock.Name, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failing = err
}

// replied records that Redis has replied to a request of a waiter, or to a heartbeat.
func (q *queue) replied() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.served, q.failing = q.all.env.Clock.Now(), nil
}

// unserved returns the later of began and the time of the latest reply to a waiter or a heartbeat. It also returns the
// latest failure since that reply, or nil.
func (q *queue) unserved(began time.Time) (since time.Time, failure error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.served.After(began) {
		began = q.served
	}
	return began, q.failing
}

// found is the event for a waiter that a heartbeat has found in a state.
var found = map[script.WaiterState]eventKind{
	script.StillQueued: stillQueued, script.NotQueued: notQueued, script.Holding: holding,
}

// postFound posts the result of a heartbeat to its waiters. subscription is the one that was up when it was sent.
func (q *queue) postFound(waiters []*localWaiter, reply script.HeartbeatReply, sent time.Time, subscription uint64) {
	up := q.all.subscriber.up()
	events := make([]event, len(waiters))
	q.replied()
	q.mu.Lock()
	for i, w := range waiters {
		e := event{kind: found[reply.States[i]], sent: sent, last: reply.Last}
		switch {
		case e.kind == holding && w.subscription == up:
			e.lost = up
		case e.kind == stillQueued && !sent.Before(w.foundAt):
			w.foundAt, w.subscription = sent, subscription
		}
		events[i] = e
	}
	q.mu.Unlock()
	var later []func()
	lost := false
	for i, w := range waiters {
		if again := events[i].kind == notQueued; again && lost {
			later = append(later, func() { w.post(events[i]) })
		} else {
			w.post(events[i])
			lost = lost || again
		}
	}
	// After a loss of data the lock may be free. The first waiter sends acquire before the others, so that it is granted
	// it.
	if later != nil {
		q.all.env.after(notificationDelay, func(task.Task) {
			for _, post := range later {
				post()
			}
		})
	}
}

// leave removes a waiter in the background. The waiter is a user of the queue until that is done.
func (q *queue) leave(t task.Task, w script.Leaving) {
	until := q.all.env.Clock.Now().Add(w.Token.TTL() + q.all.env.WaiterTTL + script.QueueKept)
	q.mu.Lock()
	sends, full := q.sends, len(q.leaving) == maxLeaving
	if !full {
		q.leaving, q.sends = append(q.leaving, leaving{w, until}), true
	}
	q.mu.Unlock()
	if full {
		q.all.env.Log.Debug("waiter does not leave, because too many do; its ticket expires", "lock", q.lock.Name, "token",
			w.Token)
		q.exit(1)
		return
	}
	if !sends {
		t.Go(func(t task.Task) {
			for some := q.nextLeaving(); some != nil; some = q.nextLeaving() {
				q.sendLeave(t, some)
			}
		})
	}
}

// nextLeaving returns the waiters that the next request removes, or nil.
func (q *queue) nextLeaving() []leaving {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.leaving) == 0 {
		q.leaving, q.sends = nil, false
		return nil
	}
	n := min(len(q.leaving), script.MaxLeave)
	some := q.leaving[:n]
	q.leaving = q.leaving[n:]
	return some
}

// sendLeave removes waiters from the queue in Redis, and releases the lock if one was granted it meanwhile. It tries
// for as long as that can matter, or once if the client is closed.
func (q *queue) sendLeave(t task.Task, waiters []leaving) {
	var until time.Time
	tokens := make([]script.Leaving, len(waiters))
	for i, w := range waiters {
		tokens[i] = w.Leaving
		if w.until.After(until) {
			until = w.until
		}
	}
	env := &q.all.env
	within := until.Sub(env.Clock.Now())
	err := env.Calls.Finish(context.Background(), q.lock.Name, within, within-script.QueueKept,
		func(ctx context.Context) error {
			h, err := q.lock.Leave(ctx, script.Rest{}, tokens...)
			q.all.Handed(t, q.lock, h)
			return err
		})
	if err != nil && env.Calls.Answered() { // otherwise no waiter was queued: the address may be wrong
		env.Log.Warn("waiters could not leave; their tickets expire", "lock", q.lock.Name, "token", tokens[0].Token,
			"waiters", len(tokens), "err", err)
	}
	q.exit(len(waiters))
}
