package fairlock

import (
	"context"
	"fmt"

	"github.com/fairlock/fairlock-go/internal/task"
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
	if err := c.tasks.Shutdown(ctx, func() { _ = c.Close() }); err != nil {
		return fmt.Errorf("fairlock: shutdown: %w", err)
	}
	return nil
}

// until returns a copy of ctx that something else ends as well. The caller calls cancel.
func (c *Client) until(ctx context.Context, end until) (_ context.Context, cancel func(), err error) {
	if end == untilShutdown {
		return c.tasks.UntilShutdown(ctx, func() bool { return c.heldIn(ctx) })
	}
	ctx, cancel = task.Joined(ctx, c.tasks.Life())
	return ctx, cancel, nil
}

// heldIn reports whether ctx carries a lease of this client that is held.
func (c *Client) heldIn(ctx context.Context) bool {
	for l := range leasesIn(ctx) {
		if l.lock.client == c && l.Err() == nil {
			return true
		}
	}
	return false
}
