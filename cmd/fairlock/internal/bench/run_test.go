package bench

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

func clients(t *testing.T, s *redistest.Server, n int) []Client {
	t.Helper()
	all := make([]Client, n)
	for i := range all {
		rdb := s.Client()
		locks, err := fairlock.New(rdb, fairlock.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { locks.Close() })
		all[i] = Client{Redis: rdb, Locks: locks}
	}
	return all
}

func quiet(string) {}

// calls is how often the server has run a command.
func calls(t *testing.T, rdb *redis.Client, command string) int64 {
	t.Helper()
	text, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, rest, called := strings.Cut(text, "cmdstat_"+command+":calls=")
	if !called {
		return 0
	}
	number, _, _ := strings.Cut(rest, ",")
	n, err := strconv.ParseInt(number, 10, 64)
	require.NoError(t, err)
	return n
}

// What is said to have been done was done on the server, for every kind; and nothing is left of it.
func TestWhatIsCountedWasDone(t *testing.T) {
	for _, cfg := range []Config{
		{Kind: Mutex, Contenders: 6, Clients: 3},
		{Kind: Semaphore, Permits: 2, Contenders: 6, Clients: 3},
		{Kind: RW, Contenders: 8, Clients: 2},
		{Kind: Mutex, Contenders: 1, Clients: 1},
		{Kind: Mutex, Contenders: 2, Clients: 4},
	} {
		t.Run(string(cfg.Kind)+strconv.Itoa(cfg.Contenders), func(t *testing.T) {
			s := redistest.Start(t)
			observer := s.Client()
			cfg.Duration = 600 * time.Millisecond
			r, err := Run(t.Context(), clients(t, s, cfg.Clients), "fairlock", cfg, quiet)
			require.NoError(t, err)
			assert.Equal(t, rounds, r.Rounds)
			assert.False(t, r.Interrupted)
			var ours, floor int64
			for _, w := range r.Workloads {
				for _, side := range []Side{w.Fairlock, w.Floor} {
					assert.Positive(t, side.Ops, w.Name)
					assert.InDelta(t, 0.1, side.Seconds, 0.001, "an equal share of the time")
					assert.InDelta(t, float64(side.Ops)/side.Seconds, side.PerSecond, 0.001)
					assert.LessOrEqual(t, side.P50, side.P90)
					assert.LessOrEqual(t, side.P90, side.P99)
					assert.LessOrEqual(t, side.P99, side.Max)
				}
				assert.InDelta(t, w.Fairlock.PerSecond/w.Floor.PerSecond, w.Ratio.All, 1e-9)
				assert.LessOrEqual(t, w.Ratio.Low, w.Ratio.High)
				ours += w.Fairlock.Ops
				if w.Name != Handoffs {
					floor += w.Floor.Ops
				}
			}
			assert.GreaterOrEqual(t, calls(t, observer, "set"), floor, "SET NX")
			assert.GreaterOrEqual(t, calls(t, observer, "evalsha"), 2*ours+floor, "lock, unlock, compare-and-delete")
			assert.GreaterOrEqual(t, calls(t, observer, "publish"), r.Workloads[2].Floor.Ops)
			assert.Empty(t, observer.Keys(t.Context(), "*").Val())
		})
	}
}

// Whoever waits is timed from the release; who did not is not, though the grant counts.
func TestTheLatencyOfAHandOffIsFromTheReleaseToTheNextOneIn(t *testing.T) {
	s := redistest.Start(t)
	st := newStage(clients(t, s, 1), "fairlock", Config{Kind: Mutex, Contenders: 1})
	alone := begin(time.Second)
	st.handoffs(t.Context(), alone)
	require.NoError(t, alone.err())
	assert.Positive(t, alone.ops.Load())
	assert.Zero(t, alone.latency.max(), "nobody waited")

	st = newStage(clients(t, s, 2), "fairlock", Config{Kind: Mutex, Contenders: 8})
	crowd := begin(time.Second)
	st.handoffs(t.Context(), crowd)
	require.NoError(t, crowd.err())
	ops, waited := crowd.ops.Load(), crowd.latency.n.Load()
	assert.LessOrEqual(t, waited, ops)
	assert.Greater(t, waited, ops/4, "once eight are there, somebody always waits")
	mean := float64(crowd.took) / float64(ops)
	assert.Less(t, float64(crowd.latency.quantile(0.5)), 4*mean, "no more than one turn, whatever the queue")
}

