package hold

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// releaseLater releases a lease that has expired here, when its safety margin is over or ctx ends: until then its
// holder may not have stopped. Without that, a renewal or an acquire that arrives late would keep the lock for nobody,
// for a whole TTL.
func (h *Holding) releaseLater(ctx context.Context, t task.Task, margin time.Duration) {
	t.Go(func(t task.Task) {
		defer h.hurry()
		h.env.Calls.Sleep(ctx, margin)
		if h.env.Tasks.Life().Err() == nil {
			h.env.giveBack(t, h.ending())
		}
	})
}

// leaveBehind removes the token of a lease that Redis does not know. A failover that lost the grant can restore the
// queue entry, and a late copy of acquire can add one. Either would grant the lock to nobody.
func (h *Holding) leaveBehind(t task.Task) {
	h.env.giveBack(t, ending{token: h.Token, ambiguous: h.Ambiguous})
}

// ending returns the end of the lease in Redis.
func (h *Holding) ending() ending {
	return ending{token: h.Token, fence: h.Fence, ambiguous: h.Ambiguous, rest: h.rest}
}

// Detach ends the lease here without releasing the lock. The error says that the lease had ended before, and why.
func (h *Holding) Detach() error {
	h.expire()
	h.end(task.Task{}, errs.Detached)
	if cause := context.Cause(h.life); cause != errs.Detached { //nolint:errorlint // the cause itself, not what it wraps
		return cause
	}
	return nil
}

// Unlock ends the lease and releases the lock. Of ctx only the values count.
func (h *Holding) Unlock(ctx context.Context) error {
	t, closed := h.env.Tasks.Begin() // before the lease ends, so that Shutdown sees one or the other
	if closed == nil {
		defer t.End()
	}
	h.expire()
	first := h.end(t, errs.Unlocked)
	if cause := context.Cause(h.life); cause != errs.Unlocked { //nolint:errorlint // the cause itself, not what it wraps
		h.mu.Lock()
		hurry := h.hurry
		h.mu.Unlock()
		if hurry != nil { // its holder has stopped
			hurry()
		}
		return cause
	}
	err := h.release(ctx, t, closed)
	if first {
		h.announceEnd(err)
	}
	return err
}

// release sends the release until Redis replies, or the lease would have ended. Then a task tries on in the background.
// The end is not announced here: the callback may call Unlock.
func (h *Holding) release(ctx context.Context, t task.Task, closed error) error {
	state := <-h.unlock // an earlier Unlock is bounded
	defer func() { h.unlock <- state }()
	left := h.left()
	switch {
	case state == done:
		return nil
	case state == gone:
		return errs.LostBy(errs.Revoked)
	case closed != nil:
		return closed
	case left <= 0:
		return errs.LostBy(errs.Expired)
	}
	ambiguous := state == unsure
	var handoff script.Handoff
	err := h.env.Calls.Finish(ctx, h.env.Lock, min(left, h.env.TTL), call.RequestLimit,
		func(ctx context.Context) (err error) {
			handoff, err = h.env.release(ctx, t, h.ending())
			ambiguous = ambiguous || handoff.Ambiguous
			return err
		})
	if err != nil {
		if state == unsent && h.env.Tasks.Life().Err() == nil {
			h.env.giveBack(t, h.ending())
		}
		state = unsure
		return err
	}
	state = done
	if h.env.Releases != nil {
		h.env.Releases.add(h.env, ending{token: h.Token, ambiguous: true, rest: h.rest})
	}
	if !handoff.Released {
		h.leaveBehind(t)
		if !ambiguous {
			state = gone
			return errs.LostBy(errs.Revoked)
		}
	}
	return nil
}
