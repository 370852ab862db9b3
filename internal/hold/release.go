package hold

import (
	"context"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// releaseLater has a lease that has expired here released when its safety margin is over: until then its holder may not
// have stopped. Without that, a renewal or an acquire that arrives late would keep the lock for nobody, for a whole
// TTL.
func (h *Holding) releaseLater() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entry.Held = false
	if h.env.Tasks.Keep(&h.entry) != nil {
		return
	}
	h.late = h.env.Clock.AfterFunc(h.term.ends.Sub(h.env.Clock.Now()), h.releaseLost)
}

// releaseLost releases the lease in the background, if that is due, without waiting for the timer.
func (h *Holding) releaseLost() {
	t, err := h.env.Tasks.Begin()
	if err != nil {
		return
	}
	defer t.End()
	if h.stopLate() {
		h.env.Tasks.Drop(&h.entry)
		e := h.ending()
		e.lost = true
		h.env.giveBack(t, e)
	}
}

// stopLate reports whether the release of a lost lease was due. It is not due any more.
func (h *Holding) stopLate() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.late == nil {
		return false
	}
	h.late.Stop()
	h.late = nil
	return true
}

// ending returns the end of the lease in Redis.
func (h *Holding) ending() ending {
	return ending{token: h.Token, fence: h.Fence, ambiguous: h.Ambiguous, rest: h.rest}
}

// Detach ends the lease here without releasing the lock. The error says that the lease had ended before, and why.
func (h *Holding) Detach() error {
	h.expire()
	h.finish(errs.Detached)
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
	first := h.finish(errs.Unlocked)
	if !first {
		if cause := context.Cause(h.life); cause != errs.Unlocked { //nolint:errorlint // the cause itself, not what it wraps
			h.releaseLost() // its holder has stopped
			return cause
		}
	}
	err := h.release(ctx, t, closed)
	if first {
		h.announceEnd(err)
	}
	return err
}

// release sends the release until Redis replies, or the lease would have ended. Its end is not announced here: the
// callback may call Unlock.
func (h *Holding) release(ctx context.Context, t task.Task, closed error) error {
	h.unlock.turn <- struct{}{} // an earlier Unlock is bounded
	defer func() { <-h.unlock.turn }()
	if h.unlock.done {
		return h.unlock.err
	}
	if closed != nil {
		return closed
	}
	left := h.left()
	if left <= 0 {
		return errs.LostBy(errs.Expired)
	}
	var handoff script.Handoff
	err := h.env.Calls.Finish(ctx, h.env.Lock, min(left, h.env.TTL), call.RequestLimit,
		func(ctx context.Context) (err error) {
			handoff, err = h.env.release(ctx, t, h.ending())
			h.unlock.ambiguous = h.unlock.ambiguous || handoff.Ambiguous
			return err
		})
	if err != nil {
		if refused := call.OriginOf(err) == call.Refused; refused || h.left() <= 0 { // another Unlock can follow
			if h.unlock.ambiguous = true; !h.unlock.late {
				h.unlock.late = true
				h.env.giveBackThen(t, h.ending(), func() { // a further Unlock finds that it is done
					h.unlock.turn <- struct{}{}
					h.unlock.done = true
					<-h.unlock.turn
				})
			}
		}
		return err
	}
	h.unlock.done = true
	if h.env.Releases != nil {
		h.env.Releases.add(h.env, h.ending())
	}
	if !handoff.Released {
		h.leaveBehind(t)
		if !h.unlock.ambiguous {
			h.unlock.err = errs.LostBy(errs.Revoked)
		}
	}
	return h.unlock.err
}
