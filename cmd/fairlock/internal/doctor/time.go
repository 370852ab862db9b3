package doctor

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// How many times the server is asked for its time, and how long that may take.
const (
	manySamples  = 60
	fewSamples   = 5
	sampleWindow = 2 * time.Second
)

// sample is one TIME: when it was sent and answered by this machine's clock, and what it said.
type sample struct {
	sent, back, server time.Time
}

func (s sample) rtt() time.Duration { return s.back.Sub(s.sent) }

// listen asks for the time over and over, over one connection that is there.
func listen(ctx context.Context, rdb *redis.Client, now func() time.Time) ([]sample, error) {
	if err := rdb.Time(ctx).Err(); err != nil { // connects
		return nil, err
	}
	var all []sample
	for start := now(); len(all) < manySamples && (len(all) < fewSamples || now().Sub(start) < sampleWindow); {
		s := sample{sent: now()}
		var err error
		if s.server, err = rdb.Time(ctx).Result(); err != nil {
			return nil, err
		}
		s.back = now()
		all = append(all, s)
	}
	return all, nil
}

// offset is by how much the server's clock is ahead of this machine's, and how far off that can be: half the shortest
// round trip, for nobody knows when in it the server looked.
func offset(samples []sample) (ahead, uncertain time.Duration) {
	best := slices.MinFunc(samples, func(a, b sample) int { return int(a.rtt() - b.rtt()) })
	middle := best.sent.Add(best.rtt() / 2)
	return best.server.Sub(middle), (best.rtt() + time.Microsecond) / 2
}

// wrongClock is by how much two clocks may differ before it is worth a word.
const wrongClock = time.Second

func clock(samples []sample) Finding {
	ahead, uncertain := offset(samples)
	values := map[string]any{"offset_us": ahead.Microseconds(), "uncertainty_us": uncertain.Microseconds()}
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	if ahead.Abs()-uncertain > wrongClock {
		return warn("let both be slewed by NTP: fences go by the server's clock when it has lost the last one",
			"the server's clock is %s %s this machine's, ± %s; locks do not mind", brief(ahead.Abs()), side, brief(uncertain)).
			with(values)
	}
	return ok("%s %s this machine's, ± %s", brief(ahead.Abs()), side, brief(uncertain)).with(values)
}

// Round trips from which on it is said. A lock and unlock are two.
const (
	slowTrip  = 50 * time.Millisecond
	lameTrip  = time.Second
	slowStart = time.Second // connecting
)

func latency(samples []sample) Finding {
	trips := make([]time.Duration, len(samples))
	for i, s := range samples {
		trips[i] = s.rtt()
	}
	slices.Sort(trips)
	at := func(p float64) time.Duration { return trips[max(int(math.Ceil(p*float64(len(trips))))-1, 0)] }
	p50, p90, p99, worst := at(0.5), at(0.9), at(0.99), trips[len(trips)-1]
	values := map[string]any{
		"samples": len(trips), "p50_us": p50.Microseconds(), "p90_us": p90.Microseconds(), "p99_us": p99.Microseconds(),
		"max_us": worst.Microseconds(),
	}
	f := ok("p50 %s, p90 %s, p99 %s, max %s of %d round trips", brief(p50), brief(p90), brief(p99), brief(worst), len(trips)).
		with(values)
	const advice = "look at the network, and at what keeps the server busy (check slow); a renewal has a third of TTL"
	switch {
	case p50 >= lameTrip:
		f.Result, f.Advice = Problem, advice
	case p90 >= slowTrip:
		f.Result, f.Advice = Warning, advice
	}
	return f
}
