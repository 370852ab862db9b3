package ui

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// maxWait is how long a page waits for Redis.
	maxWait = 500 * time.Millisecond
	// pause is the least time between two reads. A read of one lock takes half a millisecond of Redis's time at most.
	pause = 20 * time.Millisecond
	// maxKnown is how many values a cache keeps.
	maxKnown = 256
)

// cache reads values from Redis on demand, one after the other, and serves them to all pages. Its only goroutine runs
// while there is something to read, so a Redis that does not reply blocks one goroutine.
type cache[K comparable, V any] struct {
	read func(context.Context, K) (value V, rest time.Duration, err error) // rest is how long the value is not read again
	ctx  context.Context                                                   // of the reads; ended before close

	task sync.WaitGroup

	mu      sync.Mutex
	closed  bool               // guarded by mu
	known   map[K]*entry[K, V] // guarded by mu; at most maxKnown
	queue   []*entry[K, V]     // guarded by mu: to be read; all of them known
	running bool               // guarded by mu
	began   time.Time          // guarded by mu: when the read under way began; zero if none is
}

// cached is what a cache knows of a value.
type cached[V any] struct {
	value   V
	at      time.Time     // when it was read; zero: never
	err     error         // why a later read failed
	pending time.Duration // how long a read has been under way, if that is longer than maxWait
	next    time.Time     // it is not read again before
}

// entry is a value of a cache, guarded by its mu.
type entry[K comparable, V any] struct {
	cached[V]

	key    K
	looked time.Time     // when it was last used
	wanted chan struct{} // closed by the next read; nil if no read is wanted
}

func newCache[K comparable, V any](ctx context.Context,
	read func(context.Context, K) (V, time.Duration, error)) *cache[K, V] {
	return &cache[K, V]{read: read, ctx: ctx, known: map[K]*entry[K, V]{}}
}

// get returns a value. If it may be read again, get waits for the read until maxWait has passed or ctx ends.
func (c *cache[K, V]) get(ctx context.Context, key K) cached[V] {
	e, read, wait := c.want(key)
	if read != nil && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-read:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return c.seen(e)
}

// peek returns a value as get does, but does not wait.
func (c *cache[K, V]) peek(key K) cached[V] {
	e, _, _ := c.want(key)
	return c.seen(e)
}

func (c *cache[K, V]) seen(e *entry[K, V]) cached[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := e.cached
	if since := time.Since(c.began); !c.began.IsZero() && since >= maxWait && e.wanted != nil {
		g.pending = since
	}
	return g
}

// want queues a read of a value, unless it was read recently. read is closed after the read. The caller waits for at
// most wait.
func (c *cache[K, V]) want(key K) (e *entry[K, V], read <-chan struct{}, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	e = c.known[key]
	if e == nil {
		c.makeRoomLocked()
		e = &entry[K, V]{key: key}
		c.known[key] = e
	}
	e.looked = now
	if e.wanted == nil && (now.Before(e.next) || c.closed) {
		return e, nil, 0
	}
	if e.wanted == nil {
		e.wanted = make(chan struct{})
		c.queue = append(c.queue, e)
	}
	if !c.running {
		c.running = true
		c.task.Go(c.run)
	}
	wait = maxWait
	if !c.began.IsZero() {
		wait -= now.Sub(c.began)
	}
	return e, e.wanted, wait
}

// makeRoomLocked drops the least recently used value, and its queued read.
func (c *cache[K, V]) makeRoomLocked() {
	if len(c.known) < maxKnown {
		return
	}
	var oldest *entry[K, V]
	for _, e := range c.known {
		if oldest == nil || e.looked.Before(oldest.looked) {
			oldest = e
		}
	}
	delete(c.known, oldest.key)
	c.queue = slices.DeleteFunc(c.queue, func(e *entry[K, V]) bool { return e == oldest })
}

// run reads the queued values until the queue is empty.
func (c *cache[K, V]) run() {
	for e := c.next(); e != nil; e = c.next() {
		began := time.Now()
		value, rest, err := c.read(c.ctx, e.key)
		c.keep(e, value, rest, err, began)
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
		}
	}
}

// next returns the next value to read, or nil.
func (c *cache[K, V]) next() *entry[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 || c.closed {
		c.running = false
		return nil
	}
	e := c.queue[0]
	c.queue, c.began = c.queue[1:], time.Now()
	return e
}

// keep stores what was read. After an error, the earlier value stays.
func (c *cache[K, V]) keep(e *entry[K, V], value V, rest time.Duration, err error, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.err = err; err == nil {
		e.value, e.at = value, began
	}
	e.next = time.Now().Add(rest)
	close(e.wanted)
	e.wanted, c.began = nil, time.Time{}
}

// close waits for the read under way. No reads follow.
func (c *cache[K, V]) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.task.Wait()
}
