package bench

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/fairlock/fairlock-go/internal/tools/workload"
)

// Result is what was measured.
type Result struct {
	Config
	Rounds      int        `json:"rounds"` // that were finished
	Interrupted bool       `json:"interrupted"`
	Workloads   []Workload `json:"workloads"`
}

// Workload is measured on two sides: fairlock, and the floor.
type Workload struct {
	Name     string `json:"workload"`
	Fairlock Side   `json:"fairlock"`
	Floor    Side   `json:"floor"`
	Ratio    Ratio  `json:"ratio"` // of the rates, fairlock's to the floor's
	title    string
}

// Ratio has the overall ratio, and those of the worst and the best finished round. It is 0 if a side has measured
// nothing.
type Ratio struct {
	All  float64 `json:"all"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Side is the result of one side in all its slices. Latencies are in µs. They are 0 if nothing was measured.
type Side struct {
	Ops       int64   `json:"ops"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P90       float64 `json:"p90_us"`
	P99       float64 `json:"p99_us"`
	Max       float64 `json:"max_us"`

	name       string
	goroutines int
	f          workload.Operation
	latency    *hdrhistogram.Histogram // in ns
	rate       float64                 // in the last slice
}

func newSide(name string, goroutines int, f workload.Operation) Side {
	return Side{name: name, goroutines: goroutines, f: f, latency: hdrhistogram.New(1, int64(time.Hour), 3)}
}

// measure measures both sides for a slice each. The order alternates between rounds.
func (w *Workload) measure(ctx context.Context, round int, length time.Duration) (err error) {
	sides := []*Side{&w.Fairlock, &w.Floor}
	for i := 0; i < len(sides) && err == nil && ctx.Err() == nil; i++ {
		err = sides[(i+round)%len(sides)].measure(ctx, length)
	}
	if ctx.Err() == nil && w.Floor.rate > 0 {
		q := w.Fairlock.rate / w.Floor.rate
		w.Ratio.Low, w.Ratio.High = min(q, cmp.Or(w.Ratio.Low, q)), max(q, w.Ratio.High)
	}
	if w.Floor.PerSecond > 0 {
		w.Ratio.All = w.Fairlock.PerSecond / w.Floor.PerSecond
	}
	return err
}

// stalled is how long operations may go on after the end of a slice: until a lock whose holder has crashed is free
// again. If they take longer, Redis no longer serves the queue.
const stalled = bounds.DefaultTTL + bounds.DefaultWaiterTTL

// measure runs a side for one slice. An operation counts if it ends within the slice. The end of ctx ends the slice.
func (s *Side) measure(ctx context.Context, length time.Duration) error {
	before, start := s.Ops, time.Now()
	err := workload.Measure(ctx, s.goroutines, length, stalled, s.f, func(took time.Duration) {
		s.Ops++
		_ = s.latency.RecordValue(int64(min(took, time.Hour))) // it refuses what is unknown
	})
	seconds := min(length, time.Since(start)).Seconds()
	s.Seconds += seconds
	s.rate, s.PerSecond = float64(s.Ops-before)/seconds, float64(s.Ops)/s.Seconds
	us := func(percentile float64) float64 { return float64(s.latency.ValueAtPercentile(percentile)) / 1e3 }
	s.P50, s.P90, s.P99, s.Max = us(50), us(90), us(99), us(100)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil // the end of ctx is not an error
}

// String returns a table.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, %d contenders over %d clients, %d of %d rounds\n\n", r.Type, r.Contenders, r.Clients, r.Rounds,
		rounds)
	fmt.Fprintf(&b, "%-28s%10s%12s%12s%12s%12s\n", "", "per second", "p50", "p90", "p99", "max")
	for _, w := range r.Workloads {
		b.WriteString(w.title + "\n")
		for _, s := range []Side{w.Fairlock, w.Floor} {
			fmt.Fprintf(&b, "  %-26s%10.0f%12s%12s%12s%12s\n", s.name, s.PerSecond, ms(s.P50), ms(s.P90), ms(s.P99), ms(s.Max))
		}
		if r := w.Ratio; r.All > 0 {
			fmt.Fprintf(&b, "  %.2f of the floor (%.2f to %.2f by round)\n", r.All, r.Low, r.High)
		}
	}
	if r.Interrupted {
		b.WriteString("\ninterrupted: these are the results so far\n")
	}
	return b.String()
}

func ms(us float64) string {
	if us == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f ms", us/1000)
}
