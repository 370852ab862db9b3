package fairlocktest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/testclock"
)

// go-redis logs each connection that breaks, and here they break all the time. A test that wants this log calls
// redis.SetLogger later, for example in TestMain.
func init() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Server is a Redis server in memory, for one test. It is closed when the test ends, after its clients. Its methods are
// safe for concurrent use. Those that can fail the test must be called from the test's goroutine.
type Server struct {
	// Miniredis is the server itself, for what this package does not offer. The Server controls its time: do not call
	// SetTime, ClockTTL, FastForward or Close. It has no address, because it does not use the network.
	Miniredis *miniredis.Miniredis

	tb     testing.TB
	bubble bool // it was made in a testing/synctest bubble
	clock  fairlock.Clock
	tasks  sync.WaitGroup // of the connections

	starting sync.Mutex // held while a connection starts
	closed   bool       // guarded by starting: none starts any more

	time   sync.Mutex // so that TIME runs back only by StepClock
	offset time.Duration

	mu      sync.Mutex
	change  *sync.Cond         // on mu: a lock's state may have changed, or a link
	count   uint64             // guarded by mu: of such changes
	down    bool               // guarded by mu
	flushed bool               // guarded by mu: SCRIPT FLUSH has been called
	links   []*Link            // guarded by mu
	clients int                // guarded by mu: made so far
	others  map[string]*Client // guarded by mu: the clients of this package, by namespace and name
}

// NewServer returns a server whose time is that of package time, which is the system's, or inside a testing/synctest
// bubble the bubble's. There, a time.Sleep advances the clients' timers, the server's TIME and every TTL.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	if inBubble() {
		return newServer(tb, &testclock.Ordered{})
	}
	return newServer(tb, clock.System{})
}

// NewServerWithClock returns a server that uses the Clock, as its clients do. Their time advances only by
// Clock.Advance.
func NewServerWithClock(tb testing.TB, c *Clock) *Server {
	tb.Helper()
	if c == nil {
		tb.Fatalf("fairlocktest: the Clock must not be nil")
	}
	s := newServer(tb, c)
	c.attach(s)
	return s
}

func newServer(tb testing.TB, c fairlock.Clock) *Server {
	tb.Helper()
	s := &Server{Miniredis: miniredis.NewMiniRedis(), tb: tb, bubble: inBubble(), clock: c, others: map[string]*Client{}}
	s.change = sync.NewCond(&s.mu)
	s.tick()
	s.Miniredis.ClockTTL(true)
	tb.Cleanup(s.close)
	if err := s.inspector().Redis.Ping(context.Background()).Err(); err != nil { // before it, Miniredis.Server is nil
		tb.Fatalf("fairlocktest: %v", err)
	}
	return s
}

// texts replaces the beginning of a request that sends a script's hash by that of one that sends its text.
var texts = sync.OnceValue(func() *strings.Replacer {
	var pairs []string
	for hash, source := range script.Sources() {
		text := source.Text
		pairs = append(pairs, bulk("evalsha")+bulk(hash), bulk("eval")+bulk(text))
	}
	return strings.NewReplacer(pairs...)
})

// bulk is a string in Redis's protocol.
func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// withTexts replaces the hash of a script in a request by its text, until SCRIPT FLUSH was called. So no request of a
// test needs a second one that sends the script. SCRIPT LOAD would parse the scripts for each server, EVAL does once in
// a process.
func (s *Server) withTexts(request []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name(request) == "script" && bytes.Contains(bytes.ToLower(request), []byte("\r\nflush\r\n")) {
		s.flushed = true
	}
	if s.flushed || !bytes.Contains(request, []byte("\r\nevalsha\r\n")) {
		return request
	}
	return []byte(texts().Replace(string(request)))
}

// databases is how many Redis has by default.
const databases = 16

// tick sets miniredis's time. It is called before each request arrives, because miniredis's time does not advance.
func (s *Server) tick() {
	s.time.Lock()
	defer s.time.Unlock()
	s.Miniredis.SetTime(s.clock.Now().Add(s.offset))
}

func (s *Server) close() {
	s.Stop()
	s.mu.Lock()
	for _, l := range s.links {
		l.cut = true
		l.breakAllLocked()
	}
	s.touchLocked()
	s.mu.Unlock()
	s.starting.Lock()
	s.closed = true
	s.starting.Unlock()
	s.Miniredis.Close()
	s.tasks.Wait()
}

// Now returns the server's time, as TIME does.
func (s *Server) Now() time.Time {
	s.time.Lock()
	defer s.time.Unlock()
	return s.clock.Now().Add(s.offset)
}

