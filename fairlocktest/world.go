package fairlocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"

	"github.com/fairlock/fairlock-go/fairlock"
)

// World has a server, and clients with faults, for the function of an Explore. Its methods are safe for concurrent use.
type World struct {
	// Server is the server. Faults of links do not affect its Locks, such as Server.Mutex returns. A Link that f makes
	// itself has only the server's faults.
	Server *Server

	t     *testing.T
	cfg   ExploreConfig
	seed  int
	tally *tally
	start time.Time
	calm  chan struct{}  // closed by Heal
	tasks sync.WaitGroup // the injection, and crashes under way
	limit clock.Timer

	mu      sync.Mutex
	healed  bool       // guarded by mu
	clients []*victim  // guarded by mu
	locks   []Lock     // guarded by mu: those that have been used
	down    int        // guarded by mu: how many faults under way stop the server
	lasting []*lasting // guarded by mu: faults under way

	noting  sync.Mutex // may be taken while mu is held
	history []string   // guarded by noting: what has happened
}

// lasting is a fault under way.
type lasting struct {
	end   func()
	timer clock.Timer
}

// timeoutFactor times Duration is how long the function of an Explore may take, in simulated time.
const timeoutFactor = 10

func newWorld(t *testing.T, cfg ExploreConfig, seed int, tried *tally) *World {
	t.Helper()
	// This Cleanup is the last one: t.Context has ended, and the clients are closed. Goroutines of f that still sleep end.
	t.Cleanup(func() { time.Sleep(cfg.Duration) }) //nolint:forbidigo // in a bubble
	w := &World{Server: NewServer(t), t: t, cfg: cfg, seed: seed, tally: tried, calm: make(chan struct{})}
	w.start = w.Server.clock.Now()
	w.limit = w.Server.clock.AfterFunc(timeoutFactor*cfg.Duration, w.overdue)
	w.tasks.Go(w.inject)
	return w
}

// Client returns a client over a link of its own, as Server.Client does, with the faults of this run. Its requests and
// replies take 0.1 to 0.5 ms each. It has a LocalClock, unless cfg.Clock is set.
//
// A client that crashes stays closed. Its calls return fairlock.ErrClosed, and its leases end with it, but nothing is
// sent to Redis. The code that used it goes on, and may continue as a new process does, with another Client. The last
// client does not crash.
//
// A client that is paused sends and receives nothing, and its timers stand still. The code that uses it goes on, though
// in a process that is paused it would stand still as well. Meanwhile no timer ends the ctx of a lease. Its Err and
// Done, and those of the lease, look at the clock when they are called.
//
// Work has workers whose processes stand still while they are paused, and are started again after a crash.
func (w *World) Client(cfg fairlock.Config) *Client {
	w.t.Helper()
	return w.client(cfg, false).Client
}

// client makes a client. own is true for that of a Worker.
func (w *World) client(cfg fairlock.Config, own bool) *victim {
	w.t.Helper()
	local := w.Server.LocalClock()
	if cfg.Clock == nil {
		cfg.Clock = local
	}
	cfg.Trace = w.trace(cfg.Trace, own)
	w.mu.Lock() // so that the order of the clients is that of their names
	defer w.mu.Unlock()
	v := &victim{Client: w.Server.Client(cfg), local: local}
	v.alive, v.die = context.WithCancelCause(w.t.Context())
	w.clients = append(w.clients, v)
	rng := rand.New(rand.NewPCG(uint64(w.seed), uint64(len(w.clients))))
	for i := range v.delays {
		v.delays[i] = 100*time.Microsecond + time.Duration(rng.Int64N(int64(350*time.Microsecond)))
	}
	v.Link.Jitter(50*time.Microsecond, rng) // so that no two packets arrive at the same instant
	v.apply()
	return v
}

// trace returns a Trace that notes and counts when leases begin and end, and calls the user's.
func (w *World) trace(user *fairlock.Trace, own bool) *fairlock.Trace {
	note := func(e fairlock.Event, fence uint64, what string) {
		w.record("    %s %s %s %s, fence %d", e.Token.Client(), what, e.Kind, e.Name, fence)
	}
	return fairlock.JoinTraces(&fairlock.Trace{
		Granted: func(i fairlock.GrantedInfo) {
			w.tally.granted(i.Event)
			note(i.Event, i.Fence, "is granted")
		},
		Ended: func(i fairlock.EndedInfo) {
			w.tally.ended(i, own)
			what := "does not know whether it has released"
			switch {
			case i.Err == nil:
				what = "releases"
			case errors.Is(i.Err, fairlock.ErrLost):
				what = "learns that it has lost"
			case errors.Is(i.Err, fairlock.ErrClosed), errors.Is(i.Err, fairlock.ErrDetached):
				return
			}
			note(i.Event, i.Fence, what)
		},
	}, user)
}

