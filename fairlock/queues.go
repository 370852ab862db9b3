package fairlock

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// queues has the waiters of a client, by lock.
type queues struct {
	rt     *runtime
	leaver leaver

	mu      sync.Mutex
	byLock  map[string]*queue            // guarded by mu; by the lock's key
	byToken map[token.Token]*localWaiter // guarded by mu; those that a grant can be for
}

// localWaiter is a waiter as its queue sees it.
type localWaiter struct {
	inbox

	token token.Token
	ttl   time.Duration
	queue *queue

	ticket       script.Ticket // 0 until it was queued; guarded by queue.mu, but the waiter itself, which alone changes it, reads it without
	foundAt      time.Time     // guarded by queue.mu: when the latest request was sent that found it queued
	subscription uint64        // guarded by queue.mu: the number of the one that was up then; 0: none was
}

func newQueues(rt *runtime) *queues {
	return &queues{
		rt: rt, leaver: leaver{byLock: map[string][]leaving{}},
		byLock: map[string]*queue{}, byToken: map[token.Token]*localWaiter{},
	}
}

// join registers a waiter before its first request, because its grant may arrive before the reply. The caller calls
// leave.
func (qs *queues) join(l *lock, t token.Token) *localWaiter {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	key := l.redis.Key()
	q := qs.byLock[key]
	if q == nil {
		q = &queue{queues: qs, lock: l, queued: map[*localWaiter]struct{}{}, minTTL: bounds.MaxTTL}
		qs.byLock[key] = q
	}
	q.acquisitions++
	w := &localWaiter{inbox: newInbox(), token: t, ttl: l.settings.ttl, queue: q}
	qs.byToken[t] = w
	return w
}

// leave ends what join began: nothing more is told to the waiter.
func (qs *queues) leave(w *localWaiter) {
	w.queue.remove(w)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	delete(qs.byToken, w.token)
	if w.queue.acquisitions--; w.queue.acquisitions == 0 {
		delete(qs.byLock, w.queue.lock.redis.Key())
	}
}

// notify tells waiters of this client that they were granted the lock, or, with fence 0, after how long they can be. Those of
// other clients are notified by Redis. A grant to a waiter that has left was or will be released by its request to leave.
func (qs *queues) notify(grants ...script.Grant) {
	for _, g := range grants {
		qs.mu.Lock()
		w := qs.byToken[g.Token]
		qs.mu.Unlock()
		switch {
		case w == nil:
		case g.Fence == 0:
			w.post(event{kind: acquireLater, after: g.Given})
		default:
			w.post(event{kind: notified, grant: g})
		}
	}
}

// handoff handles the reply to a release: it notifies the waiters of this client, and serves the rest of the queue if
// the script reached a bound.
func (qs *queues) handoff(t task.Task, l *lock, h script.Handoff) {
	qs.notify(h.Grants...)
	if h.More {
		qs.serve(t, l)
	}
}

// serve goes on where a script reached a bound.
func (qs *queues) serve(t task.Task, l *lock) {
	t.Go(func(task.Task) {
		for more := true; more; {
			more, _ = l.redis.Admit(qs.rt.tasks.Life()) // after an error the heartbeats of the waiters go on
		}
	})
}

// catchUp sends heartbeats that tell all waiters what they may have missed.
func (qs *queues) catchUp(t task.Task) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(qs.byLock)) { // in a fixed order, so that a simulation repeats
		t.Go(qs.byLock[key].heartbeatOfAll)
	}
}