// Client returns a client over a link of its own. If cfg.Clock is not set, it is the server's; if cfg.Logger is not
// set, nothing is logged. If cfg.Name is not set, it is "client-1" for the first client, "client-2" for the second and
// so on. The client is closed when the test ends. An invalid cfg fails the test.
func (s *Server) Client(cfg fairlock.Config) *Client {
	s.tb.Helper()
	s.mu.Lock()
	s.clients++
	if cfg.Name == "" {
		cfg.Name = fmt.Sprintf("client-%d", s.clients)
	}
	s.mu.Unlock()
	return s.client(cfg, s.link(cfg.Name))
}

func (s *Server) client(cfg fairlock.Config, link *Link) *Client {
	s.tb.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler) // faults are the rule here
	}
	if cfg.Clock == nil && !s.bubble { // else it is the system's, and go-redis obeys its deadlines
		cfg.Clock = s.clock
	}
	rdb := link.Redis()
	c, err := fairlock.New(rdb, cfg)
	if err != nil {
		s.tb.Fatalf("fairlocktest: %v", err)
	}
	s.tb.Cleanup(func() {
		link.cutIfFaulty()
		_ = c.Close()
	})
	return &Client{Client: c, Redis: rdb, Link: link}
}

// Link returns a new link, for code that makes its own fairlock.Client. Give that code Link.Redis, and the test's
// Clock, if there is one, as Config.Clock.
func (s *Server) Link() *Link {
	s.mu.Lock()
	name := fmt.Sprintf("link-%d", len(s.links)+1)
	s.mu.Unlock()
	return s.link(name)
}

// inBubble reports whether the caller is in a testing/synctest bubble, whose time begins in 2000.
func inBubble() bool { return clock.System{}.Now().Year() < 2020 }

// checkBubble fails the test if the server was made in a bubble and the caller is not in one, or the other way round.
func (s *Server) checkBubble() {
	s.tb.Helper()
	if inBubble() != s.bubble {
		where := map[bool]string{true: "in a testing/synctest bubble", false: "outside a bubble"}
		s.tb.Fatalf(
			"fairlocktest: the server was made %s, and is used %s: make it where it is used, with the same testing.TB",
			where[s.bubble], where[!s.bubble])
	}
}

// settle returns when all goroutines of the bubble are idle; outside a bubble it returns at once.
func (s *Server) settle() {
	s.tb.Helper()
	s.checkBubble()
	if s.bubble {
		synctest.Wait()
	}
}

func (s *Server) link(name string) *Link {
	s.tb.Helper()
	s.checkBubble()
	l := &Link{server: s, name: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, l)
	return l
}

// LocalClock returns the clock of a machine whose clock drifts or steps, or whose processes are paused. It runs as the
// server's does until one of its methods changes that. Give it to a client as Config.Clock.
func (s *Server) LocalClock() *LocalClock {
	now := s.clock.Now()
	return &LocalClock{tb: s.tb, base: s.clock, since: now, local: now, rate: 1, timers: map[*localTimer]struct{}{}}
}

// Stop stops the server as a crash does. Every connection breaks, and new ones are refused until Start. The server
// keeps its data, and its clock runs on.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for _, l := range s.links {
		if !l.immune {
			l.breakAllLocked()
		}
	}
	s.touchLocked()
}

// Start ends a Stop.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	s.touchLocked()
}

// LoseData deletes the server's data, as a restart without persistence does. Connections and scripts stay.
func (s *Server) LoseData() {
	s.Miniredis.FlushAll()
	s.touch()
}

// StepClock sets the server's clock forward, or back if d is negative. TIME and every TTL change, because Redis stores
// the time at which a key expires. The clients' clocks do not change.
func (s *Server) StepClock(d time.Duration) {
	s.tick() // so that keys expire that are due by now
	for i := range databases {
		db := s.Miniredis.DB(i)
		for _, key := range db.Keys() {
			if ttl := db.TTL(key); d < 0 && ttl > 0 {
				db.SetTTL(key, ttl-d) // miniredis keeps the TTL when its clock goes back
			}
		}
	}
	s.time.Lock()
	s.offset += d
	s.time.Unlock()
	s.tick()
	s.touch()
}

// advanced makes everything that waits for the server's clock look again. A timer that was set while the clock advanced
// may have been late.
func (s *Server) advanced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		for _, c := range l.conns {
			c.change.Broadcast()
		}
	}
	s.touchLocked()
}

// touch makes every wait for a state look again.
func (s *Server) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touchLocked()
}

// touchLocked is touch with mu held.
func (s *Server) touchLocked() {
	s.count++
	s.change.Broadcast()
}

// waitLocked waits for a change, or until a time of the server's clock unless that is zero.
func (s *Server) waitLocked(change *sync.Cond, until time.Time) {
	if !until.IsZero() {
		timer := s.clock.AfterFunc(until.Sub(s.clock.Now()), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			change.Broadcast()
		})
		defer timer.Stop()
	}
	change.Wait()
}
