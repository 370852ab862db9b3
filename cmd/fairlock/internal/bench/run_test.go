package bench

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/locks"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
)

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// inBubble runs a test in simulated time. A request takes 1 ms to the server in memory, and its reply 1 ms back.
func inBubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server, b *bubble)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		test(t, s, &bubble{server: s})
	})
}

// bubble makes the connections of a run.
type bubble struct {
	server *fairlocktest.Server
	links  []*fairlocktest.Link
}

func (b *bubble) connect(context.Context) (redis.UniversalClient, error) {
	c := b.server.Client(fairlock.Config{})
	c.Link.Delay(time.Millisecond, time.Millisecond)
	b.links = append(b.links, c.Link)
	return c.Redis, nil
}

func quiet(string) {}

// A slice lasts 10 ms: time for two locks and unlocks, one after the other, and for the beginning of a third.
func TestRun_Counts(t *testing.T) {
	for _, cfg := range []Config{
		{Type: locks.Type{Kind: fairlock.KindMutex}, Contenders: 3, Clients: 3},
		{Type: locks.Type{Kind: fairlock.KindMutex}, Contenders: 1, Clients: 1},
		{Type: locks.Type{Kind: fairlock.KindSemaphore, Permits: 2}, Contenders: 3, Clients: 2},
		{Type: locks.Type{Kind: fairlock.KindRWMutex}, Contenders: 4, Clients: 2},
	} {
		t.Run(cfg.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *fairlocktest.Server, b *bubble) {
				cfg.Duration = 300 * time.Millisecond
				r, err := Run(t.Context(), cfg, b.connect, "fairlock", quiet)
				require.NoError(t, err)
				assert.Equal(t, []any{rounds, false}, []any{r.Rounds, r.Interrupted})
				for i, ops := range []int64{10, 10 * int64(cfg.Contenders)} {
					assert.Equal(t, Ratio{1, 1, 1}, r.Workloads[i].Ratio)
					for _, side := range []Side{r.Workloads[i].Fairlock, r.Workloads[i].Floor} {
						assert.Equal(t, ops, side.Ops)
						assert.InEpsilon(t, float64(ops)/0.05, side.PerSecond, 1e-9)
						for _, us := range []float64{side.P50, side.P90, side.P99, side.Max} {
							assert.InEpsilon(t, 4000, us, 0.001)
						}
					}
				}
				h := r.Workloads[2]
				assert.InEpsilon(t, 2000, h.Floor.P50, 0.001, "a message goes to Redis and to the next client")
				if cfg.Contenders == 1 {
					assert.Equal(t, []any{int64(10), 0.0}, []any{h.Fairlock.Ops, h.Fairlock.Max}, "no waiters")
				} else {
					assert.InEpsilon(t, 2000, h.Fairlock.P90, 0.001, "a handoff does the same")
				}
				assert.Empty(t, s.Miniredis.Keys(), "nothing is left")
			})
		})
	}
}

// What was measured until then is there, that of the slice under way, too, and nothing is left in Redis.
func TestRun_EndsEarly(t *testing.T) {
	cfg := Config{Type: locks.Type{Kind: fairlock.KindMutex}, Contenders: 3, Clients: 3, Duration: 600 * time.Millisecond}
	inBubble(t, func(t *testing.T, s *fairlocktest.Server, b *bubble) {
		endsAt := func(what string, end func()) (Result, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			return Run(ctx, cfg, b.connect, "fairlock", func(progress string) {
				if progress == what && end == nil {
					time.AfterFunc(11*time.Millisecond, cancel)
				} else if progress == what {
					end()
				}
			})
		}
		r, err := endsAt("warming up: handoffs", nil)
		require.NoError(t, err)
		assert.Empty(t, r.Workloads)
		r, err = endsAt("round 1 of 5: handoffs", nil)
		require.NoError(t, err)
		assert.Equal(t, []any{true, 0}, []any{r.Interrupted, r.Rounds})
		assert.Equal(t, []int64{4, 5, 0}, []int64{r.Workloads[0].Fairlock.Ops, r.Workloads[2].Fairlock.Ops,
			r.Workloads[2].Floor.Ops})
		assert.InDelta(t, 0.012, r.Workloads[2].Fairlock.Seconds, 1e-9, "requests under way are completed")
		assert.Empty(t, s.Miniredis.Keys())

		r, err = endsAt("round 2 of 5: pairs-in-turn", s.Stop)
		require.ErrorContains(t, err, "refused")
		assert.Equal(t, []any{false, 1}, []any{r.Interrupted, r.Rounds})
		_, err = endsAt("", nil)
		require.ErrorContains(t, err, "subscribe: ")

		s.Start() // all contenders wait when Redis goes
		start := time.Now()
		_, err = endsAt("round 1 of 5: handoffs", func() { time.AfterFunc(5*time.Millisecond, s.Stop) })
		require.ErrorContains(t, err, "fairlock: ")
		assert.Less(t, time.Since(start), time.Minute)

		s.Start()
		_, err = endsAt("round 1 of 5: handoffs", func() { b.links[len(b.links)-1].DropNotifications() })
		require.ErrorContains(t, err, "PUBLISH, delivery: ", "a message of the floor is lost")
	})
}

// Both sides are measured in turn, in another order in each round.
func TestWorkload_Measure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		takes := map[string]time.Duration{"floor": 10 * time.Millisecond}
		side := func(name string) Side {
			return newSide(name, 1, func(context.Context, int) (time.Duration, error) {
				order = append(order, name)
				time.Sleep(takes[name])
				return takes[name], nil
			})
		}
		w := Workload{Fairlock: side("ours"), Floor: side("floor")}
		for round, took := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 5 * time.Millisecond} {
			takes["ours"] = took
			require.NoError(t, w.measure(t.Context(), round, 201*time.Millisecond))
		}
		assert.Equal(t, []string{"ours", "floor", "ours", "floor"}, slices.Compact(order))
		assert.Equal(t, []int64{20 + 10 + 40, 60}, []int64{w.Fairlock.Ops, w.Floor.Ops})
		assert.InDeltaSlice(t, []float64{70.0 / 60, 0.5, 2}, []float64{w.Ratio.All, w.Ratio.Low, w.Ratio.High}, 1e-9)
	})
}

// The fields of the JSON are a promise to scripts.
func TestResult_TextAndJSON(t *testing.T) {
	cfg := Config{Type: locks.Type{Kind: fairlock.KindSemaphore, Permits: 5}, Contenders: 64, Clients: 8}
	all := (&stage{Config: cfg}).workloads()
	r := Result{Config: cfg, Rounds: 2, Interrupted: true, Workloads: []Workload{all[0], all[2]}}
	w := &r.Workloads[0]
	w.Fairlock.Ops, w.Fairlock.Seconds, w.Fairlock.PerSecond = 1, 1, 12345.6
	w.Fairlock.P50, w.Fairlock.P90, w.Fairlock.P99, w.Fairlock.Max, w.Ratio = 100, 200, 300, 4000, Ratio{12.36, 12, 13}
	text := r.String()
	r.Workloads = r.Workloads[:1]
	doc, err := json.MarshalIndent(r, "", "  ")
	require.NoError(t, err)
	golden.Equal(t, "result.txt", text+"\n"+string(doc)+"\n")
}
