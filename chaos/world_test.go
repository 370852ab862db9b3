package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
	"github.com/fairlock/fairlock-go/chaos/internal/monitor"
	"github.com/fairlock/fairlock-go/chaos/internal/proxy"
	"github.com/fairlock/fairlock-go/chaos/internal/skew"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// All clients of a run have these.
const (
	ttl      = 1200 * time.Millisecond
	patience = 900 * time.Millisecond // other than ttl, so that one taken for the other shows
)

// kind is a kind of run on a redis-server: what goes wrong in it, and how often.
type kind struct {
	name   string
	args   []string      // of the server
	skewed bool          // the server's clock can be stepped
	net    *proxy.Faults // of every process, always; nil: no proxies
	calm   bool          // Redis and the way to it are as they should be
	robbed bool          // Redis may take a lease away
	actors []actor
	wakes  bool           // wake-ups get through
	spare  bool           // in the end the workers end by themselves; otherwise they are killed
	short  time.Duration  // how long it goes wrong in the short form
	least  map[string]int // of what must have happened at least in the short form: it goes wrong until then
}

// actor makes one thing go wrong, again and again.
type actor struct {
	name  string
	least time.Duration // between two times
	most  time.Duration
	do    func(w *world, d dice) error
}

// world is a server, processes of workers, and what goes wrong.
type world struct {
	t       *testing.T
	kind    kind
	seed    uint64
	dir     string // of the logs
	locks   []string
	server  *redistest.Server
	rdb     *redis.Client // undisturbed
	clock   *skew.Clock   // the server's; nil if the kind is not skewed
	slots   []*slot
	witness *monitor.Monitor

	over    context.Context // ends when nothing more is to go wrong
	serving sync.Mutex      // held while something is done to the server

	mu        sync.Mutex
	run       history.Run    // guarded by mu
	quiet     []history.Loss // guarded by mu: of Redis, while nobody asked who did not wait
	counts    map[string]int // guarded by mu: what has happened
	still     time.Duration  // guarded by mu: for how long redis-server stood still in all
	processes int            // guarded by mu: so many were started
	all       []*process     // guarded by mu
	steps     []step         // guarded by mu: of the server's clock
	log       []fault        // guarded by mu
}

// slot is a place for a process, with a network of its own. When the process is killed, another takes its place.
type slot struct {
	id    int
	proxy *proxy.Proxy // nil: the network works

	mu      sync.Mutex // held while something is done to the process
	process *process   // guarded by mu

	storm   sync.Mutex     // held while the network is worse than always
	numbers []int          // guarded by the world's mu: of its processes
	deaf    []history.Span // guarded by the world's mu: when they could not be heard, or hear
}

// step is one of the server's clock.
type step struct {
	at time.Time
	by time.Duration
}

// lag is for how long things may last longer now because the server's clock was stepped back while they were there.
func (w *world) lag() time.Duration {
	var sum time.Duration
	for _, s := range slices.Backward(w.steps) {
		if time.Since(s.at) > ttl+patience+sum+time.Second {
			break
		}
		sum += max(0, -s.by)
	}
	return sum
}

// fault is what was done, for those who look for the reason of a violation.
type fault struct {
	What string `json:"what"`
	From int64  `json:"from"` // ns, as in an Event
	To   int64  `json:"to"`
}

const (
	processes = 6
	workersOf = 8 // one process
	lockCount = 6
)

