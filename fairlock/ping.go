package fairlock

import (
	"context"
	"fmt"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// Ping reports whether locks can be used now, for a readiness probe. It fails if Redis cannot be reached, loads its
// data, is full or a replica, if rights or commands are missing, which it names, if the subscription has been down for
// 5 s, and after Shutdown or Close. On a Cluster it tries one master. Give ctx a deadline, because otherwise go-redis's own timeouts
// bound a request that hangs.
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
	if err := script.Ping(ctx, c.calls, c.cfg.Namespace); err != nil {
		return call.OrEnded(ctx, err)
	}
	return c.waiters.CheckSubscription()
}
