package dispatch

import "runtime"

// Waiting is how many requests no sender has taken.
func (d *Dispatcher) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.urgent.waiting.Len() + d.others.waiting.Len()
}

// Idle returns when nothing is in flight. It is for tests that cannot use synctest.Wait: a caller returns a moment
// before its sender is idle.
func (d *Dispatcher) Idle() {
	for {
		d.mu.Lock()
		n := len(d.urgent.inFlight) + len(d.others.inFlight)
		d.mu.Unlock()
		if n == 0 {
			return
		}
		runtime.Gosched()
	}
}
