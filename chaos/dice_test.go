package chaos_test

import (
	"math/rand/v2"
	"time"
)

// dice decide what happens. The same seed and name give the same throws. They belong to one goroutine.
type dice struct{ *rand.Rand }

func newDice(seed uint64, name string) dice {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return dice{rand.New(rand.NewPCG(seed, h))}
}

// chance is true so often, from 0 to 1.
func (d dice) chance(p float64) bool { return d.Float64() < p }

func (d dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)))
}

func (d dice) upTo(most time.Duration) time.Duration { return d.between(0, most) }
