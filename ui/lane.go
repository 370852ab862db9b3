package ui

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// patience is how long a page waits for Redis.
	patience = 500 * time.Millisecond
	// pause is the least time between two reads. A read of one lock takes half a millisecond of Redis's time at most.
	pause = 20 * time.Millisecond
	// maxKnown is how many values a lane keeps.
	maxKnown = 256
)

// lane reads values from Redis, one after the other, for all who look at them. Nothing is read that nobody looks at. Its only
// goroutine runs while there is something to read, so a Redis that does not reply holds one goroutine.
type lane[K comparable, V any] struct {
	read func(context.Context, K) (V, error)
	rest func(took time.Duration, err error) time.Duration // how long a value is not read again after such a read
	ctx  context.Context                                   // of the reads; ended before close

	task sync.WaitGroup

	mu      sync.Mutex
	closed  bool               // guarded by mu
	known   map[K]*entry[K, V] // guarded by mu; at most maxKnown
	queue   []*entry[K, V]     // guarded by mu: to be read; all of them known
	running bool               // guarded by mu
	began   time.Time          // guarded by mu: when the read under way began; zero if none is
}

// glance is what a lane knows of a value.
type glance[V any] struct {
	value  V
	at     time.Time     // when it was read; zero: never
	err    error         // why it could not be read again since
	silent time.Duration // for how long a read is under way, if that is longer than patience
}

// entry is a value of a lane, guarded by its mu.
type entry[K comparable, V any] struct {
	glance[V]

	key    K
	next   time.Time     // it is not read again before
	looked time.Time     // when somebody looked at it last
	wanted chan struct{} // closed when it has been read again; nil if nobody wants that
}

func newLane[K comparable, V any](
	ctx context.Context, read func(context.Context, K) (V, error), rest func(took time.Duration, err error) time.Duration,
) *lane[K, V] {
	return &lane[K, V]{read: read, rest: rest, ctx: ctx, known: map[K]*entry[K, V]{}}
}

// look returns what is known of a value. If it may be read again, look waits for that, until patience or ctx ends.
func (l *lane[K, V]) look(ctx context.Context, key K) glance[V] {
	e, read, wait := l.want(key)
	if read != nil && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-read:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return l.seen(e)
}

// peek returns what is known of a value, as look does, but does not wait.
func (l *lane[K, V]) peek(key K) glance[V] {
	e, _, _ := l.want(key)
	return l.seen(e)
}

func (l *lane[K, V]) seen(e *entry[K, V]) glance[V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := e.glance
	if since := time.Since(l.began); !l.began.IsZero() && since >= patience && e.wanted != nil {
		g.silent = since
	}
	return g
}

// want has a value read, unless it was lately. read is closed then; it is not worth while to wait for that for longer than wait.
func (l *lane[K, V]) want(key K) (e *entry[K, V], read <-chan struct{}, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	e = l.known[key]
	if e == nil {
		l.makeRoom()
		e = &entry[K, V]{key: key}
		l.known[key] = e
	}
	e.looked = now
	if e.wanted == nil && (now.Before(e.next) || l.closed) {
		return e, nil, 0
	}
	if e.wanted == nil {
		e.wanted = make(chan struct{})
		l.queue = append(l.queue, e)
	}
	if !l.running {
		l.running = true
		l.task.Go(l.run)
	}
	wait = patience
	if !l.began.IsZero() {
		wait -= now.Sub(l.began)
	}
	return e, e.wanted, wait
}

// makeRoom forgets the value at which nobody has looked for longest. If it was to be read, it is not read any more. The
// caller holds mu.
func (l *lane[K, V]) makeRoom() {
	if len(l.known) < maxKnown {
		return
	}
	var oldest *entry[K, V]
	for _, e := range l.known {
		if oldest == nil || e.looked.Before(oldest.looked) {
			oldest = e
		}
	}
	delete(l.known, oldest.key)
	l.queue = slices.DeleteFunc(l.queue, func(e *entry[K, V]) bool { return e == oldest })
}

// run reads what is wanted, until nothing is.
func (l *lane[K, V]) run() {
	for e := l.next(); e != nil; e = l.next() {
		began := time.Now()
		value, err := l.read(l.ctx, e.key)
		l.keep(e, value, err, began)
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
		}
	}
}

// next returns what is to be read next; nil if nothing is.
func (l *lane[K, V]) next() *entry[K, V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 || l.closed {
		l.running = false
		return nil
	}
	e := l.queue[0]
	l.queue, l.began = l.queue[1:], time.Now()
	return e
}

// keep keeps what was read. After an error, the value from before stays.
func (l *lane[K, V]) keep(e *entry[K, V], value V, err error, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if e.err = err; err == nil {
		e.value, e.at = value, began
	}
	e.next = now.Add(l.rest(now.Sub(began), err))
	close(e.wanted)
	e.wanted, l.began = nil, time.Time{}
}

// close waits for the read under way. Nothing is read from then on.
func (l *lane[K, V]) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.task.Wait()
}
