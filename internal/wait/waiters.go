package wait

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

// Waiters are those of one client, by lock and by token. It is safe for concurrent use.
type Waiters struct {
	env        Env
	subscriber subscriber

	// No two mutexes of this package are held together.

	mu      sync.Mutex
	byLock  map[string]*queue            // guarded by mu: by the lock's key
	byToken map[token.Token]*localWaiter // guarded by mu: those that a grant can be for
}

// localWaiter is a waiter as its queue sees it.
type localWaiter struct {
	inbox

	all   *Waiters
	queue *queue
	token token.Token
	ttl   time.Duration

	// 0 until it was queued; guarded by queue.mu, but the waiter itself, which alone changes it, reads it without
	ticket       script.Ticket
	foundAt      time.Time // guarded by queue.mu: when the latest request was sent that found it queued
	subscription uint64    // guarded by queue.mu: the number of the one that was up then; 0: none was
}

// New returns the Waiters of a client.
func New(env Env) *Waiters {
	ws := &Waiters{env: env, byLock: map[string]*queue{}, byToken: map[token.Token]*localWaiter{}}
	ws.subscriber = subscriber{env: &ws.env, notify: ws.notify, catchUp: ws.catchUp}
	return ws
}

// Join registers a waiter before its first request, because its grant may arrive before the reply. The caller calls
// Next, and at the end Close. The task is that of the operation, and does not end before.
func (ws *Waiters) Join(t task.Task, l Lock, r Request) *Waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	key := l.Key()
	q := ws.byLock[key]
	if q == nil {
		q = &queue{all: ws, lock: l, queued: map[*localWaiter]struct{}{}, minTTL: bounds.MaxTTL}
		ws.byLock[key] = q
	}
	q.users++
	w := &localWaiter{inbox: newInbox(), all: ws, queue: q, token: r.Token, ttl: r.TTL}
	ws.byToken[r.Token] = w
	return &Waiter{localWaiter: w, task: t, request: r}
}

// close ends what Join has begun.
func (ws *Waiters) close(w *localWaiter) {
	w.queue.remove(w)
	ws.mu.Lock()
	delete(ws.byToken, w.token)
	ws.mu.Unlock()
	w.queue.exit(1)
}

// notify tells waiters of this client that they were granted the lock, or, with fence 0, after how long they can be.
// Those of other clients are notified by Redis. A grant to a waiter that has left was or will be released by its
// request to leave.
func (ws *Waiters) notify(grants ...script.Grant) {
	for _, g := range grants {
		ws.mu.Lock()
		w := ws.byToken[g.Token]
		ws.mu.Unlock()
		switch {
		case w == nil:
		case g.Fence == 0:
			w.post(event{kind: acquireLater, after: g.Given})
		default:
			w.post(event{kind: notified, grant: g})
		}
	}
}

// Handed handles the reply to a release: it notifies the waiters of this client, and has the rest of the queue served
// if the script has reached a bound.
func (ws *Waiters) Handed(t task.Task, l Lock, h script.Handoff) {
	ws.notify(h.Grants...)
	if h.More {
		ws.env.serve(t, l)
	}
}

// catchUp sends heartbeats that tell all waiters what they may have missed.
func (ws *Waiters) catchUp(t task.Task) {
	for _, q := range ws.queues() {
		t.Go(q.heartbeatOfAll)
	}
}

// Queued returns how many waiters are queued.
func (ws *Waiters) Queued() (n int) {
	for _, q := range ws.queues() {
		n += q.length()
	}
	return n
}

// queues returns those of all locks, in a fixed order, so that a simulation repeats.
func (ws *Waiters) queues() []*queue {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	all := make([]*queue, 0, len(ws.byLock))
	for _, key := range slices.Sorted(maps.Keys(ws.byLock)) {
		all = append(all, ws.byLock[key])
	}
	return all
}

// CheckSubscription returns an error if the subscription has been down for too long.
func (ws *Waiters) CheckSubscription() error { return ws.subscriber.check() }
