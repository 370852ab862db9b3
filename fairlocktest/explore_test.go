package fairlocktest_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// careless deposits as the example does, but leaves out what it does not have.
type careless struct{ readsFenced, writesFenced, endsWithLease, checksCtx bool }

func (c careless) deposit(ctx context.Context, client *fairlock.Client, a *account,
	approve func(context.Context) error) error {
	return client.Mutex("account:42").Do(ctx, func(working context.Context) error {
		lease, _ := fairlock.LeaseFromContext(working)
		a.mu.Lock()
		balance := a.balance
		a.mu.Unlock()
		if c.readsFenced {
			if _, err := a.read(lease.Fence()); err != nil {
				return err
			}
		}
		if !c.endsWithLease {
			working = ctx // that of the process: what is written is written when its caller is told by ErrLost
		}
		if err := approve(working); err != nil {
			return err
		}
		if c.checksCtx && working.Err() != nil {
			return context.Cause(working)
		}
		if c.writesFenced {
			return a.write(lease.Fence(), balance+1)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.balance = balance + 1
		a.deposits++
		return nil
	})
}

// checksCtx is right while leases do not overlap.
var checksCtx = careless{endsWithLease: true, checksCtx: true}.deposit

// bugs are the example, broken on purpose.
var bugs = map[string]depositor{
	"checks its ctx":  checksCtx,
	"reads unfenced":  careless{writesFenced: true, endsWithLease: true}.deposit,
	"writes unfenced": careless{readsFenced: true, endsWithLease: true}.deposit,
	"ignores ErrLost": careless{}.deposit,
}

// failing are other ways to fail.
var failing = map[string]func(t *testing.T, w *fairlocktest.World){
	"panics": func(*testing.T, *fairlocktest.World) { panic("oops") },
	"never ends": func(_ *testing.T, w *fairlocktest.World) {
		w.Server.Mutex("x").HoldAs("other")
		select {}
	},
	"leaves a goroutine": func(*testing.T, *fairlocktest.World) { go func() { <-make(chan int) }() },
	"worker panics": func(_ *testing.T, w *fairlocktest.World) {
		w.Work(1, fairlock.Config{}, func(context.Context, *fairlocktest.Worker) error { panic("oops") })
	},
	"real connection": func(t *testing.T, w *fairlocktest.World) {
		w.Server.Mutex("x").HoldAs("other")
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, _ = listener.Accept()
	},
	"endless loop": func(_ *testing.T, w *fairlocktest.World) {
		w.Server.Mutex("x").HoldAs("other")
		var over atomic.Bool
		for !over.Load() {
		}
	},
	"short work": shortWork,
}

// shortWork has workers that hold a lock for no time, so no fault reaches them.
func shortWork(_ *testing.T, w *fairlocktest.World) {
	w.Work(2, fairlock.Config{}, func(ctx context.Context, p *fairlocktest.Worker) error {
		return p.Mutex("x").TryDo(ctx, func(context.Context) error { return nil })
	})
}

// TestExplored fails, in processes of other tests.
func TestExplored(t *testing.T) {
	if os.Getenv("FAIRLOCKTEST_CHILD") == "" {
		t.Skip("it fails")
	}
	for name, deposit := range bugs {
		failing[name] = func(t *testing.T, w *fairlocktest.World) { noDepositIsLost(t, w, deposit) }
	}
	for name, run := range failing {
		t.Run(name, func(t *testing.T) {
			cfg := fairlocktest.ExploreConfig{Seeds: 20}
			if name == "short work" {
				cfg = fairlocktest.ExploreConfig{Seeds: 2, Faults: fairlocktest.NotificationLoss}
			}
			fairlocktest.Explore(t, cfg, run)
		})
	}
}

// The number of seeds is that of the test, whatever the caller's environment says.
func TestMain(m *testing.M) {
	if os.Getenv("FAIRLOCKTEST_CHILD") == "" {
		_ = os.Unsetenv("FAIRLOCKTEST_SEEDS")
	}
	m.Run()
}

// explored runs a part of TestExplored in a process, and returns what it prints. An option is a flag, or a variable of
// the environment.
func explored(t *testing.T, run string, options ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", run)
	command.Env = append(os.Environ(), "FAIRLOCKTEST_CHILD=1", "FAIRLOCKTEST_SEEDS=")
	for _, option := range options {
		if strings.HasPrefix(option, "-") {
			command.Args = append(command.Args, option)
		} else {
			command.Env = append(command.Env, option)
		}
	}
	out, err := command.CombinedOutput()
	require.Error(t, err, "the process did not fail:\n%s", out)
	require.NotContains(t, "\n"+string(out), "\nredis: ", "go-redis's own lines")
	return string(out)
}

var report = regexp.MustCompile(
	`seed \d+ (?:failed|still runs.*)\. The faults and the leases, in simulated time:\n(?:\s+\d+\.\d{3}s  .*\n)*\s*To repeat it, in the directory of the test: (.*)go test -count=1 -run '(\S+)'`)

// lastLine is what Explore has tried.
var lastLine = regexp.MustCompile(
	`(?m)^ +\w+_test\.go:\d+: [\d,]+ seeds?: [\d,]+ grants?, [\d,]+ leases? lost while held, ` +
		`[\d,]+ times? two clients believed to hold one lock, [\d,]+ crash(es)?(; no fault reached your code: let its work last longer than TTL)?$`)

// Explore finds each bug in the example with one of 20 seeds. The command that it prints finds it again.
//
//fairlock:promise Explore finds bugs: a worker that relies on a lease alone, ignores ErrLost, or leaves out its fence when it reads or writes is found, and the seed and the faults are printed
func TestExplore_FindsBugs(t *testing.T) {
	t.Parallel()
	out := explored(t, "^TestExplored$/(check|read|write|ignore)")
	for name := range bugs {
		name = strings.ReplaceAll(name, " ", "_")
		assert.Regexp(t, `(?s)Not equal.*?TestExplored/`+name+`/seed=\d+\n.*?seed \d+ failed`, out)
	}
	require.Len(t, report.FindAllString(out, -1), len(bugs), out)
	require.Len(t, lastLine.FindAllString(out, -1), len(bugs), out)
	for _, what := range []string{"is granted", "learns that it has lost", "releases"} {
		assert.Regexp(t, `s      client-\d `+what+` mutex account:42, fence \d+\n`, out)
	}
	// A seed does not decide the order of the workers' steps at the same instant, on which it depends whether the other
	// bug shows.
	repeat := regexp.MustCompile(`-run '(\S+reads_unfenced\S+)'`).FindStringSubmatch(out)
	require.NotNil(t, repeat, out)
	assert.Contains(t, explored(t, repeat[1]), repeat[1])

	guide, err := os.ReadFile("../docs/testing.md") // it shows a report, without most of its lines
	require.NoError(t, err)
	assert.Regexp(t, report, strings.ReplaceAll(string(guide), "…\n", "\n"))
}

// A run that panics, never ends or leaves a goroutine behind tells its seed and its faults. The environment variable
// overrides how many seeds there are.
func TestExplore_Reports(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"panics":             "panic: oops",
		"never ends":         "the function of Explore has not returned within 10m0s of simulated time",
		"leaves a goroutine": "blocked goroutines remain",
		"worker panics":      "panic: oops",
	} {
		out := explored(t, "^TestExplored$/^"+strings.ReplaceAll(name, " ", "_")+"$/^seed=21$", "FAIRLOCKTEST_SEEDS=21")
		assert.Contains(t, out, want)
		found := report.FindStringSubmatch(out)
		require.NotNil(t, found, out)
		assert.Equal(t, "FAIRLOCKTEST_SEEDS=21 ", found[1], "without it, there is no seed 21")
	}
	assert.Contains(t, explored(t, "^TestExplored$/panics", "FAIRLOCKTEST_SEEDS=many"),
		`must be a number from 1, not "many"`)
}