// newWorld starts a server and the processes.
func newWorld(t *testing.T, k kind, seed uint64) *world {
	t.Helper()
	w := &world{t: t, kind: k, seed: seed, counts: map[string]int{}, run: history.Run{TTL: ttl, Patience: patience}}
	w.dir = logDir(t, k.name, seed)
	for i := range lockCount {
		w.locks = append(w.locks, fmt.Sprintf("lock%d", i))
	}
	if k.skewed {
		var err error
		w.clock, err = skew.New(t.TempDir())
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, w.clock.Close()) })
		for name, value := range w.clock.Env() {
			t.Setenv(name, value)
		}
	}
	w.server = redistest.Start(t, k.args...)
	w.rdb = w.server.Client()
	var err error
	w.witness, err = monitor.Start(w.server.Network(), w.server.Addr(), patience)
	require.NoError(t, err)
	t.Cleanup(func() { w.witness.Close() })
	for i := range processes {
		s := &slot{id: i}
		if k.net != nil {
			var err error
			s.proxy, err = proxy.New(w.server.Network(), w.server.Addr())
			require.NoError(t, err)
			s.proxy.Set(*k.net)
			t.Cleanup(func() { assert.NoError(t, s.proxy.Close()) })
		}
		w.slots = append(w.slots, s)
		require.NoError(t, w.start(s))
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
	pattern := fmt.Sprintf("chaos-%s-%d-", strings.ReplaceAll(name, " ", "-"), seed)
	dir, err := os.MkdirTemp(keep, pattern) //nolint:usetesting // it outlives a test that fails
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

// start puts a new process into a slot. The caller holds the slot's mu, or nobody else knows of it.
func (w *world) start(s *slot) error {
	w.mu.Lock()
	number := w.processes
	w.processes++
	w.mu.Unlock()
	cfg := processConfig{
		workersConfig: workersConfig{
			Process: number, Workers: workersOf, Locks: w.locks, TTL: ttl, WaiterTTL: patience,
			Calm: w.kind.calm, Robbed: w.kind.robbed, Seed: w.seed,
		},
		Network: w.server.Network(), Addr: w.server.Addr(), Logs: w.dir,
	}
	if s.id < 2 {
		cfg.Slow = 10 // as slow as it may be
	}
	cfg.NoRenewal = s.id == 1
	if s.proxy != nil {
		cfg.Network, cfg.Addr = "unix", s.proxy.Addr()
	}
	p, err := startProcess(w.t, cfg, func(r report) { w.told(number, r) })
	if err != nil {
		return err
	}
	s.process = p
	w.mu.Lock()
	w.all = append(w.all, p)
	s.numbers = append(s.numbers, number)
	w.mu.Unlock()
	return nil
}

// told notes what a process tells.
func (w *world) told(number int, r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r.Event {
	case "paused":
		w.run.Silences = append(w.run.Silences, history.Span{Process: number, From: r.From, To: r.To})
		w.counts["a process stood still by itself"]++
	case "ended":
		w.counts["hand-overs used without asking"] += int(r.Handed)
		w.counts["wake-ups lost"] += int(r.Unheard)
	}
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

func (w *world) silence(s history.Span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.Silences = append(w.run.Silences, s)
}

// happened writes down what was done.
func (w *world) happened(what string, from, to int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
	w.log = append(w.log, fault{what, from, to})
}

// sleep sleeps while something goes wrong, or until that is to end.
func (w *world) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.over.Done():
	}
}

// storm lets everything go wrong for its time, and for up to three times that until it has happened often enough.
func (w *world) storm(scale float64) {
	long := time.Duration(float64(w.kind.short) * scale)
	ctx, cancel := context.WithTimeout(context.Background(), 3*long)
	defer cancel()
	w.over = ctx
	var all sync.WaitGroup
	errs := make([]error, len(w.kind.actors))
	for i, a := range w.kind.actors {
		all.Go(func() {
			d := newDice(w.seed, a.name)
			for errs[i] == nil {
				w.sleep(d.between(a.least, a.most))
				if ctx.Err() != nil {
					return
				}
				errs[i] = a.do(w, d)
			}
		})
	}
	for w.sleep(long); ctx.Err() == nil; w.sleep(long / 20) {
		events, err := history.Read(w.dir)
		require.NoError(w.t, err)
		if len(w.lacking(w.counted(events), scale)) == 0 {
			break
		}
	}
	cancel()
	all.Wait()
	require.NoError(w.t, errors.Join(errs...))
}