// Both sides take turns, in another order in each round; warming up does not count.
func TestBothSidesTakeTurns(t *testing.T) {
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
	r := tally.result(t.Context())
	assert.Equal(t, Side{Ops: 90, Seconds: 3, PerSecond: 30, P50: 0.03, P90: 0.03, P99: 0.03, Max: 0.03}, r.Workloads[0].Fairlock)
	assert.Equal(t, Side{Ops: 30, Seconds: 3, PerSecond: 10, P50: 0.01, P90: 0.01, P99: 0.01, Max: 0.01}, r.Workloads[0].Floor)
	assert.Equal(t, Ratio{3, 3, 3}, r.Workloads[0].Ratio)
}

func TestTheRatiosSpreadIsThatOfTheRounds(t *testing.T) {
	tally := newTally(Config{}, []workload{{name: Handoffs}})
	for round, ops := range [][2]int64{{100, 100}, {50, 100}, {300, 100}, {7, 0}} { // the last one was cut short
		for side, n := range ops {
			sl := &slice{took: time.Second}
			sl.ops.Store(n)
			tally.add(0, side, round+1, sl)
		}
	}
	r := tally.result(t.Context())
	assert.InDelta(t, 0.5, r.Workloads[0].Ratio.Low, 1e-9)
	assert.InDelta(t, 3, r.Workloads[0].Ratio.High, 1e-9)
	assert.InDelta(t, 457.0/300, r.Workloads[0].Ratio.All, 1e-9)
}

// Who has had enough gets what was measured, soon, and nothing is left of it.
func TestAnInterruptedRunTellsWhatItHas(t *testing.T) {
	s := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var began time.Time
	r, err := Run(ctx, clients(t, s, 2), "fairlock", Config{Kind: Mutex, Contenders: 8, Clients: 2, Duration: time.Minute},
		func(what string) {
			if strings.HasPrefix(what, "round 1 of 5: "+Handoffs) { // which take 2 s
				began = time.Now()
				time.AfterFunc(700*time.Millisecond, cancel)
			}
		})
	lasted := time.Since(began).Seconds()
	require.NoError(t, err)
	assert.True(t, r.Interrupted)
	assert.False(t, r.Empty())
	assert.Positive(t, r.Workloads[1].Ratio.All)
	assert.Zero(t, r.Rounds)
	assert.Positive(t, r.Workloads[2].Fairlock.Ops+r.Workloads[2].Floor.Ops, "the slice under way")
	assert.LessOrEqual(t, r.Workloads[2].Floor.Seconds, lasted, "and for as long as it lasted")
	assert.Zero(t, r.Workloads[2].Fairlock, "not begun")
	assert.Empty(t, s.Client().Keys(t.Context(), "*").Val())
	assert.True(t, Result{}.Empty())
}

// What is under way gets a moment, and what it says after that is no error.
func TestWhoHasHadEnoughDoesNotWaitForWhatHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sl := begin(time.Minute)
	time.AfterFunc(10*time.Millisecond, cancel)
	var atOnce atomic.Bool
	sl.each(ctx, 3, func(work context.Context, _ int) error {
		<-ctx.Done()
		if work.Err() != nil {
			atOnce.Store(true)
		}
		<-work.Done()
		return work.Err()
	})
	require.NoError(t, sl.err())
	assert.False(t, atOnce.Load(), "what is under way gets a moment")
	assert.Less(t, sl.took, time.Minute)
}

// An error ends it, and what was measured before is there.
func TestAnErrorEndsARun(t *testing.T) {
	s := redistest.Start(t)
	observer := s.Client()
	r, err := Run(t.Context(), clients(t, s, 1), "fairlock", Config{Kind: Mutex, Contenders: 2, Clients: 1, Duration: 2 * time.Second},
		func(what string) {
			if strings.HasPrefix(what, "round 2 of 5: "+PairsInTurn) {
				observer.ConfigSet(t.Context(), "maxmemory", "1")
			}
		})
	require.ErrorContains(t, err, "OOM")
	assert.Equal(t, 1, r.Rounds)
	assert.False(t, r.Interrupted)
	assert.Empty(t, observer.Keys(t.Context(), "*").Val())
}

// When the server dies, those who wait for a lock would wait on.
func TestADeadServerEndsARunAlsoIfSomebodyWaits(t *testing.T) {
	s := redistest.Start(t)
	st := newStage(clients(t, s, 2), "fairlock", Config{Kind: Mutex, Contenders: 8})
	sl := begin(time.Minute)
	time.AfterFunc(100*time.Millisecond, s.Kill)
	start := time.Now()
	st.handoffs(t.Context(), sl)
	require.Error(t, sl.err())
	assert.Less(t, time.Since(start), 40*time.Second, "less than it should have taken")
}

