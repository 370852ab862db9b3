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
	held    time.Duration // by the holder; negative if unknown
	grants  []grant       // the latest first
	dead    map[string]bool
	remarks []remark
	verdict judge.Verdict
	short   func(client string) string
}

// grant is one that was reported.
type grant struct {
	client string
	fence  uint64
	wait   time.Duration
	at     int64 // ns
}

// scene returns what there is to show now.
func (o *observer) scene() scene {
	o.mu.Lock()
	s := scene{
		cfg: o.cfg, where: o.cast.where(), lock: o.cast.lock, short: o.cast.short,
		state: o.state, fault: o.fault, verdict: o.verdict, held: -1, dead: map[string]bool{},
	}
	seen := o.seen
	o.mu.Unlock()
	s.elapsed = o.rec.elapsed()
	s.grants, s.remarks = o.rec.latest(recent)
	for _, c := range o.rec.dead() {
		s.dead[c] = true
	}
	for _, g := range s.grants {
		if g.fence == s.state.Holder.Fence {
			s.held = max(0, time.Duration(seen-g.at))
		}
	}
	return s
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
			grants = append(grants, grant{e.Client, e.Fence, time.Duration(e.At - e.Asked), e.At})
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
