package demo

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// quick is a demo that takes a few seconds of simulated time.
func quick(c Contest) Config {
	return Config{
		Contest: c, Clients: 4, Workers: 3, Duration: 900 * time.Millisecond,
		TTL: time.Second, Patience: 2 * time.Second, Hold: 40 * time.Millisecond,
	}
}

// trying is how long go-redis may still try to connect for a client that has crashed.
const trying = 2 * time.Second

// inBubble plays a demo in memory, in simulated time, until ctx ends, and returns what came of it and what it wrote.
func inBubble(t *testing.T, cfg Config, ends time.Duration, check func(t *testing.T, r Result, out string)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), ends)
		defer cancel()
		var out strings.Builder
		r, err := Run(ctx, cfg, &out)
		require.NoError(t, err)
		require.NoError(t, r.Err())
		check(t, r, out.String())
		time.Sleep(trying)
	})
}

func TestRun(t *testing.T) {
	for contest, promise := range map[Contest]string{
		{Kind: Mutex}:                 "one holder at a time",
		{Kind: Semaphore, Permits: 5}: "never more than 5 permits in use",
		{Kind: RW}:                    "every writer alone",
	} {
		t.Run(string(contest.Kind), func(t *testing.T) {
			inBubble(t, quick(contest), time.Minute, func(t *testing.T, r Result, out string) {
				assert.Zero(t, r.Violations+r.Overlaps+r.Fences)
				assert.Positive(t, r.Handoff.N)
				assert.Equal(t, contest.Kind != Mutex, r.Together > 1 && len(r.ByWeight) > 1, "several held at once")
				require.Len(t, r.Crashes, 2)
				holder, waiters := r.Crashes[0], r.Crashes[1]
				assert.Positive(t, holder.Held)
				assert.Positive(t, holder.Served, "others were served after it")
				assert.Positive(t, holder.Stall)
				assert.Equal(t, []int{0, 3}, []int{waiters.Held, waiters.Waiters})
				assert.Positive(t, waiters.Stall)
				assert.Regexp(t, "client-. dies (holding|reading|writing)", out)
				assert.Contains(t, out, "dies while its workers wait")
				assert.Contains(t, out, "ok  "+promise)
				assert.NotContains(t, out, "\x1b", "no colours in a pipe")
			})
		})
	}
}

func TestRun_Interrupted(t *testing.T) {
	cfg := quick(Contest{Kind: Mutex})
	cfg.Duration = 10 * time.Minute
	inBubble(t, cfg, 1500*time.Millisecond, func(t *testing.T, _ Result, out string) {
		require.Contains(t, out, "ok  one holder at a time")
	})
}

func TestScenario_RedisIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := quick(Contest{Kind: Mutex})
		setup, rec, err := start(cfg)
		require.NoError(t, err)
		time.AfterFunc(100*time.Millisecond, func() {
			for _, c := range setup.clients {
				c.(*local).link.Cut()
			}
		})
		err = scenario{cfg, rec, setup}.run(t.Context())
		require.ErrorContains(t, err, "last failure")
		setup.stop()
		require.NotContains(t, setup.summary(cfg, rec.result(rec.clock.now()), rec.elapsed(), err), "ok  ")
		time.Sleep(trying)
	})
}
