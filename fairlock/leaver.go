package fairlock

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/lua"
)

// grace is how long a Lock whose ctx has ended waits for Redis to remove the waiter. Then it returns all the same.
const grace = 25 * time.Millisecond

// queueKept is for how long beyond WaiterTTL Redis keeps a queue for which no client sends heartbeats.
const queueKept = 11 * time.Minute

// maxLeaveTasks is how many requests to leave one lock are in flight: one that hangs does not delay all others.
const maxLeaveTasks = 4

// leaver removes waiters of one lock from its queue in Redis. Those that leave together are removed by one request.
type leaver struct {
	mu      sync.Mutex
	batches []*leaveBatch // guarded by mu: not yet sent; only the last one grows
	tasks   int           // guarded by mu: that send
	starts  bool          // guarded by mu: a task has begun, and has not taken a batch yet
}

// leaveBatch is the waiters that one request removes.
type leaveBatch struct {
	waiters []lua.Leaving // guarded by leaver.mu until it is sent
	over    chan struct{} // closed when the request has ended, or the grace
	once    sync.Once     // closes over
	timer   Timer         // ends the grace
}

func (b *leaveBatch) end() { b.once.Do(func() { close(b.over) }) }

// leave has Redis remove a waiter. The channel is closed when it has, or after the grace.
func (v *leaver) leave(t task, l *lock, w lua.Leaving) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := len(v.batches)
	if n == 0 || len(v.batches[n-1].waiters) == lua.MaxHeartbeat {
		b := &leaveBatch{over: make(chan struct{})}
		b.timer = t.rt.clock.AfterFunc(grace, b.end)
		v.batches = append(v.batches, b)
		n++
	}
	b := v.batches[n-1]
	b.waiters = append(b.waiters, w)
	if !v.starts && v.tasks < maxLeaveTasks { // else one that runs will take it
		v.tasks++
		v.starts = true
		t.goes(func(t task) { v.run(t, l) })
	}
	return b.over
}

// run sends batches until there are none.
func (v *leaver) run(t task, l *lock) {
	for first := true; ; first = false {
		v.mu.Lock()
		if first {
			v.starts = false
		}
		if len(v.batches) == 0 {
			v.tasks--
			v.mu.Unlock()
			return
		}
		b := v.batches[0]
		v.batches = slices.Delete(v.batches, 0, 1)
		v.mu.Unlock()
		b.send(t, l)
	}
}

// send removes the waiters from the queue, and releases the lock if one was granted it meanwhile. It tries for as long as
// one of them can stand in the queue or hold the lock, or once if the client is closed.
func (b *leaveBatch) send(t task, l *lock) {
	defer b.end()
	defer b.timer.Stop()
	var ttl time.Duration
	for _, w := range b.waiters {
		ttl = max(ttl, w.Token.TTL())
	}
	ctx, cancel := t.rt.withTimeout(t.rt.leaves, ttl+l.cfg.WaiterTTL+queueKept)
	defer cancel()
	err := t.rt.retry(ctx, func() error {
		h, err := l.redis.Leave(ctx, lua.Rest{}, b.waiters...)
		l.queues.handoff(t, l, h)
		return err
	})
	if err != nil && t.rt.answered.Load() { // otherwise nobody knows of a waiter in a queue: the address may be wrong
		t.rt.log.Warn("waiters could not leave; their tickets expire", "lock", l.name, "token", b.waiters[0].Token,
			"waiters", len(b.waiters), "err", err)
	}
}
