package sim //nolint:testpackage // the kinds of faults are no business of others

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"

	"github.com/fairlock/fairlock-go/internal/tools/history"
)

var (
	seedFlag = flag.Uint64("seed", 0, "run this seed and print its story; with -sim-for, the first of those to run")
	forFlag  = flag.Duration("sim-for", 0, "run seed after seed for so long, and print how many grants were checked")
	stride   = flag.Uint64("sim-stride", 1,
		"with -sim-for, the distance between two seeds: the number of processes that share the work")
	repeatsFlag = flag.Uint64("sim-repeats", 0,
		"how many seeds of the default configuration TestSim_Repeats runs twice, without -race")
	phase     = flag.Duration("sim-phase", 5*time.Second, "the length of the safety phase, in simulated time")
	kinds     = flag.String("sim-faults", "", "the kinds of faults, with commas; default: drawn from the seed")
	failedDir = flag.String("sim-failed", "failed", "the directory for the stories of seeds that fail with -sim-for")
)

func TestMain(m *testing.M) {
	flag.Parse()
	names := map[string]bool{"": true}
	for _, f := range faults {
		names[f.name] = true
	}
	for name := range strings.SplitSeq(*kinds, ",") {
		if !names[name] {
			fatal("-sim-faults: %q is none of %q", name, slices.Sorted(maps.Keys(names))[1:])
		}
	}
	if *forFlag < 0 || *phase <= 0 || *stride == 0 || *seedFlag > 1<<62 {
		fatal("-sim-for, -sim-phase and -sim-stride must be above 0, and -seed at most 2^62")
	}
	runtime.GOMAXPROCS(1) // the order of goroutines that are ready at one instant is that in which they became ready
	debug.SetGCPercent(800)
	lua.RegistrySize, lua.CallStackSize = 1024, 64 // of the server in memory, which makes them anew for each script
	m.Run()
}

func fatal(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(2)
}

// config is that of a seed, as the flags say.
func config(seed uint64) Config {
	cfg := Config{Seed: seed, For: *phase}
	if *kinds != "" {
		cfg.Faults = strings.Split(*kinds, ",")
	}
	return cfg
}

// run runs one seed.
func run(t *testing.T, cfg Config) *Result {
	t.Helper()
	var r *Result
	defer func() {
		if r == nil { // a panic, or a bubble in which nothing happens any more
			fmt.Fprintf(os.Stderr, "seed %d has not ended\n", cfg.Seed)
		}
	}()
	synctest.Test(t, func(t *testing.T) { r = Run(t, cfg) })
	return r
}

// skipIfAsked skips a test if the flags ask for another one.
func skipIfAsked(t *testing.T) {
	t.Helper()
	if *seedFlag != 0 || *forFlag != 0 {
		t.Skip("another test was asked for")
	}
}

// The seeds of the test that is part of every run: many wait in one client, many in all, few. And how long their safety
// phases are.
var seeds = []uint64{6, 3, 8}

const shortFor = 700 * time.Millisecond

// enough is how long TestFor has to run to reach each of the rare states.
const enough = 10 * time.Minute

// Clients, links, the server and its clock fail at random. Exclusion, order, fences and every reply are right all the
// same, every waiter is granted its lock once the faults have ended, and nothing is left.
//
//fairlock:promise Simulation: many clients under random faults, by seed: exclusion, order, fences, replies, progress, and nothing left
//fairlock:promise Trace balances
//fairlock:fault ctx ends
func TestSim(t *testing.T) {
	skipIfAsked(t)
	grants := 0
	for _, seed := range seeds {
		r := run(t, Config{Seed: seed, For: shortFor})
		grants += r.Report.Grants
		for _, err := range r.Errs {
			t.Errorf("seed %d (%s): %v", seed, command(r), err)
		}
	}
	require.Greater(t, grants, 100*len(seeds))
}

// Case 12 of keyed semaphores: ten thousand keys, three clients, random holds and failures. After each script the rules
// say which key is next; no key is forgotten.
//
//fairlock:promise Turns between keys
//fairlock:promise Limits of a keyed semaphore
func TestSim_ManyKeys(t *testing.T) {
	skipIfAsked(t)
	r := run(t, Config{
		Seed: 6, For: 2 * time.Second, Lock: "keyed", Keys: 10_000, Permits: 32, Clients: 3, Workers: 40,
		Faults: []string{"reply lost", "connections break", "link slow", "link cut", "process crashes", "client closed",
			"key lost", "data lost", "semaphore resized"},
	})
	keys := map[string]bool{}
	for _, e := range r.Events {
		keys[e.Key] = e.Op == history.Request || keys[e.Key]
	}
	require.Greater(t, len(keys), 400)
	require.Greater(t, r.Report.Grants, 200)
	for _, err := range r.Errs {
		t.Error(err)
	}
}

