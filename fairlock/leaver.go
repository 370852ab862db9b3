package fairlock

import (
	"context"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// grace is how long a Lock whose ctx has ended waits for Redis to remove the waiter. Then it returns all the same.
const grace = 25 * time.Millisecond

// leaver removes waiters from their queues in Redis. For each lock, one task sends one request at a time. It removes the waiters
// that have left meanwhile, at most 250.
type leaver struct {
	mu     sync.Mutex
	byLock map[string][]leaving // guarded by mu: not yet sent; by the key of a lock for which a task sends
}

// leaving is a waiter that leaves.
type leaving struct {
	script.Leaving
	until time.Time     // from then on it can neither stand in the queue nor hold the lock
	over  chan struct{} // closed when it is removed, or given up
}

// leave has Redis remove a waiter, and closes over then.
func (v *leaver) leave(t task.Task, l *lock, w script.Leaving, over chan struct{}) {
	until := l.rt.clock.Now().Add(w.Token.TTL() + l.cfg.WaiterTTL + script.QueueKept)
	v.mu.Lock()
	others, sends := v.byLock[l.redis.Key()]
	v.byLock[l.redis.Key()] = append(others, leaving{w, until, over})
	v.mu.Unlock()
	if !sends {
		t.Go(func(t task.Task) {
			for some := v.next(l); some != nil; some = v.next(l) {
				l.remove(t, some)
			}
		})
	}
}

// next returns the waiters that the next request removes; nil if there are none.
func (v *leaver) next(l *lock) []leaving {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.byLock[l.redis.Key()]
	if len(all) == 0 {
		delete(v.byLock, l.redis.Key())
		return nil
	}
	n := min(len(all), script.MaxHeartbeat)
	v.byLock[l.redis.Key()] = all[n:]
	return all[:n]
}

// remove removes waiters from the queue, and releases the lock if one was granted it meanwhile. It tries for as long as that can
// matter, or once if the client is closed.
func (l *lock) remove(t task.Task, waiters []leaving) {
	var until time.Time
	tokens := make([]script.Leaving, len(waiters))
	for i, w := range waiters {
		tokens[i] = w.Leaving
		if w.until.After(until) {
			until = w.until
		}
	}
	err := l.rt.calls.Finish(context.Background(), until.Sub(l.rt.clock.Now()), func(ctx context.Context) error {
		h, err := l.redis.Leave(ctx, script.Rest{}, tokens...)
		l.queues.handoff(t, l, h)
		return err
	})
	if err != nil && l.rt.calls.Answered() { // otherwise nobody knows of a waiter in a queue: the address may be wrong
		l.rt.log.Warn("waiters could not leave; their tickets expire", "lock", l.name, "token", tokens[0].Token,
			"waiters", len(tokens), "err", err)
	}
	for _, w := range waiters {
		close(w.over)
	}
}
