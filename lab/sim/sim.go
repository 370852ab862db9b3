// Package sim runs many clients of locks in simulated time. The server is in memory. Links, clocks, crashes and all
// other faults come from one seed.
//
// After each script of a lock, the lock's data in the server keep the rules of package rules. So a script that breaks
// the protocol is found as soon as a run exercises it, even after lost data. The history of the run, which is what
// clients have seen, is checked by package history. A few rules for clients are in rules.go.
//
// A run has two phases. In the safety phase faults occur. The seed determines the kinds of faults of a run and how
// often they come, the kinds of locks, and their use. In the liveness phase every fault has ended, and every waiter
// must be granted its lock within a bound. Then all clients close, and nothing may be left in Redis but fences.
//
// The same seed gives the same history. Each goroutine draws from a random source of its own. Every packet has a delay
// with nanoseconds of its own, so that no two arrive at one instant. The process has one processor (GOMAXPROCS=1). One
// thing is up to Go: if a Close or the end of a context wakes several goroutines of one client, which one goes first.
// So a seed with several workers in a client may differ from there on. Tokens are drawn from the seed as well.
package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/internal/tools/machine"
)

// All clients of a run have these TTLs. A few of their leases have longTTL.
const (
	ttl       = time.Second
	waiterTTL = bounds.MinWaiterTTL

	// So long that a queue that is kept for waiters with waiterTTL has to be kept for longer.
	visitorTTL = waiterTTL + 62*time.Second
)

// Config says what to run. The zero value of a field other than Seed stands for its default.
type Config struct {
	Seed    uint64
	For     time.Duration // the safety phase; default 5 s
	Clients int           // default 8, and 2 for every fourth seed: then many wait in one client
	Workers int           // of each client; default 24 of all, and 1 for every fourth seed: then few wait at a time
	Lock    string        // the only one, and any number may wait for it; default: drawn from the seed
	Keys    int           // of the keyed semaphore; default 5, 50 or 10,000, drawn from the seed
	Permits int           // of the semaphores; default 4
	Faults  []string      // the kinds of faults; default: drawn from the seed. In a Result those that were
}

// Result is what a run has shown.
type Result struct {
	Config Config
	Events []history.Event
	Run    history.Run
	Report *history.Report
	Faults []Fault
	Length time.Duration // of simulated time
	Rare   []int         // how often each of the rare states was reached
	Errs   []error       // violations, of liveness as well
}

// Fault is one fault that occurred.
type Fault struct {
	At   time.Duration // since the run began
	Text string
}

// world is one run.
type world struct {
	cfg     Config
	server  *fairlocktest.Server
	clock   fairlock.Clock // of this package: no goroutine of a run sleeps by another one
	start   time.Time
	chosen  []*fault // the kinds of faults of this run
	mix     mix
	targets []target
	tasks   sync.WaitGroup
	// when the server may run out of memory again, as Event.At: a run in which it always is grants nothing
	fullAgain int64
	asleep    time.Duration // how long all processes stood still; the safety phase is longer by that

	observer *observer
	admin    *redis.Client // of an operator whose link has no faults
	other    release       // of the clients in odd slots

	mu        sync.Mutex
	processes []*process      // guarded by mu: all, including crashed ones
	current   []*process      // guarded by mu: the live one of each slot
	events    []history.Event // guarded by mu
	run       history.Run     // guarded by mu
	faults    []Fault         // guarded by mu
	errs      []error         // guarded by mu
	jumps     []history.Span  // guarded by mu: when the server's clock has jumped, as seen by the scripts
	excuses   []history.Span  // guarded by mu: of excuse
	ending    bool            // guarded by mu: the liveness phase has begun
}

// Run runs one seed. t must be that of a testing/synctest bubble.
func Run(t *testing.T, cfg Config) *Result {
	t.Helper()
	if cfg.For == 0 {
		cfg.For = 5 * time.Second
	}
	if cfg.Clients == 0 {
		cfg.Clients = map[bool]int{true: 2, false: 8}[cfg.Seed%4 == 2]
	}
	if cfg.Workers == 0 {
		cfg.Workers = map[bool]int{true: 1, false: 24 / cfg.Clients}[cfg.Seed%4 == 0]
	}
	if cfg.Keys == 0 {
		cfg.Keys = []int{5, 5, 50, 10_000}[cfg.Seed/4%4]
	}
	if cfg.Permits == 0 {
		cfg.Permits = 4
	}
	cryptotest.SetGlobalRandom(t, cfg.Seed) // for tokens
	w := &world{cfg: cfg, server: fairlocktest.NewServer(t), start: time.Now(), targets: targetsOf(cfg.Permits)}
	w.run = history.Run{TTL: ttl, WaiterTTL: waiterTTL, Capacity: map[string]int{"semaphore": cfg.Permits,
		"keyed": cfg.Permits, "rwmutex": 1 << 30}}
	w.clock = w.server.LocalClock()
	w.admin, w.other = w.server.Link().Redis(), newRelease()
	w.observer = observe(w)
	w.chosen, w.mix = w.choose(), w.draw()
	w.cfg.Faults = nil
	for _, f := range w.chosen {
		w.cfg.Faults = append(w.cfg.Faults, f.name)
	}
	w.current = make([]*process, cfg.Clients)
	for slot := range cfg.Clients {
		w.launch(slot)
	}
	w.safety()
	w.liveness()
	return w.result()
}

