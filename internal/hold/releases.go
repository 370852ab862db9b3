package hold

import (
	"context"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/task"
)

const (
	// remembered is for how long a release is remembered: in a planned failover, clients use the old primary for up to 2.4 s after the
	// replica has become the new one.
	remembered = 3 * time.Second
	// maxRemembered is how many are, and maxRepeats how often each is sent again.
	maxRemembered, maxRepeats = 1000, 3
)

// Releases are the latest of a client. A failover may lose one, and then the lock waits for the end of a lease that nobody uses. Only
// this client knows of that, so it sends them again. The script compares token and fence, so nothing else is released.
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
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.latest {
		if l.repeats == maxRepeats || l.env.Clock.Now().Sub(l.at) > remembered {
			continue
		}
		l.repeats++
		t.Go(func(t task.Task) {
			_ = l.env.Calls.Briefly(l.env.Tasks.Life(), func(ctx context.Context) error { // after an error the lease expires
				_, err := l.env.release(ctx, t, l.ending)
				return err
			})
		})
	}
}