// A run that uses a real connection, or loops, tells its seed and its story before go test's timeout ends it.
func TestExplore_Watchdog(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"real_connection", "endless_loop"} {
		out := explored(t, "^TestExplored$/^"+name+"$/^seed=3$", "-test.timeout=2s")
		found := report.FindStringIndex(out)
		require.NotNil(t, found, out)
		assert.Contains(t, out[:found[1]], "seed 3 still runs, shortly before go test's timeout")
		assert.Contains(t, out[found[1]:], "panic: test timed out after 2s")
	}
}

// If no lease of World's own workers is lost with any seed, the test fails, unless that is meant, or some seeds alone
// are run. Of the workers of a test's own, the last line says so.
//
//fairlock:promise Explore says what it has tried: grants, leases that were lost while held, clients that believed to hold one lock, crashes; it fails if no lease of the workers that it runs was lost
func TestExplore_NoFaultReachesTheCode(t *testing.T) {
	t.Parallel()
	out := explored(t, "^TestExplored$/short_work")
	assert.Regexp(t, `fairlocktest: no fault reached your code: let its work last longer than TTL, as Worker\.Busy does\.`,
		out)
	assert.Regexp(t, `2 seeds: \d+ grants, 0 leases lost while held, 0 times .*; no fault reached your code: let its work`,
		lastLine.FindString(out))
	assert.NotContains(t, out, "To repeat it")

	cfg := fairlocktest.ExploreConfig{Seeds: 2, Faults: fairlocktest.NotificationLoss, AllowNoLoss: true}
	fairlocktest.Explore(t, cfg, shortWork)
	cfg.AllowNoLoss = false
	fairlocktest.Explore(t, cfg, func(t *testing.T, w *fairlocktest.World) { lock(t, w.Client(fairlock.Config{})) })
	repeat := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^TestExplored$/short_work/^seed=2$")
	repeat.Env = append(os.Environ(), "FAIRLOCKTEST_CHILD=1", "FAIRLOCKTEST_SEEDS=")
	one, err := repeat.CombinedOutput()
	require.NoError(t, err, "%s", one)
	assert.Regexp(t, `: 1 seed: .*; no fault reached your code`, lastLine.FindString(string(one)))
}