// safety lets faults occur for the length of the phase, and ends them all.
func (w *world) safety() {
	random := w.random("faults")
	between := min(time.Duration(random.IntN(400)+50)*time.Millisecond, w.cfg.For/4) // on average, in this run
	for {
		w.sleep(exponential(random, between))
		if !time.Now().Before(w.start.Add(w.cfg.For+w.asleep)) || len(w.chosen) == 0 {
			break
		}
		w.server.StepClock(0) // so that keys expire that are due
		w.observer.look()     // before the fault changes what is in the server
		w.chosen[random.IntN(len(w.chosen))].occur(w, random)
	}
	w.sleep(time.Until(w.start.Add(w.cfg.For + w.asleep)))
}

// grantedWithin is how long a waiter may take to be granted its lock once all faults have ended. Crashed leases and
// waiters expire, and each of the others holds the lock for a while.
func (w *world) grantedWithin() time.Duration {
	holds := time.Duration(w.cfg.Clients*w.cfg.Workers) * (5*longestHold + longestMinHold)
	return 2*ttl + longTTL + 3*waiterTTL + holds + longestStep
}

// liveness ends all faults and waits until all workers have been granted what they wait for, and have ended.
func (w *world) liveness() {
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	w.tasks.Wait() // for faults, which end by themselves
	for _, t := range w.targets {
		for w.resize(t, 0) != nil {
		}
	}
	w.mu.Lock()
	current := slices.Clone(w.current)
	w.mu.Unlock()
	deadline := time.Now().Add(w.grantedWithin())
	for _, p := range current {
		p.finish()
	}
	for _, p := range current {
		p.waitUntil(deadline, func(text string) { w.fail("liveness: %s", text) })
	}
	w.sleep(2 * time.Second) // until what failed was sent again
	for _, p := range current {
		p.talk.checkLeft()
	}
	w.mu.Lock()
	all := slices.Clone(w.processes)
	w.mu.Unlock()
	for _, p := range all {
		p.close()
		p.leased.check()
	}
	w.sleep(visitorTTL + 11*time.Minute + w.observer.back + 2*time.Second) // until what is kept of queues is over
	w.server.StepClock(0)                                                  // so that keys expire that are due
	for _, key := range w.server.Miniredis.Keys() {
		if !strings.HasSuffix(key, ":number") {
			w.fail("liveness: %s is left in Redis", key)
		}
	}
}

func (w *world) isEnding() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ending
}

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

func (w *world) result() *Result {
	w.observer.stop()
	w.run.Server = w.observer.events
	w.checkSuspects()
	r := &Result{Config: w.cfg, Events: w.events, Run: w.run, Faults: w.faults, Length: time.Since(w.start),
		Rare: w.observer.rare}
	r.Report = history.Check(r.Events, r.Run)
	if err := r.Report.Err(); err != nil {
		w.errs = append(w.errs, err)
	}
	r.Errs = w.errs
	return r
}

// random returns a source for one purpose: what one goroutine draws does not depend on what others have drawn.
func (w *world) random(purpose string) *rand.Rand {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, purpose)
	return rand.New(rand.NewPCG(w.cfg.Seed, hash.Sum64()))
}

// sleep sleeps by a clock.
func sleep(c fairlock.Clock, d time.Duration) {
	over := make(chan struct{})
	c.AfterFunc(d, func() { close(over) })
	<-over
}

func (w *world) sleep(d time.Duration) { sleep(w.clock, d) }

// now is the time of an Event.
func (w *world) now() int64 { return int64(time.Since(w.start)) + 1 } // 0 stands for none

func (w *world) record(e history.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.At = w.now()
	w.events = append(w.events, e)
}

// occurred notes a fault.
func (w *world) occurred(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, Fault{time.Since(w.start), fmt.Sprintf(format, args...)})
}

// update changes what is known of the run.
func (w *world) update(f func(*history.Run)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.run)
}

// launch starts a new client, with its workers, in a slot.
func (w *world) launch(slot int) {
	w.mu.Lock()
	p := &process{world: w, number: len(w.processes), slot: slot, end: make(chan struct{}), leased: newBalance(w)}
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	random := w.random(fmt.Sprint("process ", p.number))
	p.rate = 1 - random.Float64()*0.0099 // slower than Redis's clock by less than 1 %, which the safety margin allows for
	p.clock = machine.Clock{LocalClock: w.server.LocalClock()}
	p.clock.SetRate(p.rate)
	maxWaiters := max(0, random.IntN(12)-8)
	if w.cfg.Lock != "" {
		maxWaiters = 0
	}
	p.client = w.server.Client(fairlock.Config{
		Name: p.name(), TTL: ttl, WaiterTTL: waiterTTL, Clock: p.clock,
		FenceTTL: []time.Duration{fenceTTL, otherFenceTTL}[random.IntN(2)], MaxWaiters: maxWaiters,
		Trace: fairlock.JoinTraces(p.leased.trace(), p.trace()), Logger: slog.New(slog.DiscardHandler),
	})
	p.talk = newConversation(p)
	p.client.Redis.AddHook(p.talk)
	if slot%2 == 1 {
		p.client.Redis.AddHook(w.other)
	}
	p.client.Link.Jitter(time.Duration(random.IntN(2000)+20)*time.Microsecond, w.random(fmt.Sprint("link ", p.number)))
	w.mu.Lock()
	w.current[slot] = p
	w.mu.Unlock()
	for i := range w.cfg.Workers {
		p.workers.Go(func() { p.work(i) })
	}
}

// exponential draws from an exponential distribution with that mean, cut off at five times the mean.
func exponential(random *rand.Rand, mean time.Duration) time.Duration {
	return min(time.Duration(random.ExpFloat64()*float64(mean)), 5*mean) + 1
}

// upTo draws a duration up to most.
func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most))) + 1
}
