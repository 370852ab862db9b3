//go:build unix

// Package chaos runs processes that lock, use and unlock mutexes on a real redis-server under random faults, and checks
// the recorded history. See README.md.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/lab/chaos/internal/monitor"
	"github.com/fairlock/fairlock-go/lab/chaos/internal/proxy"
	"github.com/fairlock/fairlock-go/lab/chaos/internal/skew"
)

const (
	ttl       = 1200 * ms // of all clients, unless the scenario says otherwise
	waiterTTL = bounds.MinWaiterTTL

	processes = 6
	workersIn = 8 // each process
	lockCount = 6
)

// trial is one run of a scenario: its servers, processes of workers, and the faults.
type trial struct {
	t         *testing.T
	scenario  Scenario
	seed      uint64
	dir       string // of the logs
	locks     []string
	servers   []*redistest.Server
	server    *redistest.Server            // the only one; nil if there are several
	cluster   *redistest.Cluster           // nil if it is none
	homes     map[string]*redistest.Server // by lock: its master in the cluster
	replicas  []replicated                 // a primary and its replicas
	sentinels []*redis.SentinelClient      // that watch them
	losable   []string                     // locks whose data a failover may lose; nil: all
	addrs     []string                     // by which clients reach the servers, as in redis.UniversalOptions
	master    string                       // as there: what the sentinels call the primary
	rdb       redis.UniversalClient        // without faults
	clock     *skew.Clock                  // the server's; nil if the scenario is not skewed
	slots     []*slot
	monitor   *monitor.Monitor // of the only server

	over    context.Context // ends when nothing more is to go wrong
	serving sync.Mutex      // held while something is done to the server

	mu     sync.Mutex
	run    history.Run    // guarded by mu
	counts map[string]int // guarded by mu: what has happened
	stood  time.Duration  // guarded by mu: how long redis-server stood still in all
	all    []*process     // guarded by mu: their numbers are their places
	steps  []clockStep    // guarded by mu
	log    []history.Note // guarded by mu: what was done
}

// slot is a place for a process, with a network of its own. If the process is killed, another one takes its place.
type slot struct {
	id    int
	proxy *proxy.Proxy // nil: the network works

	mu      sync.Mutex // held while something is done to the process
	process *process   // guarded by mu

	disturbed   sync.Mutex     // held while the network is worse than always
	numbers     []int          // guarded by the trial's mu: of its processes
	unreachable []history.Span // guarded by the trial's mu: when its processes were
}

// clockStep is one of the server's clock.
type clockStep struct {
	at time.Time
	by time.Duration
}

// Test runs a scenario, scale times as long as its short form.
func (s Scenario) Test(t *testing.T, seed uint64, scale float64) {
	w := newTrial(t, s, seed)
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	for _, s := range w.servers {
		watching.Go(func() { w.watch(ctx, s.Client()) })
	}
	w.causeFaults(scale)
	w.end()
	w.testProgress()
	w.testNothingLeft()
	stop()
	watching.Wait()
	w.check(scale)
}

// newTrial starts the servers and the processes.
func newTrial(t *testing.T, s Scenario, seed uint64) *trial {
	t.Helper()
	w := &trial{t: t, scenario: s, seed: seed, counts: map[string]int{}, dir: logDir(t, s.Name, seed)}
	w.run = history.Run{TTL: cmp.Or(s.ttl, ttl), WaiterTTL: cmp.Or(s.ttl, waiterTTL), ClockBack: s.skewed || s.split}
	for i := range lockCount {
		w.locks = append(w.locks, fmt.Sprintf("lock%d", i))
	}
	if s.skewed {
		var err error
		w.clock, err = skew.New(t.TempDir())
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, w.clock.Close()) })
		for name, value := range w.clock.Env() {
			t.Setenv(name, value)
		}
	}
	if s.topology == nil {
		s.topology = oneServer
	}
	s.topology(w)
	w.rdb = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: w.addrs, MasterName: w.master})
	t.Cleanup(func() { _ = w.rdb.Close() })
	for i := range processes {
		slot := &slot{id: i}
		if s.net != nil {
			var err error
			slot.proxy, err = proxy.New(w.server.Network(), w.server.Addr())
			require.NoError(t, err)
			slot.proxy.Set(*s.net)
			t.Cleanup(func() { assert.NoError(t, slot.proxy.Close()) })
		}
		w.slots = append(w.slots, slot)
		require.NoError(t, w.startLocked(slot))
	}
	return w
}

