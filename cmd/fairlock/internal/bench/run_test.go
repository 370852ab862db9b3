package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/golden"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// inBubble runs a test in simulated time. A request takes 1 ms to the server in memory, and its reply 1 ms back.
func inBubble(
	t *testing.T, n int, test func(t *testing.T, s *fairlocktest.Server, clients []Client, links []*fairlocktest.Link),
) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		clients, links := make([]Client, n), make([]*fairlocktest.Link, n)
		for i := range clients {
			c := s.Client(fairlock.Config{})
			clients[i], links[i] = Client{Redis: c.Redis, Locks: c.Client}, c.Link
			c.Link.Delay(time.Millisecond, time.Millisecond)
		}
		test(t, s, clients, links)
	})
}

func quiet(string) {}

// A turn lasts 10 ms: time for two locks and unlocks, one after the other, and for the beginning of a third.
func TestRun_CountsWhatWasDone(t *testing.T) {
	for _, cfg := range []Config{
		{Kind: Mutex, Contenders: 3, Clients: 3}, {Kind: Mutex, Contenders: 1, Clients: 1},
		{Kind: Semaphore, Permits: 2, Contenders: 3, Clients: 2}, {Kind: RW, Contenders: 4, Clients: 2},
	} {
		t.Run(string(cfg.Kind), func(t *testing.T) {
			inBubble(t, cfg.Clients, func(t *testing.T, s *fairlocktest.Server, clients []Client, _ []*fairlocktest.Link) {
				cfg.Duration = 300 * time.Millisecond
				r, err := Run(t.Context(), clients, "fairlock", cfg, quiet)
				require.NoError(t, err)
				assert.Equal(t, []any{rounds, false}, []any{r.Rounds, r.Interrupted})
				done := func(ops int64) Side {
					return Side{Ops: ops, Seconds: 0.05, PerSecond: float64(ops) / 0.05, P50: 4000, P90: 4000, P99: 4000, Max: 4000}
				}
				n := 10 * int64(cfg.Contenders)
				assert.Equal(t, Workload{PairsInTurn, done(10), done(10), Ratio{1, 1, 1}}, r.Workloads[0])
				assert.Equal(t, Workload{PairsAtOnce, done(n), done(n), Ratio{1, 1, 1}}, r.Workloads[1])
				h := r.Workloads[2]
				assert.InEpsilon(t, 2000, h.Floor.P50, 0.01, "a message goes to Redis and to the next client")
				if cfg.Contenders == 1 {
					assert.Equal(t, Side{10, 0.05, 200, 0, 0, 0, 0}, h.Fairlock, "nobody waits")
				} else {
					assert.InEpsilon(t, 2000, h.Fairlock.P90, 0.01, "a handoff does the same")
				}
				assert.Empty(t, s.Miniredis.Keys(), "nothing is left")
			})
		})
	}
}

// What was measured until then is there, the turn under way too, and nothing is left in Redis.
func TestRun_EndsEarly(t *testing.T) {
	cfg := Config{Kind: Mutex, Contenders: 3, Clients: 2, Duration: 600 * time.Millisecond}
	inBubble(t, 2, func(t *testing.T, s *fairlocktest.Server, clients []Client, links []*fairlocktest.Link) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := Run(ctx, clients, "fairlock", cfg, func(what string) {
			if what == "round 1 of 5: "+Handoffs {
				time.AfterFunc(11*time.Millisecond, cancel)
			}
		})
		require.NoError(t, err)
		assert.Equal(t, []any{true, 0, false}, []any{r.Interrupted, r.Rounds, r.Empty()})
		assert.Equal(t, []int64{4, 5, 0}, []int64{r.Workloads[0].Fairlock.Ops, r.Workloads[2].Floor.Ops, r.Workloads[2].Fairlock.Ops})
		assert.InDelta(t, 0.011, r.Workloads[2].Floor.Seconds, 1e-9)
		assert.Empty(t, s.Miniredis.Keys())
		assert.True(t, Result{}.Empty())

		r, err = Run(t.Context(), clients, "fairlock", cfg, func(what string) {
			if what == "round 2 of 5: "+PairsInTurn {
				s.Stop()
			}
		})
		require.ErrorContains(t, err, "refused")
		assert.Equal(t, []any{false, 1}, []any{r.Interrupted, r.Rounds})
		_, err = Run(t.Context(), clients, "fairlock", cfg, quiet)
		require.ErrorContains(t, err, "floor: subscribe: ")

		sl := begin(time.Hour) // a contender would wait on though Redis is gone
		s.Start()
		time.AfterFunc(30*time.Millisecond, s.Stop)
		newStage(clients, "fairlock", cfg).handoffs(t.Context(), sl)
		require.Error(t, sl.err())
		assert.Less(t, sl.took, time.Minute)
	})
}

