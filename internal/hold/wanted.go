package hold

import (
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/task"
)

// lookInterval is how long after a look the next one follows.
const lookInterval = time.Second

// looks are how a holder learns that somebody waits.
type looks struct {
	wanted chan struct{} // closed once somebody waits; nil until Wanted is called
	timer  clock.Timer   // begins the next look; nil before the first one
}

// Wanted returns a channel that is closed once somebody waits for the lock. The first call begins to look, in the
// background.
func (h *Holding) Wanted() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looks.wanted != nil {
		return h.looks.wanted
	}
	h.looks.wanted = make(chan struct{})
	if t, err := h.env.Tasks.Begin(); err == nil {
		if h.life.Err() == nil {
			t.Go(func(task.Task) { h.look(false) })
		}
		t.End()
	}
	return h.looks.wanted
}

// look asks Redis whether somebody waits. If nobody does, or if it fails, another look follows: so no two are in flight
// at once. refused says that Redis has refused an earlier one.
func (h *Holding) look(refused bool) {
	waiting, err := h.env.Redis.Waiting(h.life)
	if err != nil && !call.Passes(err) && !refused { // after another error, renewals fail as well
		refused = true
		h.env.Log.Warn("Redis does not tell whether somebody waits; it is asked again",
			"lock", h.env.Lock, "token", h.Token, "err", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.life.Err() != nil:
	case waiting > 0:
		close(h.looks.wanted)
	default:
		h.looks.timer = h.env.Clock.AfterFunc(lookInterval, func() {
			if t, err := h.env.Tasks.Begin(); err == nil {
				defer t.End()
				h.look(refused)
			}
		})
	}
}
