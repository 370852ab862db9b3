package chaos_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
)

// memory is a run on a server in memory whose clock steps, in a bubble whose time passes by itself. It goes on in
// further bubbles for so long, and until enough has happened. In every second one the clock only steps back, and then
// nothing may be violated.
func memory(t *testing.T, seed uint64, long time.Duration) {
	const most = 20 // bubbles for that
	var back, forward, grants int
	void := func() bool { return back < 10 || forward < 3 || grants < 200 }
	for round, end := uint64(0), time.Now().Add(long); time.Now().Before(end) || void() && round < most; round++ {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, seed+round<<32, round%2 == 0)
			b.storm(8 * time.Second)
			back, forward, grants = back+b.back, forward+b.forward, grants+b.judge()
		})
		if t.Failed() {
			t.Fatalf("seed %d, bubble %d", seed, round)
		}
	}
	t.Logf("clock stepped back %d times, forward %d times, %d grants", back, forward, grants)
	if void() {
		t.Errorf("void: fewer than 10 steps back, 3 forward, or 200 grants")
	}
}

// bubble is a server and workers, all in this process.
type bubble struct {
	t        *testing.T
	seed     uint64
	backOnly bool
	server   *miniredis.Miniredis
	all      []*workers

	mu            sync.Mutex
	off           time.Duration   // guarded by mu: the server's clock
	events        []history.Event // guarded by mu
	run           history.Run
	back, forward int
}

const longestStep = 2 * ttl

func newBubble(t *testing.T, seed uint64, backOnly bool) *bubble {
	t.Helper()
	b := &bubble{t: t, seed: seed, backOnly: backOnly, server: miniredis.NewMiniRedis()}
	b.run = history.Run{TTL: ttl, Patience: patience}
	b.tick()
	b.server.ClockTTL(true)
	t.Cleanup(b.server.Close)
	for i := range 4 {
		cfg := workersConfig{
			Process: i, Workers: workersOf, Locks: []string{"a", "b", "c"}, TTL: ttl, WaiterTTL: patience,
			Calm: true, Robbed: !backOnly, Seed: seed, NoRenewal: i == 1,
		}
		if i < 2 {
			cfg.Slow = 10
		}
		b.all = append(b.all, newWorkers(cfg, b.client(), time.Time.UnixNano, b.write, t.Errorf))
	}
	return b
}

func (b *bubble) client() *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := b.server.Dial()
			if err != nil {
				return nil, err
			}
			return newBuffered(conn), nil
		},
	})
	b.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (b *bubble) write(e history.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// tick sets the server's clock.
func (b *bubble) tick() {
	b.mu.Lock()
	off := b.off
	b.mu.Unlock()
	b.server.SetTime(time.Now().Add(off))
}

// storm lets workers work while the server's clock steps, for so long.
func (b *bubble) storm(long time.Duration) {
	end := time.Now().Add(long)
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for { // miniredis's clock stands still if it is not the bubble's
			b.tick()
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	var work sync.WaitGroup
	for _, w := range b.all {
		work.Go(w.run)
	}
	for d := newDice(b.seed, "step the clock"); time.Now().Before(end); {
		time.Sleep(d.between(50*time.Millisecond, time.Second))
		b.step(d)
	}
	for _, w := range b.all {
		w.end()
	}
	ended := make(chan struct{})
	go func() {
		work.Wait()
		close(ended)
	}()
	if within := ttl + patience + longestStep; !await(ended, within) {
		b.t.Errorf("the workers did not get their locks within %v", within)
		for _, w := range b.all {
			_ = w.client.Close()
		}
		<-ended
	}
	close(over)
	all.Wait()
	b.clean()
}

func (b *bubble) step(d dice) {
	by := -d.upTo(longestStep / 2)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.backOnly && b.off <= 0 {
		by = d.upTo(longestStep)
	}
	b.off += by
	if by < 0 {
		b.back++
		return
	}
	b.forward++
	now := time.Now().UnixNano()
	b.run.Losses = append(b.run.Losses, history.Loss{From: now, To: now + int64(time.Millisecond)}) // until the next tick
}

// clean shows that nothing but fences stays.
func (b *bubble) clean() {
	until := time.Now().Add(ttl + patience + longestStep + time.Second)
	var left []string
	for ; time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		b.tick()
		left = slices.DeleteFunc(b.server.Keys(), func(key string) bool {
			return slices.Contains([]string{"fairlock:{a}:fence", "fairlock:{b}:fence", "fairlock:{c}:fence"}, key)
		})
		if len(left) == 0 {
			return
		}
	}
	assert.Empty(b.t, left, "left in Redis")
}

// judge returns how many grants there were.
func (b *bubble) judge() int {
	grants := 0
	for _, e := range b.events {
		if e.Op == history.Granted {
			grants++
		}
	}
	require.NotZero(b.t, grants)
	assertHistory(b.t, b.events, b.run, func(v history.Violation) bool { return !excused(v, b.run, true) })
	if b.t.Failed() {
		dir := logDir(b.t, "memory", b.seed)
		save(b.t, dir, "run.json", b.run)
		save(b.t, dir, "events.json", b.events)
	}
	return grants
}

// buffered is a connection whose writer does not wait for the reader, as that of a socket: over a bare pipe a client
// that writes a long pipeline and a server that answers its beginning wait for each other.
type buffered struct {
	net.Conn

	out  chan []byte
	over chan struct{}
	once sync.Once
}

func newBuffered(conn net.Conn) *buffered {
	b := &buffered{Conn: conn, out: make(chan []byte, 1000), over: make(chan struct{})}
	go b.carry()
	return b
}

func (b *buffered) carry() {
	for {
		select {
		case data := <-b.out:
			if _, err := b.Conn.Write(data); err != nil {
				return
			}
		case <-b.over:
			return
		}
	}
}

// Write queues what is written.
func (b *buffered) Write(p []byte) (int, error) {
	select {
	case b.out <- bytes.Clone(p):
		return len(p), nil
	case <-b.over:
		return 0, net.ErrClosed
	}
}

// Close closes the connection; what is queued is lost.
func (b *buffered) Close() error {
	b.once.Do(func() { close(b.over) })
	return b.Conn.Close()
}
