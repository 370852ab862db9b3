// Package wait takes an acquisition from its first request until it is granted the lock, or has left the queue.
//
// A client has one Waiters. Each waiter is registered before its first request, because the grant may arrive before the
// reply. For each lock it sends one heartbeat for all local waiters, and one request at a time for those that leave.
// One subscription for all locks receives the notifications of handoffs.
//
// A Waiter only reports Steps. Its caller begins the lease and makes the errors that users see.
package wait

import (
	"context"
	"log/slog"
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

// Waiters are those of one client, by lock and by token. It is safe for concurrent use.
type Waiters struct {
	env        Env
	subscriber subscriber

	// No two mutexes of this package are held together.

	mu      sync.Mutex
	byLock  map[string]*queue            // guarded by mu: by the lock's key
	byToken map[token.Token]*localWaiter // guarded by mu: those that can be granted a lock
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
	w := &localWaiter{all: ws, queue: q, token: r.Token, ttl: r.TTL, signal: make(chan struct{}, 1)}
	ws.byToken[r.Token] = w
	return &Waiter{localWaiter: w, task: t, request: r}
}

// close undoes Join.
func (ws *Waiters) close(w *localWaiter) {
	w.queue.remove(w)
	ws.mu.Lock()
	delete(ws.byToken, w.token)
	ws.mu.Unlock()
	w.queue.exit(1)
}

// notify posts grants to waiters of this client, or with fence 0 when a waiter can be granted the lock. Redis notifies
// those of other clients. A grant to a waiter that has left is released by its leave.
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

// Handed handles the reply to a release. It notifies the waiters of this client. If the script has stopped at a bound,
// it sends admit for the rest of the queue.
func (ws *Waiters) Handed(t task.Task, l Lock, h script.Handoff) {
	ws.notify(h.Grants...)
	if h.More {
		ws.env.serve(t, l)
	}
}

// catchUp sends heartbeats for all waiters, which find grants that they may have missed.
func (ws *Waiters) catchUp(t task.Task) {
	for _, q := range ws.queues() {
		t.Go(q.heartbeatOfAll)
	}
}

// Queued returns how many waiters are queued.
func (ws *Waiters) Queued() (n int) {
	for _, q := range ws.queues() {
		q.mu.Lock()
		n += len(q.queued)
		q.mu.Unlock()
	}
	return n
}

// queues returns the queues of all locks in a fixed order, so that a simulation repeats.
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

// Env has the dependencies of a client's waiters. Its functions are not called under a mutex.
type Env struct {
	Tasks     *task.Group
	Calls     *call.Calls
	Clock     clock.Clock
	Log       *slog.Logger
	WaiterTTL time.Duration

	// Listen subscribes to a channel. It calls up when Redis has confirmed that, and then message for each message, until
	// the connection breaks or ctx ends. The error has an origin, as that of a request.
	Listen  func(ctx context.Context, channel string, up func(), message func(string)) error
	Channel string

	// Subscription is called when the subscription has come up, with nil, or has broken.
	Subscription func(error)
}

// after is AfterFunc of the Clock for a function that runs as a task. f is not called once the client is closed.
func (e *Env) after(d time.Duration, f func(task.Task)) clock.Timer {
	return e.Clock.AfterFunc(d, func() {
		if t, err := e.Tasks.Begin(); err == nil {
			defer t.End()
			f(t)
		}
	})
}

// serve sends admit until the queue is served, after a script has stopped at a bound.
func (e *Env) serve(t task.Task, l Lock) {
	t.Go(func(task.Task) {
		for more := true; more; {
			more, _ = l.Admit(e.Tasks.Life()) // after an error the heartbeats of the waiters go on
		}
	})
}

// Lock is the name of a lock, and the requests of a script.Lock that waiters send.
type Lock struct {
	Name string
	Requests
}

// Requests is the part of a script.Lock that waiters need.
type Requests interface {
	Key() string
	Acquire(ctx context.Context, r script.Request) (script.Reply, error)
	Heartbeat(ctx context.Context, waiterTTL time.Duration, tokens []token.Token) (script.HeartbeatReply, error)
	Admit(ctx context.Context) (more bool, err error)
	Leave(ctx context.Context, rest script.Rest, leaving ...script.Leaving) (script.Handoff, error)
}
