package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// rounds is how many times everything is measured, in turn.
const rounds = 5

// warmUp is how long each side runs before anything counts, as a share of its slice.
const warmUp = 4

// workload is measured on two sides.
type workload struct {
	name        string // in JSON
	ours, floor func(context.Context, *slice)
}

// Run measures, and tells of its progress. If ctx ends, the result has what was measured until then; so has the one that
// comes with an error. What the run leaves in Redis it deletes.
func Run(
	ctx context.Context, clients []Client, namespace string, cfg Config, progress func(string),
) (result Result, err error) {
	s := newStage(clients, namespace, cfg)
	r, err := newRelay(ctx, s)
	if err != nil {
		return Result{}, err
	}
	defer r.end()
	defer func() {
		if cerr := s.tidy(ctx); cerr != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", cerr))
		}
	}()
	all := []workload{
		{PairsInTurn, func(ctx context.Context, sl *slice) { s.pairs(ctx, sl, 1) },
			func(ctx context.Context, sl *slice) { s.floorPairs(ctx, sl, 1) }},
		{PairsAtOnce, func(ctx context.Context, sl *slice) { s.pairs(ctx, sl, s.Contenders) },
			func(ctx context.Context, sl *slice) { s.floorPairs(ctx, sl, s.Contenders) }},
		{Handoffs, s.handoffs, r.measure},
	}
	length := cfg.Duration / time.Duration(2*rounds*len(all))
	t := newTally(cfg, all)
	for round := range rounds + 1 { // the first one warms up
		for i, w := range all {
			what := fmt.Sprintf("round %d of %d: %s", round, rounds, w.name)
			if round == 0 {
				what = "warming up: " + w.name
			}
			progress(what)
			if err := t.measure(ctx, i, round, length, w); err != nil || ctx.Err() != nil {
				return t.result(ctx), err
			}
		}
		t.done = round
	}
	return t.result(ctx), nil
}

// tidy cleans up, also if the user has had enough.
func (s stage) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return s.clean(ctx)
}

// measure measures both sides of a workload, in another order in each round. Round 0 does not count.
func (t *tally) measure(ctx context.Context, i, round int, length time.Duration, w workload) error {
	sides := []func(context.Context, *slice){w.ours, w.floor}
	if round == 0 {
		length = max(length/warmUp, 1)
	}
	for turn := 0; turn < len(sides) && ctx.Err() == nil; turn++ {
		side := (turn + round) % len(sides)
		runtime.GC() // what the other side has left is not this one's
		sl := begin(length)
		sides[side](ctx, sl)
		if err := sl.err(); err != nil {
			return err
		}
		if round > 0 {
			t.add(i, side, round, sl)
		}
	}
	return nil
}