// logDir is where the logs of a run are written. They stay if it fails, or if CHAOS_KEEP names a directory for them.
func logDir(t *testing.T, name string, seed uint64) string {
	t.Helper()
	keep := os.Getenv("CHAOS_KEEP")
	if keep != "" {
		require.NoError(t, os.MkdirAll(keep, 0o755))
	}
	dir, err := os.MkdirTemp(keep, fmt.Sprintf("chaos-%s-%d-", strings.ReplaceAll(name, " ", "-"), seed)) //nolint:usetesting // it outlives a test that fails
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() || keep != "" {
			t.Logf("seed %d; the logs are in %s", seed, dir)
			return
		}
		assert.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

// startLocked starts a new process in a slot, whose mu is held unless no other goroutine knows it.
func (t *trial) startLocked(s *slot) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	cfg := childConfig{
		workersConfig: workersConfig{
			Process: len(t.all), Workers: workersIn, Locks: t.locks, TTL: t.run.TTL, WaiterTTL: t.run.WaiterTTL,
			Calm: t.scenario.calm, Lossy: t.scenario.lossy, Outlast: t.scenario.ttl > 0, Seed: t.seed,
		},
		Addrs: t.addrs, Master: t.master, Logs: t.dir,
	}
	if s.id < 2 {
		cfg.Slow = 10 // as slow as it may be
	}
	if s.proxy != nil {
		cfg.Addrs = []string{s.proxy.Addr()}
	}
	p, err := startProcess(t.t, cfg, func(r report) { t.reported(cfg.Process, r) })
	if err != nil {
		return err
	}
	s.process = p
	t.all = append(t.all, p)
	s.numbers = append(s.numbers, cfg.Process)
	return nil
}

// reported notes what a process reports.
func (t *trial) reported(number int, r report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r.Event {
	case "paused":
		t.run.Unreachable = append(t.run.Unreachable, history.Span{Process: number, From: r.From, To: r.To})
		t.counts["a process stood still by itself"]++
	case "ended":
		t.counts["handoffs used without a request"] += int(r.Handoffs)
		t.counts["notifications lost"] += int(r.NotificationsLost)
	}
}

func (t *trial) count(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what]++
}

// unreachable notes that no process could reach Redis for a while.
func (t *trial) unreachable(from, to int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run.Unreachable = append(t.run.Unreachable, history.Span{Process: history.All, From: from, To: to})
}

// happened counts and logs what was done from some time until now.
func (t *trial) happened(what string, from int64) {
	t.count(what)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, history.Note{At: from, Text: fmt.Sprintf("FAULT   %s, for %v", what, time.Duration(now()-from))})
}

// sleep sleeps for d, or until nothing more is to go wrong.
func (t *trial) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.over.Done():
	}
}

// causeFaults lets everything go wrong for its time, and for up to three times that until it has happened often enough.
func (t *trial) causeFaults(scale float64) {
	d := time.Duration(float64(t.scenario.duration) * scale)
	ctx, cancel := context.WithTimeout(context.Background(), 3*d)
	defer cancel()
	t.over = ctx
	var all sync.WaitGroup
	errs := make([]error, len(t.scenario.faults))
	for i, f := range t.scenario.faults {
		all.Go(func() {
			d := newDice(t.seed, f.name)
			for errs[i] == nil {
				t.sleep(d.between(f.least, f.most))
				if ctx.Err() != nil {
					return
				}
				errs[i] = f.cause(t, d)
			}
		})
	}
	for t.sleep(d); ctx.Err() == nil; t.sleep(d / 20) {
		events, err := readEvents(t.dir)
		require.NoError(t.t, err)
		if len(t.lacking(t.counted(events), scale)) == 0 {
			break
		}
	}
	cancel()
	all.Wait()
	require.NoError(t.t, errors.Join(errs...))
	for _, s := range t.slots {
		if s.proxy != nil {
			s.proxy.Set(proxy.Faults{})
		}
	}
}

// watch notes when a redis-server stood still by itself, as happens on a busy machine, until ctx ends.
func (t *trial) watch(ctx context.Context, rdb *redis.Client) {
	for last := now(); ctx.Err() == nil; {
		time.Sleep(stillness / 4)
		err := rdb.Ping(ctx).Err() // it may be down
		at := now()
		if err == nil && at-last > int64(stillness) {
			t.unreachable(last, at)
			t.count("redis-server stood still by itself, or was stopped")
			t.mu.Lock()
			t.stood += time.Duration(at - last)
			t.mu.Unlock()
		}
		last = at
	}
}

// stopwatch returns a function that returns the time since now, without pauses of redis-server.
func (t *trial) stopwatch() func() time.Duration {
	stood := func() time.Duration {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.stood
	}
	began, before := time.Now(), stood()
	return func() time.Duration { return time.Since(began) - (stood() - before) }
}

