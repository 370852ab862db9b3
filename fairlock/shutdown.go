package fairlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Shutdown lets the work under the client's locks end, and closes the client then. From the call on, Lock, Try…, Do and
// Resume return ErrClosed, and calls that wait leave their queues and return it. A call goes on if its ctx carries a lease
// of this client that is held, as that of Do's function or of Lease.Context does: the holder of one lock may take another
// that it needs. Renewals, Renew, Unlock, Inspect and ForceRelease go on.
//
// Shutdown returns nil when all leases have ended, Redis has acknowledged every release and every waiter's request to
// leave, and the client is closed, as by Close. If ctx ends first, the leases end with ErrClosed, as by Close, and Shutdown
// returns the error of ctx within 100 ms, whose text says how many leases were held, and the name of one lock; what is in
// flight ends in the background, and Close waits for it. If Close is called meanwhile, Shutdown returns ErrClosed. Further
// calls wait for the same end.
//
// A lease that nobody unlocks keeps Shutdown waiting until ctx ends. So a function that runs for as long as its ctx, such
// as that of package leader, needs a ctx that ends when Shutdown is called, at SIGTERM for example. Shutdown must not be
// called from the function of Do, or from a Trace callback, for which it would wait.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := c.shutdown(ctx); err != nil {
		return fmt.Errorf("fairlock: shutdown: %w", err)
	}
	return nil
}

func (c *Client) shutdown(ctx context.Context) error {
	rt := c.rt
	rt.drain()
	var result error
	select {
	case <-rt.drained:
	case <-rt.life.Done():
		result = ErrClosed
		if isClosed(rt.drained) { // another Shutdown was faster
			result = nil
		}
	case <-ctx.Done():
		result = rt.unfinished(ended(ctx))
		rt.endLeases()
	}
	closed := make(chan struct{})
	go func() { // Close joins what is in flight, which ctx does not
		defer close(closed)
		_ = c.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		if result == nil {
			result = ended(ctx)
		}
	}
	return result
}

// unfinished adds to err how many leases are still held, and names the lock of one.
func (rt *runtime) unfinished(err error) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	var names []string
	for l := range rt.leases {
		if l.life.Err() == nil { // else it will be released because it was lost
			names = append(names, l.lock.name)
		}
	}
	switch len(names) {
	case 0:
		return err
	case 1:
		return fmt.Errorf("%w: 1 lease is still held, of %.64q", err, names[0])
	default:
		return fmt.Errorf("%w: %d leases are still held, one of %.64q", err, len(names), slices.Min(names))
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drain lets no further acquisition begin, but for the holder of a lease, and has those that wait leave.
func (rt *runtime) drain() {
	rt.refuse(stopped{ErrClosed})
	rt.endAcquisitions()
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.settle()
}

// settle closes the client for further tasks once Shutdown has been called, no lease is left, and no task is under way that
// could begin one. The caller holds mu.
func (rt *runtime) settle() {
	if rt.busy == 0 && len(rt.leases) == 0 && !rt.closed && rt.open.Err() != nil {
		rt.closed = true
		close(rt.drained)
	}
}

// untilShutdown is untilClosed for an acquisition, whose ctx also ends when Shutdown is called, or later, when parent carries
// no lease any more that is held.
func (rt *runtime) untilShutdown(parent context.Context) (ctx context.Context, cancel func(), err error) {
	if rt.open.Err() != nil && rt.heldIn(parent) == nil {
		return nil, nil, ErrClosed
	}
	ctx, end := context.WithCancelCause(parent)
	rt.mu.Lock()
	number, over := rt.begun, rt.ends == nil
	if !over {
		rt.begun++
		rt.ends[number] = func() { rt.endUnlessHeld(parent, end) }
	}
	rt.mu.Unlock()
	if over {
		rt.endUnlessHeld(parent, end)
	}
	return ctx, func() {
		rt.mu.Lock()
		delete(rt.ends, number)
		rt.mu.Unlock()
		end(nil)
	}, nil
}

// endAcquisitions ends those that are under way, in the order in which they began. context.AfterFunc would call them in an order
// that differs from run to run, and a simulation would not repeat.
func (rt *runtime) endAcquisitions() {
	rt.mu.Lock()
	ends := rt.ends
	rt.ends = nil
	rt.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(ends)) {
		ends[number]()
	}
}

// endUnlessHeld calls end once no lease that ctx carries is held, as after Close.
func (rt *runtime) endUnlessHeld(ctx context.Context, end context.CancelCauseFunc) {
	if l := rt.heldIn(ctx); l != nil {
		context.AfterFunc(l.life, func() { rt.endUnlessHeld(ctx, end) })
		return
	}
	end(context.Cause(rt.open))
}

// heldIn returns a lease of this client that ctx carries and that is held; nil if there is none.
func (rt *runtime) heldIn(ctx context.Context) *Lease {
	for l := range leasesIn(ctx) {
		if l.lock.rt == rt && l.Err() == nil {
			return l
		}
	}
	return nil
}
