package bench

import (
	"context"
	"time"
)

// The workloads.
const (
	PairsInTurn = "pairs-in-turn"
	PairsAtOnce = "pairs-at-once"
	Handoffs    = "handoffs"
)

// Result is what was measured.
type Result struct {
	Kind        Kind       `json:"kind"`
	Permits     int        `json:"permits,omitempty"` // of a semaphore
	Contenders  int        `json:"contenders"`
	Clients     int        `json:"clients"`
	Rounds      int        `json:"rounds"` // that were finished
	Interrupted bool       `json:"interrupted"`
	Workloads   []Workload `json:"workloads"`
}

// Workload is one of them: ours beside the floor.
type Workload struct {
	Name     string `json:"workload"`
	Fairlock Side   `json:"fairlock"`
	Floor    Side   `json:"floor"`
	Ratio    Ratio  `json:"ratio"` // of the rates, ours to the floor's
}

// Side is what one side did. Latencies are in µs, and 0 if there is none.
type Side struct {
	Ops       int64   `json:"ops"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P90       float64 `json:"p90_us"`
	P99       float64 `json:"p99_us"`
	Max       float64 `json:"max_us"`
}

// Ratio is over all rounds, and in the worst and the best of them; 0 if a side has measured nothing.
type Ratio struct {
	All  float64 `json:"all"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// sum adds up the slices of one side.
type sum struct {
	ops     int64
	took    time.Duration
	latency histogram
}

func (s *sum) add(sl *slice) {
	s.ops += sl.ops.Load()
	s.took += sl.took
	s.latency.merge(&sl.latency)
}

func (s *sum) rate() float64 {
	if s.took == 0 {
		return 0
	}
	return float64(s.ops) / s.took.Seconds()
}

func (s *sum) side() Side {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return Side{
		Ops: s.ops, Seconds: s.took.Seconds(), PerSecond: s.rate(),
		P50: us(s.latency.quantile(0.5)), P90: us(s.latency.quantile(0.9)), P99: us(s.latency.quantile(0.99)),
		Max: us(s.latency.max()),
	}
}

func quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// tally keeps the sums.
type tally struct {
	cfg   Config
	names []string
	sums  [][2]*sum      // by workload: ours, the floor's
	rates [][][2]float64 // by workload and round
	done  int            // rounds
}

func newTally(cfg Config, all []workload) *tally {
	t := &tally{cfg: cfg}
	for _, w := range all {
		t.names = append(t.names, w.name)
		t.sums = append(t.sums, [2]*sum{{}, {}})
		t.rates = append(t.rates, make([][2]float64, rounds))
	}
	return t
}

// add adds a slice of a workload's side, in a round that counts from 1.
func (t *tally) add(workload, side, round int, sl *slice) {
	t.sums[workload][side].add(sl)
	if sl.took > 0 {
		t.rates[workload][round-1][side] = float64(sl.ops.Load()) / sl.took.Seconds()
	}
}

// ratio compares the rates, those of rounds that both sides have finished or begun.
func (t *tally) ratio(workload int) Ratio {
	r := Ratio{All: quotient(t.sums[workload][0].rate(), t.sums[workload][1].rate())}
	for _, rates := range t.rates[workload] {
		q := quotient(rates[0], rates[1])
		if q == 0 {
			continue
		}
		if r.Low == 0 || q < r.Low {
			r.Low = q
		}
		r.High = max(r.High, q)
	}
	return r
}

func (t *tally) result(ctx context.Context) Result {
	r := Result{
		Kind: t.cfg.Kind, Contenders: t.cfg.Contenders, Clients: t.cfg.Clients, Rounds: t.done,
		Interrupted: ctx.Err() != nil, Workloads: make([]Workload, len(t.names)),
	}
	if t.cfg.Kind == Semaphore {
		r.Permits = t.cfg.Permits
	}
	for i, name := range t.names {
		r.Workloads[i] = Workload{name, t.sums[i][0].side(), t.sums[i][1].side(), t.ratio(i)}
	}
	return r
}

// Empty reports whether nothing was measured.
func (r Result) Empty() bool {
	for _, w := range r.Workloads {
		if w.Fairlock.Ops+w.Floor.Ops > 0 {
			return false
		}
	}
	return true
}
