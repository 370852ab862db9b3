package admin

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// ForceRelease takes the lock from all holders, hands it to the first waiters, and reports whether it was held. The
// former holders learn of it at their next renewal. A holder that was granted the lock after ForceRelease began keeps
// it. ctx bounds each request, 3 s at most. After an error the lock may have been taken from some holders, and
// ForceRelease can be called again.
func (c *Client) ForceRelease(ctx context.Context, id fairlock.ID) (released bool, err error) {
	err = c.change(ctx, "force-release", id, nil, func(l script.Lock, try attempts) error {
		var before script.Snapshot
		err := try(ctx, func(ctx context.Context) (h script.Handoff, err error) {
			before, err = l.Inspect(ctx, 0, 0)
			return h, err
		})
		for next, more := uint64(0), true; err == nil && more; more = next != 0 { // each looks at some of the holders
			err = try(ctx, func(ctx context.Context) (script.Handoff, error) {
				h, err := l.ForceRelease(ctx, before.Fence, next)
				if err == nil {
					next = h.Next
				}
				// a reply may have been lost
				released = released || h.Released || h.Ambiguous && before.Used > 0
				return h, err
			})
		}
		return err
	})
	return released && err == nil, err
}

// ReleaseHolder takes the lock, or its permits, from the holder whose lease has that fence, and hands it to the first
// waiters. It reports whether there was such a holder. Of more than 1,000 holders, it finds those whose leases end
// first. The fence is 0 if another program has written the key of a mutex. Otherwise it is like ForceRelease.
func (c *Client) ReleaseHolder(ctx context.Context, id fairlock.ID, fence uint64) (released bool, err error) {
	err = c.change(ctx, "release-holder", id, nil, func(l script.Lock, try attempts) error {
		var found State
		err := try(ctx, func(ctx context.Context) (h script.Handoff, err error) {
			snap, err := l.Inspect(ctx, bounds.MaxInspected, 0)
			found = stateOf(id, snap)
			return h, err
		})
		i := slices.IndexFunc(found.Holders, func(h Holder) bool { return h.Fence == fence })
		if err != nil || i < 0 {
			return err
		}
		return try(ctx, func(ctx context.Context) (h script.Handoff, err error) {
			if t := found.Holders[i].Token; !t.IsZero() {
				h, err = l.Release(ctx, t, fence, script.Rest{})
			} else if id.Kind == fairlock.KindMutex { // another program has written the key; there is no other holder
				h, err = l.ForceRelease(ctx, fence, 0)
			}
			released = released || h.Released || h.Ambiguous
			return h, err
		})
	})
	return released && err == nil, err
}

// Resize sets the number of permits of a semaphore for all its users until ResetSize, whatever number their requests
// bring. Redis keeps it without an expiry. Waiters that fit are granted permits at once, in order. Holders keep theirs.
// A waiter for more permits than there are gets a *fairlock.CapacityError at its first heartbeat at the head of the
// queue. A request for more permits than its client's own number stays an ErrInvalid, even if Resize has set more. Key
// limits do not change. ctx bounds each request, 3 s at most. After an error the number may have been set, and Resize
// can be called again.
func (c *Client) Resize(ctx context.Context, id fairlock.ID, permits int) error {
	return c.resize(ctx, "resize", id, permits, require(1 <= permits && permits <= bounds.MaxPermits, "permits",
		"%d, must be from 1 to %d", permits, bounds.MaxPermits))
}

// ResetSize undoes Resize, so that the number that each request brings counts again.
func (c *Client) ResetSize(ctx context.Context, id fairlock.ID) error {
	return c.resize(ctx, "resetsize", id, 0, nil)
}

func (c *Client) resize(ctx context.Context, op string, id fairlock.ID, permits int, input error) error {
	if input == nil {
		input = require(id.Kind != fairlock.KindMutex && id.Kind != fairlock.KindRWMutex, "Kind",
			"%.40q has no number of permits: want semaphore or keyed", id.Kind)
	}
	return c.change(ctx, op, id, input, func(l script.Lock, try attempts) error {
		return try(ctx, func(ctx context.Context) (script.Handoff, error) { return l.Resize(ctx, permits) })
	})
}

// attempts sends a request until Redis has served it, and then more requests while the script stops at a bound.
type attempts func(ctx context.Context, f func(context.Context) (script.Handoff, error)) error

// change calls f with the attempts by which it sends its requests. They end with the call.
func (c *Client) change(ctx context.Context, op string, id fairlock.ID, input error,
	f func(script.Lock, attempts) error) error {
	if _, err := c.lock(nil, id, input); err != nil {
		return wrap(op, id, err)
	}
	if ctx.Err() != nil {
		return wrap(op, id, errs.Ended(ctx))
	}
	tasks := task.NewGroup()
	calls := call.New(c.rdb, tasks, clock.System{}, slog.New(slog.DiscardHandler), fmt.Sprint(op, id))
	defer func() {
		tasks.Close()
		if calls.Requests() > 0 { // Redis hangs, and the caller does not wait for go-redis's timeouts
			go calls.Close()
			return
		}
		calls.Close()
	}()
	l, _ := c.lock(calls, id)
	err := f(l, func(ctx context.Context, f func(context.Context) (script.Handoff, error)) error {
		more := false
		err := calls.Briefly(ctx, func(ctx context.Context) error {
			h, err := f(ctx)
			more = h.More
			return err
		})
		for more && err == nil {
			err = calls.Briefly(ctx, func(ctx context.Context) (err error) {
				more, err = l.Admit(ctx)
				return err
			})
		}
		return err
	})
	return wrap(op, id, call.OrEnded(ctx, err))
}
