package fairlock

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// WithWanted returns the same lock, whose leases know when somebody waits for it: see Lease.Wanted. Such a lease costs more:
// from the first one on, the client keeps its Pub/Sub connection, and until somebody waits, each renewal is followed by
// another small request. To Redis and to others it is the same lock.
func (m Mutex) WithWanted() Mutex { return Mutex{m.lock.withWanted()} }

func (l *lock) withWanted() *lock { return l.copied(func(c *lock) { c.wanted = true }) }

// Wanted returns a channel that is closed once somebody waits for the lock: at the grant, if somebody waits then, or else
// when the first waiter has queued, as soon as a message from Redis arrives. It is for a holder that can stop early, between
// two items of a batch for example: if it unlocks and locks again, it queues behind the waiter. The waiter may have left
// meanwhile. TryLock and TryDo do not wait, so they close nothing.
//
// If the message is lost, the channel is closed after the next renewal, a third of TTL later at most. A lease that was resumed
// in another client than the one that locked always learns of it in that way. With Config.NoRenewal nothing but the message
// tells, and Resume.
//
// The channel is nil, and never ready, unless the lock is one of WithWanted, and of a nil Lease. It is not closed when the
// lease ends: select on Done as well.
func (l *Lease) Wanted() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.wanted
}

// watch has the lease that begin returns, for that token, know when somebody waits for it. The channel is there before the
// request is sent, because the message may arrive before the reply.
func (l *lock) watch(t task, tok token.Token, begin func() (*Lease, error)) (*Lease, error) {
	if !l.wanted {
		return begin()
	}
	l.queues.watch(tok)
	subscription := l.subscriber.up()
	lease, err := begin()
	if err != nil {
		l.queues.unwatch(tok)
		return nil, err
	}
	if l.subscriber.start(t) > subscription {
		lease.askIfWanted(t) // the message may have been sent before the subscription was up
	}
	return lease, nil
}

// askIfWanted asks Redis, in the background, whether somebody waits for the lease, if it does not know that yet.
func (l *Lease) askIfWanted(t task) {
	if l.wanted == nil || isClosed(l.wanted) || l.life.Err() != nil {
		return
	}
	t.goes(func(t task) {
		reply, err := l.lock.redis.Heartbeat(l.life, 0, nil)
		if err != nil && l.life.Err() == nil && lua.OriginOf(err) == lua.Permanent { // else renewals fail too
			l.lock.rt.log.Warn("Redis does not tell whether somebody waits; another request follows the next renewal",
				"lock", l.lock.name, "token", l.token, "err", err)
		}
		if reply.Waiting {
			l.lock.queues.tell(l.wanted)
		}
		if err == nil && reply.RetryAfter == 0 {
			l.lock.queues.serve(t, l.lock)
		}
	})
}

// askIfWanted has all leases ask that do not know that somebody waits.
func (qs *queues) askIfWanted(t task) {
	qs.rt.mu.Lock()
	leases := slices.SortedFunc(maps.Keys(qs.rt.leases), func(a, b *Lease) int { // so that a simulation repeats
		return cmp.Or(cmp.Compare(a.lock.redis.Key(), b.lock.redis.Key()), cmp.Compare(a.fence, b.fence))
	})
	qs.rt.mu.Unlock()
	for _, l := range leases {
		l.askIfWanted(t)
	}
}

// watch is a channel that is closed when a message tells the holder with a token that somebody waits. Two calls of Resume by one
// token share it.
type watch struct {
	wanted chan struct{}
	users  int
}

// watch returns the channel of a token. The caller calls unwatch.
func (qs *queues) watch(t token.Token) chan struct{} {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w := qs.wanted[t]
	if w == nil {
		w = &watch{wanted: make(chan struct{})}
		qs.wanted[t] = w
	}
	w.users++
	return w.wanted
}

// unwatch ends watch.
func (qs *queues) unwatch(t token.Token) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w := qs.wanted[t]
	if w.users--; w.users == 0 {
		delete(qs.wanted, t)
	}
}

// watched returns the channel of a token; nil if it is not watched.
func (qs *queues) watched(t token.Token) chan struct{} {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w := qs.wanted[t]; w != nil {
		return w.wanted
	}
	return nil
}

// tell closes a channel of watch, once; nil is none.
func (qs *queues) tell(wanted chan struct{}) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if wanted != nil && !isClosed(wanted) {
		close(wanted)
	}
}
