package fairlock

import (
	"sync"
	"time"
)

// repeated is a function that is called again and again.
type repeated struct {
	rt *runtime
	f  func() time.Duration

	mu    sync.Mutex
	timer Timer // guarded by mu; nil once it was stopped
}

// repeat calls f after d, and again after what f returns each time, until it is stopped or the client is closed.
func (rt *runtime) repeat(d time.Duration, f func() time.Duration) *repeated {
	r := &repeated{rt: rt, f: f}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = rt.clock.AfterFunc(d, r.tick)
	return r
}

func (r *repeated) tick() {
	t, err := r.rt.begin()
	if err != nil {
		return
	}
	defer t.end()
	d := r.f()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer = r.rt.clock.AfterFunc(d, r.tick)
	}
}

func (r *repeated) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer.Stop()
	r.timer = nil
}