// heed notes when redis-server stood still by itself, as happens on a busy machine, until ctx ends.
func (w *world) heed(ctx context.Context) {
	for last := history.Now(); ctx.Err() == nil; {
		time.Sleep(stillness / 4)
		err := w.rdb.Ping(ctx).Err() // it may be away
		now := history.Now()
		if err == nil && now-last > int64(stillness) {
			w.silence(history.Span{Process: history.Everybody, From: last, To: now})
			w.count("redis-server stood still by itself, or was made to")
			w.mu.Lock()
			w.still += time.Duration(now - last)
			w.mu.Unlock()
		}
		last = now
	}
}

// stopwatch returns how long it is since, without the time for which redis-server stood still.
func (w *world) stopwatch() func() time.Duration {
	stood := func() time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.still
	}
	began, before := time.Now(), stood()
	return func() time.Duration { return time.Since(began) - (stood() - before) }
}

// mend ends everything that goes wrong.
func (w *world) mend() {
	for _, s := range w.slots {
		if s.proxy != nil {
			s.proxy.Set(proxy.Faults{})
		}
	}
}

// finish ends the workers, in order or not, and returns when none is left. Those who wait must get their locks soon.
func (w *world) finish() {
	w.t.Helper()
	if w.kind.spare {
		for _, s := range w.slots {
			s.process.tell(end)
		}
		within := ttl + patience + w.lag() + 3*time.Second
		deadline := time.Now().Add(within)
		for _, s := range w.slots {
			if !await(s.process.ended, time.Until(deadline)) {
				w.t.Errorf("%v: its workers did not get their locks within %v", s.process, within)
			}
		}
	}
	for _, s := range w.slots {
		from := history.Now()
		s.process.kill()
		w.mu.Lock()
		w.run.Kills = append(w.run.Kills, history.Span{Process: s.process.cfg.Process, From: from, To: history.Now()})
		w.mu.Unlock()
	}
	for _, p := range w.all {
		assert.Empty(w.t, p.stderr.String(), "%v", p)
	}
}

// progress shows that every lock can be taken, though whoever held it or waited for it may be dead.
func (w *world) progress() {
	w.t.Helper()
	client, err := fairlock.New(w.rdb, fairlock.Config{TTL: ttl, WaiterTTL: patience, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(w.t, err)
	defer client.Close()
	within := max(ttl, patience) + w.lag() + time.Second
	if w.kind.net != nil {
		within += w.kind.net.Delay // a dead holder's renewal may come so late
	}
	ctx, cancel := context.WithTimeout(context.Background(), within+10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	since := w.stopwatch()
	for _, name := range w.locks {
		all.Go(func() {
			err := client.Mutex(name).Do(ctx, func(context.Context) error { return nil })
			took := since()
			if took > within {
				time.Sleep(stillness) // that redis-server stood still may not be known at once
				took = min(took, since()-stillness)
			}
			if err != nil || took > within {
				w.t.Errorf("%s cannot be taken within %v, but in %v: %v", name, within, took, err)
			}
		})
	}
	all.Wait()
}

// clean shows that nothing but fences stays.
func (w *world) clean() {
	w.t.Helper()
	fences := make([]string, len(w.locks))
	for i, name := range w.locks {
		fences[i] = lua.MutexKeys(lua.DefaultNamespace, name).Fence
	}
	within := ttl + patience + w.lag() + time.Second
	var left []string
	for since := w.stopwatch(); since() < within; time.Sleep(20 * time.Millisecond) { // keys end by time
		all, err := w.rdb.Keys(context.Background(), "*").Result()
		require.NoError(w.t, err)
		left = slices.DeleteFunc(all, func(key string) bool { return slices.Contains(fences, key) })
		if len(left) == 0 {
			return
		}
	}
	w.t.Errorf("left in Redis after %v: %v", within, left)
}
