package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// asked is a TIME that took so long there and back, of a server whose clock is ahead.
func asked(at time.Time, there, back, ahead time.Duration) sample {
	return sample{sent: at, back: at.Add(there + back), server: at.Add(there + ahead)}
}

// The shortest round trip decides; what is not symmetric in it is within the uncertainty.
func TestTheClocksDifferenceIsKnownToHalfAShortestRoundTrip(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const ahead = -3 * time.Second
	const ms = time.Millisecond
	for _, c := range []struct{ there, back time.Duration }{{2 * ms, 2 * ms}, {4 * ms, 0}, {0, 4 * ms}, {1 * ms, 3 * ms}} {
		got, uncertain := offset([]sample{
			asked(at, 90*time.Millisecond, 10*time.Millisecond, ahead),
			asked(at, c.there, c.back, ahead),
			asked(at, 20*time.Millisecond, 80*time.Millisecond, ahead),
		})
		assert.InDelta(t, ahead, got, float64(uncertain))
		assert.InDelta(t, 2*time.Millisecond, uncertain, float64(time.Microsecond))
	}
	even, _ := offset([]sample{asked(at, 5*time.Millisecond, 5*time.Millisecond, time.Minute)})
	assert.Equal(t, time.Minute, even)
}

func TestAClockThatIsWrongIsToldOnlyIfThatIsSure(t *testing.T) {
	at := time.Now()
	for _, c := range []struct {
		ahead, rtt time.Duration
		want       Result
		says       string
	}{
		{500 * time.Millisecond, 2 * time.Millisecond, OK, "500 ms ahead of"},
		{-500 * time.Millisecond, 2 * time.Millisecond, OK, "500 ms behind"},
		{3 * time.Second, 2 * time.Millisecond, Warning, "3.00 s ahead of this machine's, ± 1.00 ms"},
		{-90 * time.Second, 2 * time.Millisecond, Warning, "90.0 s behind"},
		{3 * time.Second, 5 * time.Second, OK, "3.00 s ahead of this machine's, ± 2.50 s"},
	} {
		f := clock([]sample{asked(at, c.rtt/2, c.rtt/2, c.ahead)})
		assert.Equal(t, c.want, f.Result)
		assert.Contains(t, f.Found, c.says)
		assert.Equal(t, c.ahead.Microseconds(), f.Values["offset_us"])
	}
}

func TestLatencyIsJudgedByItsPercentiles(t *testing.T) {
	trips := func(d ...time.Duration) (all []sample) {
		for _, d := range d {
			all = append(all, asked(time.Now(), d, 0, 0))
		}
		return all
	}
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*100*time.Microsecond)
	}
	f := latency(trips(hundred...))
	assert.Equal(t, OK, f.Result)
	assert.Equal(t, map[string]any{
		"samples": 100, "p50_us": int64(5000), "p90_us": int64(9000), "p99_us": int64(9900), "max_us": int64(10000),
	}, f.Values)

	for i := range 15 {
		hundred[i] = 60 * time.Millisecond
	}
	f = latency(trips(hundred...))
	assert.Equal(t, Warning, f.Result)
	assert.NotEmpty(t, f.Advice)
	assert.Equal(t, Problem, latency(trips(time.Second)).Result)
}