// stepped is how much longer leases and tickets may last now, because the server's clock was stepped back meanwhile.
func (t *trial) stepped() time.Duration {
	var sum time.Duration
	for _, s := range slices.Backward(t.steps) {
		if time.Since(s.at) > t.run.TTL+t.run.WaiterTTL+sum+sec {
			break
		}
		sum += max(0, -s.by)
	}
	return sum
}

// end lets the workers finish, or kills them, and returns when none is left. Those that wait must be granted their
// locks soon.
func (t *trial) end() {
	t.t.Helper()
	if t.scenario.finish {
		for _, s := range t.slots {
			s.process.order(finish)
		}
		within := t.run.TTL + t.run.WaiterTTL + t.stepped() + 3*sec
		deadline := time.Now().Add(within)
		for _, s := range t.slots {
			if !closedWithin(s.process.ended, time.Until(deadline)) {
				t.t.Errorf("process %d: its workers were not granted their locks within %v", s.process.cfg.Process, within)
			}
		}
	}
	for _, s := range t.slots {
		t.kill(s)
	}
	for _, p := range t.all {
		assert.Empty(t.t, p.stderr.String(), "process %d", p.cfg.Process)
	}
}

// testProgress tests that every lock can be taken, even if holders and waiters have crashed.
func (t *trial) testProgress() {
	t.t.Helper()
	client, err := fairlock.New(t.rdb, fairlock.Config{
		TTL: t.run.TTL, WaiterTTL: t.run.WaiterTTL, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t.t, err)
	defer client.Close()
	within := max(t.run.TTL, t.run.WaiterTTL) + t.stepped() + sec
	if t.scenario.net != nil {
		within += t.scenario.net.Delay // a renewal of a killed holder may come so late
	}
	ctx, cancel := context.WithTimeout(context.Background(), within+10*sec)
	defer cancel()
	var all sync.WaitGroup
	since := t.stopwatch()
	for _, name := range t.locks {
		all.Go(func() {
			err := client.Mutex(name).Do(ctx, func(context.Context) error { return nil })
			took := since()
			if took > within {
				time.Sleep(stillness) // that redis-server stood still may not be known at once
				took = min(took, since()-stillness)
			}
			if err != nil || took > within {
				t.t.Errorf("%s cannot be locked within %v, but in %v: %v", name, within, took, err)
			}
		})
	}
	all.Wait()
}

// testNothingLeft tests that no lock is held or has waiters.
func (t *trial) testNothingLeft() {
	t.t.Helper()
	stay := map[string]bool{}
	for _, name := range t.locks {
		keys := script.KeysOf("mutex", bounds.DefaultNamespace, name)
		stay[keys.Part("number")], stay[keys.Part("heartbeats")], stay[keys.Part("tombstones")] = true, true, true
	}
	within := t.run.TTL + t.run.WaiterTTL + t.stepped() + sec
	clients := make([]*redis.Client, len(t.servers))
	for i, s := range t.servers {
		clients[i] = s.Client()
	}
	var left []string
	for since := t.stopwatch(); since() < within; time.Sleep(20 * ms) { // keys expire
		var all []string
		for _, rdb := range clients {
			keys, err := rdb.Keys(context.Background(), "*").Result()
			require.NoError(t.t, err)
			all = append(all, keys...)
		}
		if left = slices.DeleteFunc(all, func(key string) bool { return stay[key] }); len(left) == 0 {
			return
		}
	}
	t.t.Errorf("left in Redis after %v: %v", within, left)
}

// counted is what has happened, with what the networks did and what the workers recorded.
func (t *trial) counted(events []history.Event) map[string]int {
	t.mu.Lock()
	counts := maps.Clone(t.counts)
	t.mu.Unlock()
	for _, s := range t.slots {
		if s.proxy == nil {
			continue
		}
		c := s.proxy.Counts()
		counts["requests lost"] += c.Requests
		counts["replies lost"] += c.Replies
		counts["requests late"] += c.Late
		counts["messages to mute subscriptions"] += c.Muted
		counts["connections reset"] += c.Reset
		counts["connections silent"] += c.Silent
	}
	for _, e := range events {
		counts["events: "+string(e.Op)]++
	}
	return counts
}

// lacking returns what has not happened as often as it must.
func (t *trial) lacking(counts map[string]int, scale float64) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(t.scenario.least)) {
		if least := max(1, int(float64(t.scenario.least[name])*scale)); counts[name] < least {
			list = append(list, fmt.Sprintf("%s: %d, less than %d", name, counts[name], least))
		}
	}
	return list
}
