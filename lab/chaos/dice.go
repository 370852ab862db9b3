//go:build unix

package chaos

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// dice decide what happens. The same seed and name give the same throws. They belong to one goroutine.
type dice struct{ *rand.Rand }

func newDice(seed uint64, name string) dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return dice{rand.New(rand.NewPCG(seed, h.Sum64()))}
}

func (d dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)))
}

func (d dice) upTo(most time.Duration) time.Duration { return d.between(0, most) }
