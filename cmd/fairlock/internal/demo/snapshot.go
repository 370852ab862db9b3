package demo

import (
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/history"
)

// recent is how many grants are shown at most.
const recent = 64

// snapshot is what is shown at one moment.
type snapshot struct {
	cfg     Config
	where   string
	lock    string
	elapsed time.Duration
	state   fairlock.State
	fault   error
	seen    int64   // when the state came, ns
	grants  []grant // the latest first
	dead    map[string]bool
	remarks []remark
	result  Result
	short   func(client string) string
}

// grant is one that was reported.
type grant struct {
	client string
	fence  uint64
	weight int
	wait   time.Duration
	at     int64 // ns
}

// snapshot returns what there is to show now.
func (o *observer) snapshot() snapshot {
	o.mu.Lock()
	s := snapshot{
		cfg: o.cfg, where: o.setup.where(), lock: o.setup.lock, short: o.setup.short,
		state: o.state, fault: o.fault, result: o.result, seen: o.seen, dead: map[string]bool{},
	}
	o.mu.Unlock()
	s.elapsed = o.rec.elapsed()
	s.grants, s.remarks = o.rec.latest(recent)
	for _, c := range o.rec.dead() {
		s.dead[c] = true
	}
	return s
}

// held is for how long something has been held, if the grant is among the latest.
func (s snapshot) held(fence uint64) (time.Duration, bool) {
	for _, g := range s.grants {
		if g.fence == fence {
			return max(0, time.Duration(s.seen-g.at)), true
		}
	}
	return 0, false
}

// latest returns the last n grants, the latest first, and all remarks.
func (r *recorder) latest(n int) ([]grant, []remark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var grants []grant
	open := map[[2]int]int{} // process and call → place of a grant whose request was not found yet
	for _, e := range slices.Backward(r.events) {
		call := [2]int{e.Process, e.Call}
		if e.Op == history.Granted && len(grants) < n {
			open[call] = len(grants)
			grants = append(grants, grant{client: r.name(e.Process), fence: e.Fence, at: e.At})
		} else if i, found := open[call]; found && e.Op == history.Request {
			grants[i].weight, grants[i].wait = max(1, e.Weight), time.Duration(grants[i].at-e.At)
			delete(open, call)
		}
		if len(grants) == n && len(open) == 0 {
			break
		}
	}
	return grants, slices.Clone(r.remarks)
}

// dead returns the clients that crashed.
func (r *recorder) dead() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for process := range r.kills {
		names = append(names, r.name(process))
	}
	return names
}