// One seed, with its story: go test ./lab/sim -seed 4711 -v.
func TestSeed(t *testing.T) {
	if *seedFlag == 0 || *forFlag != 0 {
		t.Skip("no -seed")
	}
	r := run(t, config(*seedFlag))
	fmt.Print(tell(r))
	for _, err := range r.Errs {
		t.Error(err)
	}
}

// Seed after seed for a while, or until one fails: make sim.
func TestFor(t *testing.T) {
	if *forFlag == 0 {
		t.Skip("no -sim-for")
	}
	var grants, runs int
	reached := make([]int, len(rare))
	seed := max(1, *seedFlag)
	began, first := time.Now(), seed
	for ; time.Since(began) < *forFlag && !t.Failed(); seed += *stride {
		r := run(t, config(seed))
		grants += r.Report.Grants
		runs++
		for i, n := range r.Rare {
			reached[i] += n
		}
		if len(r.Errs) > 0 {
			save(t, r)
		}
	}
	fmt.Printf("seeds %d to %d: %d seeds, %d grants checked in %v (%.0f a minute), %v with faults\n",
		first, seed-*stride, runs, grants, time.Since(began).Round(time.Second), float64(grants)/time.Since(began).Minutes(),
		time.Duration(runs)**phase)
	for i, n := range reached {
		fmt.Printf("%8d times: %s\n", n, rare[i].name)
		assert.True(t, n > 0 || *forFlag < enough || *kinds != "", "never reached: %s", rare[i].name)
	}
}

// command is how the story of a seed is told again. With several processors, or with -race, Go's scheduler decides
// more.
func command(r *Result) string {
	return fmt.Sprintf("GOMAXPROCS=1 go test ./lab/sim -v -seed %d -sim-phase %v", r.Config.Seed, r.Config.For)
}

// save writes the story of a seed that has failed, and says whether it repeats.
func save(t *testing.T, r *Result) {
	t.Helper()
	repeats := "its story repeats"
	if again := run(t, Config{Seed: r.Config.Seed, For: r.Config.For}); !slices.Equal(canonical(r.Events),
		canonical(again.Events)) {
		repeats = "its story differs from run to run"
	}
	require.NoError(t, os.MkdirAll(*failedDir, 0o755))
	name := filepath.Join(*failedDir, fmt.Sprintf("%d.txt", r.Config.Seed))
	require.NoError(t, os.WriteFile(name, []byte(tell(r)), 0o644))
	t.Errorf("seed %d (%s), story in %s, %s: %v", r.Config.Seed, command(r), name, repeats, r.Errs[0])
}

// A seed repeats its story with one processor and without -race. New code must see to that: no two of its timers are
// due at one instant by different clocks, no map's order decides, and where one event wakes several goroutines, no rule
// depends on which runs first. GOMAXPROCS=1 go test ./lab/sim -run Repeats -sim-repeats 50 tries fifty seeds of the
// default configuration.
func TestSim_Repeats(t *testing.T) {
	skipIfAsked(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	configs := []Config{{Seed: 101, Workers: 1}, {Seed: 103, Workers: 1}, {Seed: 106, Workers: 1}} // also with -race
	for seed := range *repeatsFlag {
		configs = append(configs, Config{Seed: seed + 1})
	}
	for _, cfg := range configs {
		cfg.For = shortFor / 2
		a, b := canonical(run(t, cfg).Events), canonical(run(t, cfg).Events)
		for i := range min(len(a), len(b)) {
			require.Equal(t, a[i], b[i], "seed %d, event %d", cfg.Seed, i)
		}
		assert.Len(t, b, len(a))
	}
}

// canonical returns events in an order that does not depend on which of two goroutines recorded first at one instant.
func canonical(events []history.Event) []history.Event {
	all := slices.Clone(events)
	slices.SortStableFunc(all, func(a, b history.Event) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Process, b.Process), cmp.Compare(a.Call, b.Call))
	})
	return all
}

// Faults of one kind only, of every kind: what the others could hide shows.
func TestSim_EachFault(t *testing.T) {
	skipIfAsked(t)
	for i, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			r := run(t, Config{Seed: uint64(i) + 1000, For: shortFor / 2, Clients: 2, Workers: 2, Faults: []string{f.name}})
			assert.NotEmpty(t, r.Faults)
			assert.Positive(t, r.Report.Grants)
			for _, err := range r.Errs {
				t.Error(err)
			}
		})
	}
}
