package hold

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// ending is the end of a lease in Redis.
type ending struct {
	token     token.Token
	fence     uint64 // of the lease; 0: any fence of the token
	ambiguous bool   // an acquire of the token may still arrive, so Redis must refuse it from then on
	rest      rest
}

// release sends the end of a lease.
func (env *Env) release(ctx context.Context, t task.Task, e ending) (h script.Handoff, err error) {
	rest := script.Rest{Left: e.rest.until.Sub(env.Clock.Now()), By: e.rest.by}
	if e.ambiguous || e.fence == 0 {
		h, err = env.Redis.Leave(ctx, rest, script.Leaving{Token: e.token, Tombstone: e.ambiguous, Urgent: true})
	} else {
		h, err = env.Redis.Release(ctx, e.token, e.fence, rest)
	}
	env.Handed(t, h)
	return h, err
}

// giveBack releases an unused lease, in the background, for as long as it may be in Redis.
func (env *Env) giveBack(t task.Task, e ending) {
	t.Go(func(t task.Task) {
		within := e.token.TTL()
		if e.fence == 0 && e.ambiguous { // a late request of the token may take the lock, or a lease over, unless it leaves
			within += env.WaiterTTL + script.QueueKept
		}
		err := env.Calls.Finish(context.Background(), env.Lock, within, within, func(ctx context.Context) error {
			_, err := env.release(ctx, t, e)
			return err
		})
		if err != nil {
			env.Log.Debug("lease was not released; it expires", "lock", env.Lock, "token", e.token, "err", err)
		}
	})
}

// Abandon releases, in the background, the lease that a take-over by token by may have begun. sent is when the
// take-over was sent. The former holder has worked under the lock, so the minimum hold counts.
func (env *Env) Abandon(t task.Task, by token.Token, sent time.Time) {
	env.giveBack(t, ending{token: by, ambiguous: true, rest: env.restOf(by, sent)})
}

// releaseLater releases a lease that has expired here when its safety margin is over or ctx ends, because its holder
// may not have stopped before. Without the release, a late renewal or acquire would keep the lock taken for a whole
// TTL.
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

// Unlock ends the lease and releases the lock. It uses only the values of ctx.
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

// release sends the release until Redis replies or the lease would have ended. Then a task retries in the background.
// The end is not announced here, because the callback may call Unlock.
func (h *Holding) release(ctx context.Context, t task.Task, closed error) error {
	state := <-h.unlock // an earlier Unlock is bounded
	defer func() { h.unlock <- state }()
	left := h.Deadline().Sub(h.env.Clock.Now())
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

const (
	// remembered is how long a release is remembered. In a planned failover, clients use the old primary for up to 2.4 s
	// after the replica was promoted.
	remembered = 3 * time.Second
	// maxRemembered is how many are remembered, and maxRepeats how often each is sent again.
	maxRemembered, maxRepeats = 1000, 3
	// repeatDelay is for the requests that are still with the old server. Their replies may come after the first of the
	// other server.
	repeatDelay = 100 * time.Millisecond
)

// Releases are the latest releases of a client. A failover may lose one, and then the lock stays taken until an unused
// lease ends. Only this client knows that, so it sends them again, as leave with a tombstone. The token has ended, so
// no grant of it is in use, whatever fence a new primary has given it.
type Releases struct {
	mu     sync.Mutex
	latest []*released // guarded by mu: the oldest first
}

type released struct {
	ending

	env     *Env
	at      time.Time
	repeats int // guarded by the Releases' mu
}

// add remembers a release.
func (r *Releases) add(env *Env, e ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := env.Clock.Now()
	for len(r.latest) > 0 && (len(r.latest) == maxRemembered || now.Sub(r.latest[0].at) > remembered) {
		r.latest = r.latest[1:]
	}
	r.latest = append(r.latest, &released{ending: e, env: env, at: now})
}

// Repeat sends the releases again, in the background. Call it when Redis may be another server than before.
func (r *Releases) Repeat(tasks *task.Group, clk clock.Clock) {
	clk.AfterFunc(repeatDelay, func() {
		if t, err := tasks.Begin(); err == nil {
			t.Stay(r.send) // the releases were acknowledged, so Shutdown does not wait
			t.End()
		}
	})
}

func (r *Releases) send(t task.Task) {
	for _, l := range r.due() {
		err := l.env.Calls.Briefly(l.env.Tasks.Life(), func(ctx context.Context) error {
			_, err := l.env.release(ctx, t, l.ending)
			return err
		})
		if err != nil { // the leases expire
			return
		}
	}
}

// due returns the releases to send again, the newest first, because it is the most likely to be lost.
func (r *Releases) due() (due []*released) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range slices.Backward(r.latest) {
		if l.repeats < maxRepeats && l.env.Clock.Now().Sub(l.at) <= remembered {
			l.repeats++
			due = append(due, l)
		}
	}
	return due
}
