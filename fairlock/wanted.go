package fairlock

import (
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/task"
)

// lookInterval is how long after a look the next one follows.
const lookInterval = time.Second

// Wanted returns a channel that is closed once somebody waits for the lock, who may have left or crashed meanwhile. It is for a
// holder that can stop early, between two items of a batch for example. The end of the lease does not close the channel: select
// on Done as well.
//
// The first call begins to look, in the background, at once and then about once a second until somebody waits or the lease ends.
// Each look is a small request.
func (l *Lease) Wanted() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted != nil {
		return l.wanted
	}
	l.wanted = make(chan struct{})
	if t, err := l.lock.rt.tasks.Begin(); err == nil {
		defer t.End()
		if l.life.Err() == nil {
			t.Go(func(task.Task) { l.look(false) })
		}
	}
	return l.wanted
}

// look asks Redis whether somebody waits. If nobody does, or if it fails, another look follows: so no two are in flight at once.
// refused says that Redis has refused an earlier one.
func (l *Lease) look(refused bool) {
	rt := l.lock.rt
	waiting, err := l.lock.redis.Waiting(l.life)
	if err != nil && call.OriginOf(err) == call.Permanent && !refused { // after another error, renewals fail as well
		refused = true
		rt.log.Warn("Redis does not tell whether somebody waits; it is asked again", "lock", l.lock.name, "token", l.token, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.life.Err() != nil:
	case waiting > 0:
		close(l.wanted)
	default:
		l.looks = rt.clock.AfterFunc(lookInterval, func() {
			if t, err := rt.tasks.Begin(); err == nil {
				defer t.End()
				l.look(refused)
			}
		})
	}
}
