package bench

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// A bucket is a 64th as wide as what it holds, or less: a percentile is right to 1 %, however much was counted.
const (
	subBits    = 6
	subBuckets = 1 << subBits
)

// histogram counts durations. The zero value is empty. It is safe for concurrent use.
type histogram struct {
	counts [(64 - subBits) * subBuckets]atomic.Int64
	n      atomic.Int64
	worst  atomic.Int64 // ns
}

// bucket is where a duration is counted: exactly below 128 ns, then by its first seven bits.
func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift*subBuckets + int(v>>shift)
}

// middle is the middle of what a bucket holds.
func middle(b int) time.Duration {
	if b < 2*subBuckets {
		return time.Duration(b)
	}
	shift := b/subBuckets - 1
	return time.Duration(uint64(b%subBuckets+subBuckets)<<shift + 1<<shift/2)
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)].Add(1)
	h.n.Add(1)
	h.atLeast(int64(d))
}

func (h *histogram) atLeast(d int64) {
	for was := h.worst.Load(); d > was && !h.worst.CompareAndSwap(was, d); was = h.worst.Load() {
	}
}

// merge adds what another one has counted.
func (h *histogram) merge(other *histogram) {
	for i := range other.counts {
		h.counts[i].Add(other.counts[i].Load())
	}
	h.n.Add(other.n.Load())
	h.atLeast(other.worst.Load())
}

// quantile returns the duration that a share q of all does not exceed; 0 if there is none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := max(int64(math.Ceil(q*float64(h.n.Load()))), 1)
	for b := range h.counts {
		if rank -= h.counts[b].Load(); rank <= 0 {
			return min(middle(b), h.max())
		}
	}
	return h.max()
}

func (h *histogram) max() time.Duration { return time.Duration(h.worst.Load()) }
