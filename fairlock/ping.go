package fairlock

import (
	"context"
	"fmt"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// Ping reports whether locks can be used now, for a readiness probe. It runs a script that deletes a key that does not exist. So
// it fails if Redis cannot be reached, loads its data or is a replica, and if the user lacks rights. On a Cluster it asks one
// master. It also fails if the subscription for notifications, which a client has from its first contention on, has been down for
// 5 s. From the call of Shutdown or Close on, it returns ErrClosed. Give ctx a deadline, because a Redis that hangs delays Ping
// by go-redis's own timeouts.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.ping(ctx); err != nil {
		return fmt.Errorf("fairlock: ping: %w", err)
	}
	return nil
}

func (c *Client) ping(ctx context.Context) error {
	if ctx.Err() != nil {
		return errs.Ended(ctx)
	}
	t, err := c.tasks.Begin()
	if err != nil {
		return err
	}
	defer t.End()
	ctx, cancel := task.Joined(ctx, c.tasks.Open())
	defer cancel()
	if c.tasks.Open().Err() != nil { // cancelling ctx may take a moment
		return ErrClosed
	}
	if err := script.Ping(ctx, c.calls.Of(""), c.cfg.Namespace); err != nil {
		return call.OrEnded(ctx, err)
	}
	return c.waiters.CheckSubscription()
}
