package states_test

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/lab/states"
)

var (
	depth = flag.Int("depth", 4, "the length of the histories")
	most  = flag.Int("states", math.MaxInt, "how many states of each kind are enough")
	kinds = flag.String("kinds", "", "the kinds of locks, with commas; default: all")
)

// Two runs see the same states, however many servers share the work.
func TestExplore_SeesTheSame(t *testing.T) {
	a, b := redistest.Start(t).Client(), redistest.Start(t).Client()
	var results []states.Result
	for _, servers := range [][]*redis.Client{{a}, {a, b}} {
		r, err := states.Explore(states.Kinds()[0], 9, 700, servers, func(states.Result) {})
		require.NoError(t, err)
		results = append(results, r)
	}
	require.Equal(t, results[0], results[1])
	require.GreaterOrEqual(t, results[0].States, 700)
}

// Every history of a few requests, ends and losses, of three tokens that send every request at any time: after each
// script, what Redis has keeps the rules.
//
//fairlock:promise Every short history: of three clients of a lock, with every request at any time, late and sent twice, ends of leases and waiters, a clock that steps and the loss of each key; after each script what Redis has keeps the rules
//fairlock:promise Only the head: is granted; a waiter is dropped only if it has expired
//fairlock:promise No overtaking by TryLock
//fairlock:promise Every holder has its own lease
//fairlock:fault A holder crashes
//fairlock:fault A holder of permits crashes: they come back once, at the end of its lease, and not before; its late release gives nothing back
//fairlock:fault A renewal, a release or an acquire of a lease arrives late, after another process has resumed the lease: nothing changes
//fairlock:fault One key of a queue is lost: its waiters come back with their tickets, and can be passed until then
//fairlock:fault The key of the numbers is lost: ForceRelease takes the lock from all holders all the same; the next fence is above theirs
//fairlock:promise Fences: each above all earlier ones, across a clock that steps back and lost data; the last one is kept for FenceTTL
//fairlock:fault The server's clock steps back: order and fences hold
//fairlock:promise Order among permits
//fairlock:promise Two numbers of permits: each request is granted when no more than its own number are held with it; while one with the smaller number is the first, all others wait
//fairlock:promise Nothing stays
//fairlock:promise Nothing stays: eleven minutes after the last WaiterTTL has ended, or once the lock has been locked and unlocked without waiters, only its last number is left, for FenceTTL, tombstones for eleven minutes, and the number of permits of a semaphore that was resized
//fairlock:fault The head of the queue has expired and wants more than is free: one WaiterTTL, then those behind it that fit get in, though nothing is released
//fairlock:promise Resize: from then on the number counts for every client, whatever number it brings; no more are held than there are, but for holders from before there were fewer
//fairlock:promise Growing a semaphore: admits those that fit, in order, in its one request
//fairlock:promise A resized number: counts until ResetSize, or until Redis loses it
func TestStates(t *testing.T) {
	var servers []*redis.Client
	for range runtime.GOMAXPROCS(0) {
		servers = append(servers, redistest.Start(t).Client())
	}
	for _, k := range states.Kinds() {
		if *kinds != "" && !strings.Contains(","+*kinds+",", ","+k.Name+",") {
			continue
		}
		began := time.Now()
		r, err := states.Explore(k, *depth, *most, servers, func(r states.Result) {
			fmt.Printf("%s: all histories of %d steps: %d states, %d steps, %.0f s\n", k.Name, r.Depth, r.States, r.Steps,
				time.Since(began).Seconds())
		})
		require.NoError(t, err)
		told := map[string]bool{}
		for _, wrong := range r.Wrong { // the first history that breaks a rule
			if rule := strings.SplitN(wrong, ":", 3)[1]; !told[rule] {
				told[rule] = true
				t.Errorf("%s %s", k.Name, wrong)
			}
		}
	}
}
