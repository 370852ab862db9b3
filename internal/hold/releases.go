package hold

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/task"
)

const (
	// remembered is for how long a release is remembered: in a planned failover, clients use the old primary for up to 2.4
	// s after the replica has become the new one.
	remembered = 3 * time.Second
	// maxRemembered is how many are, and maxRepeats how often each is sent again.
	maxRemembered, maxRepeats = 1000, 3
	// repeatDelay lets what has found the other server go first: a request, or the heartbeats when the subscription comes
	// up again.
	repeatDelay = 10 * time.Millisecond
)

// Releases are the latest of a client. A failover may lose one, and then the lock waits for the end of a lease that
// nobody uses. Only this client knows of that, so it sends them again, as leave with a tombstone. The token has ended,
// so no grant of it is in use, whatever fence a new primary has given it.
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
func (r *Releases) Repeat(t task.Task) {
	due := r.due()
	if len(due) == 0 {
		return
	}
	env := due[0].env
	t.Go(func(t task.Task) {
		if !env.Calls.Sleep(env.Tasks.Life(), repeatDelay) {
			return
		}
		for _, l := range due {
			err := l.env.Calls.Briefly(l.env.Tasks.Life(), func(ctx context.Context) error {
				_, err := l.env.release(ctx, t, l.ending)
				return err
			})
			if err != nil { // the leases expire
				return
			}
		}
	})
}

// due returns what is to be sent again, the newest first: it is the likeliest to be lost.
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
