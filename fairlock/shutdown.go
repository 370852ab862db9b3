package fairlock

import (
	"context"
	"fmt"

	"github.com/fairlock/fairlock-go/internal/task"
)

// Shutdown waits for the work under the client's locks, and closes the client. Meanwhile Lock, Try…, Do and Resume
// return ErrClosed, also if they wait already, but for calls whose ctx carries a held lease of this client (from Do or
// Lease.Context), because a holder may need another lock. Renewals, Renew, Unlock, Inspect and ForceRelease go on.
//
// Shutdown returns nil when all leases have ended, Redis has acknowledged every release and every leave, and the client
// is closed. If ctx ends first, leases end as by Close, and Shutdown returns the error of ctx within 100 ms. Its text
// says how many leases were held, and names one lock. What is in flight ends in the background, and Close waits for it.
// If Close is called meanwhile, Shutdown returns ErrClosed. Further calls wait for the same end.
//
// A lease that nobody unlocks keeps Shutdown waiting until ctx ends. So a function that runs for as long as its ctx,
// such as that of package leader, needs a ctx that ends before, at SIGTERM for example. The function of Do and Trace
// callbacks must not call Shutdown, which would wait for them.
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
