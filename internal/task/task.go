// Package task keeps track of a client's operations, calls of timers, goroutines and leases, and of when they have all
// ended. Outside of package dispatch, the library starts goroutines only through a Task.
package task

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/errs"
)

// Group is the work of one client. It is safe for concurrent use. It does not call its callers' functions while mu is
// held.
type Group struct {
	life    context.Context // ends when End is called
	end     context.CancelCauseFunc
	open    context.Context // ends when Shutdown or End is called
	refuse  context.CancelCauseFunc
	drained chan struct{} // closed when Shutdown has closed the group

	tasks sync.WaitGroup // grows under mu, or from inside a task

	mu     sync.Mutex
	closed bool                // guarded by mu: no further task begins
	busy   int                 // guarded by mu: number of leases and tasks, except those that Stay has begun
	leases map[*Lease]struct{} // guarded by mu
}

// NewGroup returns a Group without work.
func NewGroup() *Group {
	g := &Group{leases: map[*Lease]struct{}{}, drained: make(chan struct{})}
	g.life, g.end = context.WithCancelCause(context.Background())
	g.open, g.refuse = context.WithCancelCause(g.life)
	return g
}

// Life returns a ctx that ends when End is called, with a Closed.
func (g *Group) Life() context.Context { return g.life }

// Open returns a ctx that ends when Shutdown or End is called, with a Closed.
func (g *Group) Open() context.Context { return g.open }

// Task is work that Close waits for: an operation, the call of a timer, a goroutine.
type Task struct{ group *Group }

// Begin begins a task. If the group is closed, the error is Closed. The caller calls End, and does not use the task
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
	t.group.release()
	t.group.tasks.Done()
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

// Stay is Go for an f that returns when the group is closed, if not before. Shutdown does not wait for it.
func (t Task) Stay(f func(Task)) { t.group.tasks.Go(func() { f(t) }) }

// Lease is a group's entry of a lease.
type Lease struct {
	Lock  string    // the name of its lock
	Began time.Time // End ends leases in the order in which they began
	Token string    // and those that began at the same time in the order of their tokens
	End   func()    // ends the lease because the group is closed; called once, unless the lease is dropped before
}

// Keep registers a lease. If the group is closed, the error is Closed. Check and registration are atomic, so End misses
// no lease. The group is not drained before the lease is dropped.
func (g *Group) Keep(l *Lease) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errs.Closed
	}
	g.leases[l] = struct{}{}
	g.busy++
	return nil
}

// Drop removes a lease. A further call has no effect.
func (g *Group) Drop(l *Lease) {
	g.mu.Lock()
	_, kept := g.leases[l]
	delete(g.leases, l)
	g.mu.Unlock()
	if kept {
		g.release()
	}
}

// Held returns how many leases are held, and the name of the lock of one.
func (g *Group) Held() (n int, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.leases {
		if n++; n == 1 || l.Lock < name { // always the same one, so that a simulation repeats
			name = l.Lock
		}
	}
	return n, name
}

// Joined returns a copy of parent that also ends when other does. The caller calls cancel.
func Joined(parent, other context.Context) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	stop := context.AfterFunc(other, func() { end(context.Cause(other)) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// release decrements busy.
func (g *Group) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	g.settleLocked()
}

// settleLocked closes the group for further tasks after Shutdown, when no leases and no tasks that could begin one are
// left.
func (g *Group) settleLocked() {
	if g.busy == 0 && !g.closed && g.open.Err() != nil {
		g.closed = true
		close(g.drained)
	}
}

// Shutdown ends Open. It calls closeAll, which calls Close, when no leases and tasks are left, or when ctx ends. In the
// second case the error says how many leases are held. If ctx ends while closeAll is under way, that goes on in a
// goroutine. Call Close to wait for it. If Close is called meanwhile, the error is Closed. Further calls wait for the
// same end.
func (g *Group) Shutdown(ctx context.Context, closeAll func()) error {
	g.refuse(errs.StoppedBy(errs.Closed))
	g.mu.Lock()
	g.settleLocked()
	g.mu.Unlock()
	var result error
	select {
	case <-g.drained:
	case <-g.life.Done():
		select {
		case <-g.drained: // another Shutdown was faster
		default:
			result = errs.Closed
		}
	case <-ctx.Done():
		result = g.unfinished(errs.Ended(ctx))
		g.End()
	}
	closed := make(chan struct{})
	go func() { // not a task, because Close would wait for it
		defer close(closed)
		closeAll()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		if result == nil {
			result = errs.Ended(ctx)
		}
	}
	return result
}

// unfinished adds to err how many leases are still held, and names the lock of one.
func (g *Group) unfinished(err error) error {
	switch n, name := g.Held(); n {
	case 0:
		return err
	case 1:
		return fmt.Errorf("%w: 1 lease is still held, of %.64q", err, name)
	default:
		return fmt.Errorf("%w: %d leases are still held, one of %.64q", err, n, name)
	}
}

// End ends the leases, prevents further tasks, and stops those under way.
func (g *Group) End() {
	g.mu.Lock()
	g.closed = true
	// in a fixed order, so that a simulation repeats
	leases := slices.SortedFunc(maps.Keys(g.leases), func(a, b *Lease) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Token, b.Token))
	})
	g.busy -= len(leases)
	clear(g.leases)
	g.mu.Unlock()

	g.end(errs.StoppedBy(errs.Closed))
	for _, l := range leases {
		l.End()
	}
}

// Close calls End and waits for the tasks under way.
func (g *Group) Close() {
	g.End()
	g.tasks.Wait()
}
