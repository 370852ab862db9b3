package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Percentiles are those of the sorted list, to 1 %; the longest is exact.
func TestAHistogramKnowsPercentilesToOneInAHundred(t *testing.T) {
	for name, random := range map[string]func() time.Duration{
		"even":       func() time.Duration { return rand.N(10 * time.Millisecond) },
		"long tails": func() time.Duration { return time.Duration(math.Exp(20 * rand.Float64())) },
		"tiny":       func() time.Duration { return rand.N(100 * time.Nanosecond) },
	} {
		t.Run(name, func(t *testing.T) {
			var one, two, both histogram
			var all []time.Duration
			for i := range 20_001 {
				d := random()
				all = append(all, d)
				[]*histogram{&one, &two}[i%2].add(d)
			}
			both.merge(&one)
			both.merge(&two)
			slices.Sort(all)
			for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 1} {
				want := all[int(math.Ceil(q*float64(len(all))))-1]
				assert.InDelta(t, want, both.quantile(q), 0.01*float64(want), "%v", q)
			}
			assert.Equal(t, all[len(all)-1], both.max())
			assert.LessOrEqual(t, both.quantile(1), both.max())
		})
	}
}

func TestAHistogramTakesAnyDuration(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 127, 128, 129, 1 << 40, math.MaxInt64} {
		var h histogram
		h.add(d)
		assert.InDelta(t, d, h.quantile(0.5), 0.01*float64(d))
		assert.Equal(t, d, h.max())
		assert.LessOrEqual(t, h.quantile(1), d)
	}
	var h histogram
	h.add(-1)
	assert.Zero(t, h.quantile(1))
	assert.Zero(t, (&histogram{}).quantile(0.99))
}