func TestRelay_Faults(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, _ *fairlocktest.Server, clients []Client, links []*fairlocktest.Link) {
		r, err := newRelay(t.Context(), newStage(clients, "fairlock", Config{Kind: Mutex, Contenders: 2}))
		require.NoError(t, err)
		defer r.end()
		measure := func() *slice {
			sl := begin(101 * time.Millisecond)
			r.measure(t.Context(), sl)
			return sl
		}
		require.NoError(t, clients[0].Redis.Publish(t.Context(), r.channel(0), "a message of an earlier turn").Err())
		sl := measure()
		require.NoError(t, sl.err())
		assert.Equal(t, sl.ops.Load(), sl.latency.n.Load())
		assert.Positive(t, sl.ops.Load())
		links[1].DropNotifications()
		sl = measure()
		require.NoError(t, sl.err())
		assert.Equal(t, []any{int64(0), sl.length}, []any{sl.ops.Load(), sl.took}, "the message is lost")
		time.AfterFunc(5*time.Millisecond, func() { r.lost(t.Context(), errors.New("broken")) })
		for _, took := range []time.Duration{5 * time.Millisecond, 0} { // and it stays broken
			sl = measure()
			require.ErrorContains(t, sl.err(), "subscription: broken")
			assert.Equal(t, took, sl.took)
		}
	})
}

// Both sides take turns, in another order in each round; warming up does not count.
func TestTally(t *testing.T) {
	var order []string
	side := func(name string, ops int64) func(context.Context, *slice) {
		return func(_ context.Context, sl *slice) {
			order = append(order, name)
			sl.ops.Add(ops)
			sl.latency.add(time.Duration(ops))
			sl.took = sl.length
		}
	}
	all := []workload{{Handoffs, side("ours", 30), side("floor", 10)}}
	tally := newTally(Config{}, all)
	for round := range 4 {
		require.NoError(t, tally.measure(t.Context(), 0, round, time.Second, all[0]))
	}
	assert.Equal(t, strings.Fields("ours floor floor ours ours floor floor ours"), order)
	assert.Equal(t, Workload{Handoffs, Side{90, 3, 30, 0.03, 0.03, 0.03, 0.03}, Side{30, 3, 10, 0.01, 0.01, 0.01, 0.01}, Ratio{3, 3, 3}},
		tally.result(t.Context()).Workloads[0])

	tally = newTally(Config{}, all)
	for round, ops := range [][2]int64{{100, 100}, {50, 100}, {300, 100}, {7, 0}} { // the last one was cut short
		for side, n := range ops {
			sl := &slice{took: time.Second}
			sl.ops.Store(n)
			tally.add(0, side, round+1, sl)
		}
	}
	assert.Equal(t, Ratio{457.0 / 300, 0.5, 3}, tally.result(t.Context()).Workloads[0].Ratio)
}

// Percentiles are right to 1 %, and the longest is exact.
func TestHistogram(t *testing.T) {
	var one, two, both histogram
	var all []time.Duration
	for i := range 2001 {
		d := time.Duration(math.Exp(20 * rand.Float64()))
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
	for _, d := range []time.Duration{0, 1, 127, 128, 129, 1 << 40, math.MaxInt64} {
		var h histogram
		h.add(d)
		assert.InDelta(t, d, h.quantile(0.5), 0.01*float64(d))
		assert.LessOrEqual(t, h.quantile(1), d)
	}
	assert.Zero(t, (&histogram{}).quantile(0.99))
}

// The fields of the JSON are a promise to scripts.
func TestResult_TextAndJSON(t *testing.T) {
	r := Result{Kind: Semaphore, Permits: 5, Contenders: 64, Clients: 8, Rounds: 2, Interrupted: true, Workloads: []Workload{
		{PairsInTurn, Side{1, 1, 12345.6, 100, 200, 300, 4000}, Side{1, 1, 999, 1, 2, 3, 4}, Ratio{12.36, 12, 13}},
		{Handoffs, Side{1, 1, 1e6, 0, 0, 0, 0}, Side{}, Ratio{}},
	}}
	var plain, coloured strings.Builder
	require.NoError(t, r.Text(&plain, false))
	require.NoError(t, r.Text(&coloured, true))
	assert.Contains(t, coloured.String(), "\x1b[")
	r.Workloads = r.Workloads[:1]
	text, err := json.MarshalIndent(r, "", "  ")
	require.NoError(t, err)
	golden.Equal(t, "result.txt", plain.String()+"\n"+string(text)+"\n")
}