// Without the faults after which leases overlap, a worker that shows no fence is right if it looks at its ctx.
func TestExplore_OverlapFaults(t *testing.T) {
	t.Parallel()
	faults := fairlocktest.AllFaults &^ fairlocktest.OverlapFaults
	fairlocktest.Explore(t, fairlocktest.ExploreConfig{Seeds: 10, Faults: faults},
		func(t *testing.T, w *fairlocktest.World) {
			noDepositIsLost(t, w, checksCtx)
			assert.Contains(t, w.Tried(), " 0 times two clients believed to hold one lock, ")
		})
}

//fairlock:promise Explore repeats: the same seed injects the same faults at the same simulated times
func TestExplore_SameSeedSameFaults(t *testing.T) {
	t.Parallel()
	var runs [2][][]string
	approve := func(context.Context) error {
		time.Sleep(2 * time.Second)
		return nil
	}
	for i := range runs {
		fairlocktest.Explore(t, fairlocktest.ExploreConfig{Seeds: 3}, func(t *testing.T, w *fairlocktest.World) {
			for range 3 {
				client := w.Client(fairlock.Config{})
				go func() {
					for t.Context().Err() == nil {
						_ = deposit(t.Context(), client.Client, &account{}, approve)
						time.Sleep(time.Second)
					}
				}()
			}
			time.Sleep(20 * time.Second)
			runs[i] = append(runs[i], w.Faults())
		})
	}
	require.NotEmpty(t, runs[0]) // with -failfast, none is run after another test has failed
	assert.Equal(t, runs[0], runs[1])
	assert.NotEqual(t, runs[0][0], runs[0][1])
}

// Each seed has some of the kinds of fault that are asked for, and together they have all. No run loses data and steps
// Redis's clock back: fences could fall then.
func TestExplore_DrawsKinds(t *testing.T) {
	var all fairlocktest.Faults
	stepsBack := false
	for seed := range 100 {
		kinds, back := fairlocktest.Schedule(seed, fairlocktest.ExploreConfig{Duration: 10 * time.Minute})
		assert.NotEqual(t, fairlocktest.AllFaults, kinds)
		assert.False(t, back && kinds&fairlocktest.DataLoss != 0)
		all, stepsBack = all|kinds, stepsBack || back
		kinds, _ = fairlocktest.Schedule(seed, fairlocktest.ExploreConfig{Faults: fairlocktest.OverlapFaults})
		assert.Zero(t, kinds&^fairlocktest.OverlapFaults)
	}
	assert.Equal(t, fairlocktest.AllFaults, all)
	assert.True(t, stepsBack)
	assert.Equal(t, "DataLoss|Latency", (fairlocktest.DataLoss | fairlocktest.Latency).String())
}

// quietly runs a test in a World that has no faults of its own.
func quietly(t *testing.T, test func(t *testing.T, w *fairlocktest.World, client *fairlocktest.Client)) {
	t.Helper()
	const ever = 10000 * time.Hour
	cfg := fairlocktest.ExploreConfig{Seeds: 1, Duration: ever, MaxOutage: ever, AllowNoLoss: true}
	fairlocktest.Explore(t, cfg, func(t *testing.T, w *fairlocktest.World) { test(t, w, w.Client(fairlock.Config{})) })
}

// ping returns how long a PING takes.
func ping(client *fairlocktest.Client) (time.Duration, error) {
	start := time.Now()
	err := client.Redis.Ping(context.Background()).Err()
	return time.Since(start).Truncate(10 * time.Millisecond), err
}

// lasting are the kinds of fault that last.
var lasting = []fairlocktest.Faults{
	fairlocktest.ServerDown, fairlocktest.ConnectionCut, fairlocktest.ConnectionHang, fairlocktest.ClientPause,
	fairlocktest.Latency, fairlocktest.NotificationLoss,
}

