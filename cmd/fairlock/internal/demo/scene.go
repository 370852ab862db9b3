package demo

import (
	"maps"
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
	"github.com/fairlock/fairlock-go/fairlock"
)

// recent is how many grants are shown at most.
const recent = 64

// scene is what is shown at one moment.
type scene struct {
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
	verdict judge.Verdict
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

// scene returns what there is to show now.
func (o *observer) scene() scene {
	o.mu.Lock()
	s := scene{
		cfg: o.cfg, where: o.cast.where(), lock: o.cast.lock, short: o.cast.short,
		state: o.state, fault: o.fault, verdict: o.verdict, seen: o.seen, dead: map[string]bool{},
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
func (s scene) held(fence uint64) (time.Duration, bool) {
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
	for _, e := range slices.Backward(r.events) {
		if len(grants) == n {
			break
		}
		if e.Kind == judge.Granted {
			grants = append(grants, grant{e.Client, e.Fence, e.Weight, time.Duration(e.At - e.Asked), e.At})
		}
	}
	return grants, slices.Clone(r.remarks)
}

// dead returns the clients that crashed.
func (r *recorder) dead() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.killed))
}
