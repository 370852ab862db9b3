// Package task knows what a client does at a moment, and when all of it has ended: operations, calls of timers, goroutines, and
// leases. No part of the library starts a goroutine but through a Task.
package task

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/fairlock/fairlock-go/internal/errs"
)

// Group is the work of one client. It is safe for concurrent use.
type Group struct {
	life   context.Context // ends when End is called
	end    context.CancelCauseFunc
	open   context.Context // ends when Drain or End is called
	refuse context.CancelCauseFunc

	tasks sync.WaitGroup // grows under mu, or from inside a task

	mu      sync.Mutex
	closed  bool               // guarded by mu
	busy    int                // guarded by mu: number of tasks, but for those that stay, and of leases
	kept    map[*Kept]struct{} // guarded by mu: leases
	count   int                // guarded by mu: of the leases that were ever kept
	drained chan struct{}      // closed when the group is drained
}

// NewGroup returns a Group without work.
func NewGroup() *Group {
	g := &Group{kept: map[*Kept]struct{}{}, drained: make(chan struct{})}
	g.life, g.end = context.WithCancelCause(context.Background())
	g.open, g.refuse = context.WithCancelCause(g.life)
	return g
}

// Life returns a ctx that ends when End is called, with a Closed.
func (g *Group) Life() context.Context { return g.life }

// Open returns a ctx that ends when Drain or End is called, with a Closed.
func (g *Group) Open() context.Context { return g.open }

// Task is work that Close waits for.
type Task struct{ group *Group }

// Begin begins a task, unless the group is closed: then the error is Closed. The caller calls End, and does not use the task
// after that.
func (g *Group) Begin() (Task, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return Task{}, errs.Closed
	}
	g.tasks.Add(1)
	g.busy++
	return Task{g}, nil
}

// End ends the task.
func (t Task) End() {
	g := t.group
	g.mu.Lock()
	g.busy--
	g.settle()
	g.mu.Unlock()
	g.tasks.Done()
}

// Go runs f in a goroutine, as a task of its own, which may outlast t.
func (t Task) Go(f func(Task)) {
	t.group.mu.Lock()
	t.group.busy++
	t.group.mu.Unlock()
	t.group.tasks.Add(1)
	go func() {
		defer t.End()
		f(t)
	}()
}

// Stay is Go for an f that returns only when the group is closed. Drain does not wait for it.
func (t Task) Stay(f func(Task)) { t.group.tasks.Go(func() { f(t) }) }

// Kept is a lease. The group is not drained before it is dropped.
type Kept struct {
	What   any // the lease
	group  *Group
	end    func()
	number int // in the order in which they were kept
}

// Keep registers a lease with what ends it, in one step with the look whether the group is closed: so End misses none. end is
// called once, unless the lease is dropped before.
func (g *Group) Keep(what any, end func()) (*Kept, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errs.Closed
	}
	g.count++
	k := &Kept{what, g, end, g.count}
	g.kept[k] = struct{}{}
	g.busy++
	return k, nil
}

// Drop ends what Keep began. A further call has no effect.
func (k *Kept) Drop() {
	g := k.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.kept[k]; ok {
		delete(g.kept, k)
		g.busy--
		g.settle()
	}
}

// All returns the leases that are kept, in the order in which they were.
func (g *Group) All() (all []any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range g.inOrder() {
		all = append(all, k.What)
	}
	return all
}

// inOrder returns the leases. The caller holds mu.
func (g *Group) inOrder() []*Kept {
	return slices.SortedFunc(maps.Keys(g.kept), func(a, b *Kept) int { return cmp.Compare(a.number, b.number) })
}

// Drain ends the ctx of Open. The channel is closed when no task is under way and no lease is left; then no task begins any more.
func (g *Group) Drain() <-chan struct{} {
	g.refuse(errs.StoppedBy(errs.Closed))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settle()
	return g.drained
}

// settle closes a group that is drained. The caller holds mu.
func (g *Group) settle() {
	if g.busy == 0 && !g.closed && g.open.Err() != nil {
		g.closed = true
		close(g.drained)
	}
}

// End ends the leases, lets no further task begin, and stops those under way.
func (g *Group) End() {
	g.mu.Lock()
	g.closed = true
	kept := g.inOrder()
	clear(g.kept)
	g.mu.Unlock()

	g.end(errs.StoppedBy(errs.Closed))
	for _, k := range kept {
		k.end()
	}
}

// Close is End, and waits for the tasks under way.
func (g *Group) Close() {
	g.End()
	g.tasks.Wait()
}
