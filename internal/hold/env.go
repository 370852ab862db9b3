// Package hold has a lease from its grant to its end: until when it is trusted, its renewals, its loss and its release.
// It knows nothing of those that wait for the lock.
package hold

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// Redis is the lock in Redis. script.Lock has these methods.
type Redis interface {
	Renew(ctx context.Context, t token.Token, ttl time.Duration, fence uint64) (bool, error)
	Release(ctx context.Context, t token.Token, fence uint64, rest script.Rest) (script.Handoff, error)
	Leave(ctx context.Context, rest script.Rest, leaving ...script.Leaving) (script.Handoff, error)
}

// Env is what the leases of a lock need. No method of Redis and no function is called under a mutex.
type Env struct {
	Tasks *task.Group
	Calls *call.Calls
	Clock clock.Clock
	Log   *slog.Logger

	Redis     Redis
	Lock      string        // the lock's name
	TTL       time.Duration // of a lease
	MinHold   time.Duration // for which the lock stays taken; 0: none
	WaiterTTL time.Duration
	Releases  *Releases // the client's; nil: none is sent again

	Handed  func(task.Task, script.Handoff)              // gets each reply to a release
	Renewed func(g Grant, deadline time.Time, err error) // is called after a renewal
	// is called once, after Announce and when a lease has ended; nil: it was released
	Ended func(g Grant, held time.Duration, err error)
}

// ending is the end of a lease in Redis.
type ending struct {
	token     token.Token
	fence     uint64 // of the lease; 0: whatever the token has
	ambiguous bool   // an acquire of the token may still arrive: Redis refuses it from then on
	rest      rest
}

// rest is what is left of a minimum hold: the lock stays taken until then, by a token. A copy of the release brings the
// same token.
type rest struct {
	until time.Time
	by    token.Token
}

// restOf returns the rest for a lease that began then.
func (env *Env) restOf(t token.Token, began time.Time) (r rest) {
	if env.MinHold > 0 {
		terms := t.Terms()
		terms.Flags = tokens.Released
		r.until = began.Add(env.MinHold)
		r.by, _ = token.Parse(tokens.New(t.Client(), terms)) // never fails: the other token has the same client and terms
	}
	return r
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

// giveBack releases a lease that nobody uses, in the background, for as long as it may stand in Redis.
func (env *Env) giveBack(t task.Task, e ending) {
	t.Go(func(t task.Task) {
		within := e.token.TTL()
		if e.fence == 0 && e.ambiguous { // a late request of the token may take the lock, or a lease over, unless it has left
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

// Abandon releases what a take-over by a token may have begun, which was sent then, in the background. Whoever had the
// lease before has worked under the lock, so the minimum hold counts.
func (env *Env) Abandon(t task.Task, by token.Token, sent time.Time) {
	env.giveBack(t, ending{token: by, ambiguous: true, rest: env.restOf(by, sent)})
}