func TestWorld_FaultsOfConnections(t *testing.T) {
	quietly(t, func(t *testing.T, w *fairlocktest.World, client *fairlocktest.Client) {
		clients := []*fairlocktest.Client{client, w.Client(fairlock.Config{})}
		for _, kind := range lasting {
			for i, c := range clients { // the other one has only the faults of the server
				_, _ = ping(c) // connects
				fairlocktest.Inject(w, kind, 2*time.Second, 0)
				w.Server.Mutex("x").AssertFree() // which has no faults
				switch took, err := ping(c); {
				case kind == fairlocktest.ServerDown, kind == fairlocktest.ConnectionCut && i == 0:
					require.ErrorContains(t, err, "connection refused", kind)
				case kind == fairlocktest.NotificationLoss, i == 1:
					assert.Zero(t, took, kind)
				default:
					assert.Equal(t, 2*time.Second, took, kind)
				}
				time.Sleep(2001 * time.Millisecond)
				took, err := ping(c)
				require.NoError(t, err, kind)
				assert.Zero(t, took, kind)
			}
		}
		fairlocktest.Inject(w, fairlocktest.RequestLoss, 0, 0)
		assert.Equal(t, int64(1), client.Redis.Incr(t.Context(), "n").Val(), "go-redis sends it again")
		fairlocktest.Inject(w, fairlocktest.ReplyLoss, 0, 0)
		assert.Equal(t, int64(3), client.Redis.Incr(t.Context(), "n").Val(), "go-redis sends it again")
	})
}

func TestWorld_OtherFaults(t *testing.T) {
	quietly(t, func(t *testing.T, w *fairlocktest.World, client *fairlocktest.Client) {
		x := w.Server.Mutex("x")
		lease := lock(t, client)
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		fairlocktest.Inject(w, fairlocktest.ClientPause, time.Minute, 0)
		time.Sleep(59 * time.Second)
		x.AssertFree()
		require.ErrorIs(t, ctx.Err(), context.Canceled, "no timer has fired, but it looks at the clock")

		lease = lock(t, client)
		fairlocktest.Inject(w, fairlocktest.ClientCrash, 0, 0)
		time.Sleep(time.Millisecond)
		require.NoError(t, lease.Err(), "the last client does not crash")
		w.Client(fairlock.Config{})
		fairlocktest.Inject(w, fairlocktest.ConnectionCut, time.Second, 0)
		fairlocktest.Inject(w, fairlocktest.ClientCrash, 0, 0)
		<-lease.Done()
		require.ErrorIs(t, lease.Err(), fairlock.ErrClosed)
		time.Sleep(2 * time.Second)
		_, err := ping(client)
		require.ErrorContains(t, err, "connection refused", "although the cut is over")
		x.AssertHeldBy("client-1")
		fairlocktest.Inject(w, fairlocktest.ClockStep, 0, 0)
		assert.Equal(t, time.Second, time.Until(w.Server.Now()))
		fairlocktest.Inject(w, fairlocktest.DataLoss, 0, 0)
		x.AssertFree()

		for _, kind := range []fairlocktest.Faults{fairlocktest.LeaseExpiry, fairlocktest.ForcedRelease} {
			locks := []fairlocktest.Lock{x, w.Server.RWMutex("{50%7B}"), w.Server.Mutex("y").In("shop")}
			for i, l := range locks {
				l.HoldAs("holder")
				fairlocktest.Inject(w, kind, 0, i) // in the order of their keys
				l.AssertFree()
			}
		}
	})
}

func TestWorld_Heal(t *testing.T) {
	quietly(t, func(t *testing.T, w *fairlocktest.World, client *fairlocktest.Client) {
		for _, kind := range append(lasting, fairlocktest.ReplyLoss, fairlocktest.RequestLoss) {
			fairlocktest.Inject(w, kind, time.Hour, 0)
			fairlocktest.Inject(w, kind, time.Minute, 0)
		}
		time.Sleep(2 * time.Minute)
		_, err := ping(client)
		require.Error(t, err, "the longer one of two goes on")
		w.Heal()
		assert.Equal(t, int64(1), client.Redis.Incr(t.Context(), "n").Val(),
			"a reply was lost, and go-redis has sent it again")
		fairlocktest.Inject(w, fairlocktest.ServerDown, time.Hour, 0)
		for range 2 {
			took, err := ping(client)
			require.NoError(t, err)
			assert.Zero(t, took)
			time.Sleep(time.Hour)
		}
	})
}
