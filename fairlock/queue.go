package fairlock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// queue has the waiters for one lock in one client. One heartbeat keeps the tickets of many of them.
type queue struct {
	queues       *queues
	lock         *lock // of the first acquisition; one heartbeat extends all by its WaiterTTL, which is one for a client
	acquisitions int   // guarded by queues.mu: that are under way

	mu     sync.Mutex
	queued map[*localWaiter]struct{} // guarded by mu
	minTTL time.Duration             // guarded by mu: the smallest of those that were queued at the last tick, or since
	timer  Timer                     // guarded by mu: calls tick at next; nil while nobody is queued
	next   time.Time                 // guarded by mu

}

// add has heartbeats keep the ticket of a waiter, which a request that was sent then, while that subscription was up, has found
// queued. A timer that is running is kept, unless the waiter's TTL is so short that it needs an earlier heartbeat.
func (q *queue) add(w *localWaiter, ticket script.Ticket, sent time.Time, subscription uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued[w] = struct{}{}
	w.ticket, w.foundAt, w.subscription = ticket, sent, subscription
	q.minTTL = min(q.minTTL, w.ttl)
	if q.timer == nil || q.next.Sub(q.queues.rt.clock.Now()) > q.interval() {
		q.setTimer()
	}
}

// remove looks at no other waiter: ten thousand may leave at once.
func (q *queue) remove(w *localWaiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.queued, w)
	if len(q.queued) == 0 && q.timer != nil {
		q.timer.Stop()
		q.timer, q.minTTL = nil, bounds.MaxTTL
	}
}

// setTimer has tick called after an interval. The caller holds mu.
func (q *queue) setTimer() {
	if q.timer != nil {
		q.timer.Stop()
	}
	clock := q.queues.rt.clock
	q.next = clock.Now().Add(q.interval())
	q.timer = clock.AfterFunc(q.interval(), q.tick)
}

// interval is the time between heartbeats. Each advances the queue's clock, by at most a second. A third of TTL finds a
// grant whose notification was lost before its lease ends. The caller holds mu.
func (q *queue) interval() time.Duration { return min(time.Second, q.minTTL/3) }

// tick sets the timer for the next heartbeat, and sends one, which may hang.
func (q *queue) tick() {
	t, err := q.queues.rt.tasks.Begin()
	if err != nil {
		return
	}
	defer t.End()
	q.mu.Lock()
	q.minTTL = bounds.MaxTTL
	for w := range q.queued {
		q.minTTL = min(q.minTTL, w.ttl)
	}
	if q.timer != nil { // else nobody is queued any more
		q.setTimer()
	}
	due := q.due()
	q.mu.Unlock()
	q.heartbeat(t, due)
}

// due returns the waiters that the next heartbeat lists, in the order of their tickets: the first, which may be the head
// of the queue, and each that would otherwise be found queued later than a third of its WaiterTTL, or of its TTL, after
// the last time. The caller holds mu.
func (q *queue) due() (due []*localWaiter) {
	next := q.queues.rt.clock.Now().Add(q.interval() / 2)
	var first *localWaiter
	for w := range q.queued {
		if first == nil || order(w, first) < 0 {
			first = w
		}
		if !next.Before(w.foundAt.Add(min(q.lock.cfg.WaiterTTL, w.ttl) / 3)) {
			due = append(due, w)
		}
	}
	slices.SortFunc(due, order)
	if first != nil && !slices.Contains(due, first) {
		due = slices.Insert(due, 0, first)
	}
	return due
}

// inOrder returns all waiters that are queued, in the order of their tickets. The caller holds mu.
func (q *queue) inOrder() []*localWaiter { return slices.SortedFunc(maps.Keys(q.queued), order) }

// order compares the positions of two waiters. After a loss of data two can have one ticket; Redis then goes by the
// token. The caller holds their queue's mu.
func order(a, b *localWaiter) int {
	if a.ticket != b.ticket {
		return cmp.Compare(a.ticket, b.ticket)
	}
	return cmp.Compare(a.token.Text(), b.token.Text())
}

// heartbeatOfAll keeps the tickets of all queued waiters, and tells them what they may have missed.
func (q *queue) heartbeatOfAll(t task.Task) {
	q.mu.Lock()
	all := q.inOrder()
	q.mu.Unlock()
	q.heartbeat(t, all)
}

// heartbeat keeps the tickets of some waiters, in their order. It waits for the reply until the third heartbeat after
// it, but at least for a second: a TTL may be shorter than a round trip.
func (q *queue) heartbeat(t task.Task, waiters []*localWaiter) {
	rt := q.queues.rt
	q.mu.Lock()
	timeout := max(3*q.interval(), time.Second)
	q.mu.Unlock()
	ctx, cancel := rt.calls.WithTimeout(rt.tasks.Life(), timeout)
	defer cancel()
	for some := range slices.Chunk(waiters, script.MaxHeartbeat) {
		if ctx.Err() != nil {
			return
		}
		q.heartbeatOf(ctx, t, some)
	}
}

func (q *queue) heartbeatOf(ctx context.Context, t task.Task, waiters []*localWaiter) {
	rt := q.queues.rt
	tokens := make([]token.Token, len(waiters))
	for i, w := range waiters {
		tokens[i] = w.token
	}
	sent, subscription := rt.clock.Now(), q.lock.subscriber.up()
	reply, err := q.lock.redis.Heartbeat(ctx, q.lock.cfg.WaiterTTL, tokens)
	if err != nil {
		q.heartbeatFailed(ctx, waiters, err)
		return
	}
	q.postFound(waiters, reply, sent, subscription)
	first := slices.Index(reply.States, script.StillQueued)
	switch {
	case reply.RetryAfter < 0: // only a notification can help
	case first >= 0:
		waiters[first].post(event{kind: acquireLater, after: reply.RetryAfter})
	default:
		q.queues.serve(t, q.lock)
	}
}

func (q *queue) heartbeatFailed(ctx context.Context, waiters []*localWaiter, err error) {
	rt := q.queues.rt
	switch {
	case rt.tasks.Life().Err() != nil:
	case call.OriginOf(err) != call.Permanent:
		rt.log.Debug("heartbeat failed; the next one follows", "lock", q.lock.name, "waiters", len(waiters), "err", call.OrEnded(ctx, err))
	default: // their own requests fail in the same way, and say so
		rt.log.Warn("Redis refuses a heartbeat; the next one follows", "lock", q.lock.name, "waiters", len(waiters), "err", err)
		for _, w := range waiters {
			w.post(event{kind: acquireNow})
		}
	}
}

// found is the event for a waiter that a heartbeat has found in that state.
var found = map[script.WaiterState]eventKind{
	script.StillQueued: stillQueued, script.NotQueued: notQueued, script.Holding: holding,
}

// postFound posts to waiters what a heartbeat has found that was sent then, while that subscription was up.
func (q *queue) postFound(waiters []*localWaiter, reply script.HeartbeatReply, sent time.Time, subscription uint64) {
	up := q.lock.subscriber.up()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range waiters {
		e := event{kind: found[reply.States[i]], sent: sent, last: reply.Last}
		switch {
		case e.kind == holding && w.subscription == up:
			e.lost = up
		case e.kind == stillQueued && !sent.Before(w.foundAt):
			w.foundAt, w.subscription = sent, subscription
		}
		w.post(e)
	}
}