func TestTheFloorOfHandOffsIsAMessageThatGoesRound(t *testing.T) {
	s := redistest.Start(t)
	st := newStage(clients(t, s, 3), "fairlock", Config{Kind: Mutex, Contenders: 3})
	r, err := newRelay(t.Context(), st)
	require.NoError(t, err)
	defer r.end()
	channel := r.channel
	assert.Equal(t, channel(0), channel(3), "round and round")

	first := begin(time.Second)
	r.measure(t.Context(), first)
	require.NoError(t, first.err())
	assert.Positive(t, first.ops.Load())
	assert.Equal(t, first.ops.Load(), first.latency.n.Load(), "each that counts is timed")
	st.client(0).Redis.Publish(t.Context(), channel(0), "a message of an earlier slice")
	second := begin(time.Second)
	r.measure(t.Context(), second)
	require.NoError(t, second.err())
	assert.Positive(t, second.ops.Load())
}

func TestASubscriptionThatBreaksIsAnError(t *testing.T) {
	s := redistest.Start(t)
	st := newStage(clients(t, s, 2), "fairlock", Config{Kind: Mutex, Contenders: 2})
	r, err := newRelay(t.Context(), st)
	require.NoError(t, err)
	defer r.end()
	sl := begin(time.Minute)
	time.AfterFunc(20*time.Millisecond, func() { r.lost(t.Context(), errors.New("broken")) })
	r.measure(t.Context(), sl)
	require.ErrorContains(t, sl.err(), "subscription: broken")
	assert.Less(t, sl.took, time.Minute)

	next := begin(time.Minute)
	r.measure(t.Context(), next)
	require.ErrorContains(t, next.err(), "subscription: broken")
	assert.Less(t, next.took, time.Minute)
}

func TestAMessageThatGetsLostEndsItsSlice(t *testing.T) {
	s := redistest.Start(t)
	r := &relay{stage: newStage(clients(t, s, 1), "fairlock", Config{Kind: Mutex, Contenders: 1})} // nobody has subscribed
	sl := begin(10 * time.Millisecond)
	r.measure(t.Context(), sl)
	require.NoError(t, sl.err())
	assert.Zero(t, sl.ops.Load())
	assert.Equal(t, sl.length, sl.took)
}

func TestWithoutTheChannelThereIsNoFloor(t *testing.T) {
	s := redistest.Start(t)
	require.NoError(t, s.Client().Do(t.Context(), "acl", "setuser", "default", "resetchannels").Err())
	_, err := Run(t.Context(), clients(t, s, 1), "fairlock", Config{Kind: Mutex, Contenders: 1, Clients: 1, Duration: time.Second}, quiet)
	require.ErrorContains(t, err, "floor: subscribe: NOPERM")
}

func TestConfigBounds(t *testing.T) {
	good := Config{Kind: Mutex, Contenders: 1, Clients: 1, Duration: MinDuration}
	require.NoError(t, good.Check())
	for want, change := range map[string]func(*Config){
		"kind":       func(c *Config) { c.Kind = "spinlock" },
		"permits":    func(c *Config) { c.Kind = Semaphore },
		"contenders": func(c *Config) { c.Contenders = 0 },
		"clients":    func(c *Config) { c.Clients = MaxClients + 1 },
		"duration":   func(c *Config) { c.Duration = MinDuration - 1 },
	} {
		c := good
		change(&c)
		assert.ErrorContains(t, c.Check(), want)
	}
}

func TestTheTextShowsBothSides(t *testing.T) {
	r := Result{Kind: Semaphore, Permits: 5, Contenders: 64, Clients: 8, Rounds: 2, Interrupted: true, Workloads: []Workload{
		{PairsInTurn, Side{1, 1, 12345.6, 100, 200, 300, 4000}, Side{1, 1, 999, 1, 2, 3, 4}, Ratio{12.36, 12, 13}},
		{Handoffs, Side{1, 1, 1e6, 0, 0, 0, 0}, Side{}, Ratio{}},
	}}
	var b strings.Builder
	require.NoError(t, r.Text(&b, false))
	assert.Equal(t, `semaphore of 5, 64 contenders over 8 clients, 2 of 5 rounds

                            per second         p50         p90         p99         max
lock and unlock of free locks, one after the other
  fairlock                      12,346    0.100 ms    0.200 ms    0.300 ms    4.000 ms
  SET NX, compare-and-delete       999    0.001 ms    0.002 ms    0.003 ms    0.004 ms
  12.36 of the floor (12.00 to 13.00 by round)
hand-offs of one lock among 64
  fairlock                   1,000,000           -           -           -           -
  PUBLISH, wake-up                   -
  of the floor: nothing to compare

interrupted: this is what was measured until then
`, b.String())
	b.Reset()
	require.NoError(t, r.Text(&b, true))
	assert.Contains(t, b.String(), "\x1b[")
}