// Heal ends all faults, and no further ones come. Faults end by themselves after ExploreConfig.Duration, and when f
// returns. What has happened is not undone. A crashed client does not come back, a lost lease stays lost, Redis's clock
// keeps its steps, and data in transit keep their delay.
//
// After Heal, f asserts that its code makes progress. Crashed clients may still hold a lock or wait for it. So it can
// take TTL + WaiterTTL until the next one is granted the lock. Steps of Redis's clock back add to that. A minimum hold
// that is longer than TTL replaces TTL.
func (w *World) Heal() {
	w.heal()
	w.tasks.Wait()
}

func (w *World) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.healed {
		return
	}
	w.healed = true
	close(w.calm)
	for _, f := range w.lasting {
		f.timer.Stop()
		f.end()
	}
	for _, v := range w.clients {
		v.Link.set(func() { v.Link.dropRequests, v.Link.dropReplies = 0, 0 })
	}
	w.record("all faults have ended")
}

// close ends the run, even when its function panics.
func (w *World) close() {
	if r := recover(); r != nil {
		w.panicked(r)
	}
	w.Heal()
	w.limit.Stop()
}

// panicked prints the story of a run whose function has panicked. The panic goes on.
func (w *World) panicked(r any) {
	fmt.Fprintln(os.Stderr, w.failed())
	panic(r)
}

// overdue ends the process and shows where all goroutines are, as go test -timeout does.
func (w *World) overdue() {
	debug.SetTraceback("all")
	panic(fmt.Sprintf("fairlocktest: the function of Explore has not returned within %v of simulated time\n%s",
		timeoutFactor*w.cfg.Duration, w.failed()))
}

// inject injects the faults of the seed at their times.
func (w *World) inject() {
	for _, f := range draw(w.cfg, w.seed) {
		if !w.sleep(f.at) {
			return
		}
		w.begin(f)
	}
	if w.sleep(w.cfg.Duration) {
		w.heal()
	}
}

// sleep sleeps until some time after the start. It reports false if Heal was called before.
func (w *World) sleep(until time.Duration) bool {
	passed := make(chan struct{})
	timer := w.Server.clock.AfterFunc(until-w.since(), func() { close(passed) })
	defer timer.Stop()
	select {
	case <-passed:
		return true
	case <-w.calm:
		return false
	}
}

// since returns how long the run has lasted.
func (w *World) since() time.Duration { return w.Server.clock.Now().Sub(w.start) }

// record notes what has happened.
func (w *World) record(format string, args ...any) {
	w.noting.Lock()
	defer w.noting.Unlock()
	w.history = append(w.history, fmt.Sprintf("%10.3fs  %s", w.since().Seconds(), fmt.Sprintf(format, args...)))
}

// duringLocked begins a fault that lasts. It calls change with 1 now and with -1 when the fault ends.
func (w *World) duringLocked(f fault, what string, change func(n int)) {
	w.record("%s, for %v", what, short(f.lasts))
	change(1)
	l := &lasting{end: func() { change(-1) }}
	w.lasting = append(w.lasting, l)
	l.timer = w.Server.clock.AfterFunc(f.lasts, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if i := slices.Index(w.lasting, l); i >= 0 && !w.healed { // else Heal has ended it
			w.lasting = slices.Delete(w.lasting, i, i+1)
			l.end()
		}
	})
}

// livingLocked returns the clients that have not crashed.
func (w *World) livingLocked() (living []*victim) {
	for _, v := range w.clients {
		if !v.crashed.Load() {
			living = append(living, v)
		}
	}
	return living
}

// failed returns the story of a run that failed.
func (w *World) failed() string { return w.story("failed") }

// story returns what has happened in a run, and how to repeat it.
func (w *World) story(what string) string {
	w.noting.Lock()
	defer w.noting.Unlock()
	return fmt.Sprintf(
		"fairlocktest: seed %d %s. The faults and the leases, in simulated time:\n%s\n"+
			"To repeat it, in the directory of the test: %s",
		w.seed, what, strings.Join(w.history, "\n"), command(w.t.Name(), w.seed, w.cfg.Seeds))
}
