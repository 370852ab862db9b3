package main

import (
	"cmp"
	"slices"
	"time"
)

// results is what a run has measured: what the page and the pictures are made of.
type results struct {
	Date    string        `json:"date"`
	Machine machine       `json:"machine"`
	Servers []string      `json:"servers"`
	Missing []string      `json:"missing,omitempty"` // what could not be measured, and why
	Rounds  int           `json:"rounds"`
	Slice   time.Duration `json:"slice_ns"`
	Peers   []peerInfo    `json:"peers"`
	Cells   []measured    `json:"cells"`

	lost *lostUpdates // of another run, in a file of its own; nil without a repository
}

// machine is where it ran, and how busy that was.
type machine struct {
	System     string  `json:"system"`
	Go         string  `json:"go"`
	Processors int     `json:"processors"`
	LoadBefore float64 `json:"load_before,omitempty"` // the load average of a minute, before the run; 0: unknown
}

// peerInfo is what the page says of a peer.
type peerInfo struct {
	Name     string `json:"name"`
	Module   string `json:"module"`
	Version  string `json:"version"`
	Settings string `json:"settings"`
}

// setting is a workload with its parameters.
type setting struct {
	Workload   string        `json:"workload"`
	Contenders int           `json:"contenders,omitempty"`
	RTT        time.Duration `json:"rtt_ns,omitempty"` // that the proxy adds
}

const (
	uncontended = "uncontended"
	parallel    = "parallel"
	handoff     = "handoff"
	idle        = "idle"
	crash       = "crash"
)

// measured is a cell with its figures.
type measured struct {
	setting
	Peer  string `json:"peer"`
	Round int    `json:"round"`
	figures
}

// median returns the median over the rounds of what value says of a peer's cells; false if there are none.
func (r *results) median(s setting, peer string, value func(measured) (float64, bool)) (float64, bool) {
	var all []float64
	for _, m := range r.Cells {
		if m.setting == s && m.Peer == peer {
			if v, ok := value(m); ok {
				all = append(all, v)
			}
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, true
}

// rate returns a peer's rate in relation to that of the bare pair, which was measured in the same round.
func (r *results) rate(s setting, peer string) (float64, bool) {
	return r.median(s, peer, func(m measured) (float64, bool) {
		for _, floor := range r.Cells {
			if floor.setting == s && floor.Peer == barePair.name && floor.Round == m.Round && floor.PerSecond > 0 {
				return m.PerSecond / floor.PerSecond, true
			}
		}
		return 0, false
	})
}

func (r *results) commands(s setting, peer string) (float64, bool) {
	return r.median(s, peer, func(m measured) (float64, bool) { return m.Commands, true })
}

// commandsEach are those of each grant. There are none if nothing was granted.
func (r *results) commandsEach(s setting, peer string) (float64, bool) {
	return r.median(s, peer, func(m measured) (float64, bool) { return m.Commands, m.Commands > 0 })
}

func (r *results) sameAgain(s setting, peer string) (float64, bool) {
	return r.median(s, peer, func(m measured) (float64, bool) { return 100 * m.SameAgain, true })
}

func (r *results) beyondTTL(s setting, peer string) (float64, bool) {
	return r.median(s, peer, func(m measured) (float64, bool) { return m.BeyondTTL, true })
}

// stalled counts the cells in which a Lock of a free name did not return in time.
func (r *results) stalled(peer string) (n int) {
	for _, m := range r.Cells {
		if m.Peer == peer && m.Stalled > 0 {
			n++
		}
	}
	return n
}

// contenders returns those of the handoffs without a proxy, ascending.
func (r *results) contenders() []int {
	return distinct(r, func(m measured) (int, bool) { return m.Contenders, m.Workload == handoff && m.RTT == 0 })
}

// rtts returns the round trips that the proxy added, ascending.
func (r *results) rtts() []time.Duration {
	return distinct(r, func(m measured) (time.Duration, bool) { return m.RTT, m.Workload == uncontended })
}

func distinct[T cmp.Ordered](r *results, value func(measured) (T, bool)) (all []T) {
	for _, m := range r.Cells {
		if v, ok := value(m); ok {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
