package fairlocktest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/lua"
)

// Server is a Redis server in memory, of one test. It is closed when the test ends, after its clients. Its methods are
// safe for concurrent use; those that fail the test must be called from the test's goroutine.
type Server struct {
	// Miniredis is the server itself, for what this package does not offer. Time passes in it by the Server's doing: do
	// not call SetTime, ClockTTL, FastForward or Close. It has no address, for nothing of it touches the network.
	Miniredis *miniredis.Miniredis

	tb     testing.TB
	bubble string // that it was made in
	clock  fairlock.Clock
	settle func()         // returns when everybody has done what there is to do now
	tasks  sync.WaitGroup // of the connections

	time   sync.Mutex // so that TIME never runs back by itself
	offset time.Duration

	mu      sync.Mutex
	change  *sync.Cond         // on mu: a lock's state may have changed, or a link
	count   uint64             // guarded by mu: of such changes
	down    bool               // guarded by mu
	links   []*Link            // guarded by mu
	clients int                // guarded by mu: made so far
	others  map[string]*Client // guarded by mu: whom the levers act as, by name
}

// calm is for how long the system's time may pass until everything has come to rest, before a state is judged all the
// same.
const calm = 50 * time.Millisecond

// NewServer returns a server whose time is that of package time: the system's, or inside a testing/synctest bubble the
// bubble's, where a time.Sleep moves the clients' timers, the server's TIME and every TTL.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	return newServer(tb, clock.System{})
}

// NewServerWithClock returns a server whose time is the Clock's, and so is that of its clients: it moves only by
// Clock.Advance.
func NewServerWithClock(tb testing.TB, c *Clock) *Server {
	tb.Helper()
	s := newServer(tb, c)
	s.settle = c.Wait
	c.attach(s)
	return s
}

func newServer(tb testing.TB, c fairlock.Clock) *Server {
	tb.Helper()
	s := &Server{Miniredis: miniredis.NewMiniRedis(), tb: tb, clock: c, others: map[string]*Client{}}
	rest := newRest()
	if s.bubble = bubble(); s.bubble != "" {
		s.settle = func() { s.here(); synctest.Wait() }
	} else {
		s.settle = func() { rest.wait(calm) }
	}
	s.change = sync.NewCond(&s.mu)
	s.tick()
	s.Miniredis.ClockTTL(true)
	tb.Cleanup(s.close)
	if err := lua.Load(context.Background(), s.inspector().Redis); err != nil { // as of a server that has been in use for long
		tb.Fatalf("fairlocktest: %v", err)
	}
	return s
}

// databases is how many Redis has by default.
const databases = 16

// tick tells miniredis the time. It is called before every request arrives: miniredis's own clock would stand still.
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
		l.breakAll()
	}
	s.changed()
	s.mu.Unlock()
	s.Miniredis.Close()
	s.tasks.Wait()
}

// Now is the server's time, which its TIME tells.
func (s *Server) Now() time.Time {
	s.time.Lock()
	defer s.time.Unlock()
	return s.clock.Now().Add(s.offset)
}

// Client returns a client over a link of its own; cfg.Clock is the server's unless it is set, and cfg.Name is "client-1"
// for the first, "client-2" for the second and so on. It is closed when the test ends. A fault of cfg fails the test.
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
	if cfg.Clock == nil {
		cfg.Clock = s.clock
	}
	rdb := link.Redis()
	c, err := fairlock.New(rdb, cfg)
	if err != nil {
		s.tb.Fatalf("fairlocktest: %v", err)
	}
	s.tb.Cleanup(func() {
		link.hopeless()
		_ = c.Close()
	})
	return &Client{Client: c, Redis: rdb, Link: link}
}

// Link returns a new link, for code that makes its fairlock.Client itself: give it Link.Redis as its Redis, and a Clock,
// if there is one, as Config.Clock.
func (s *Server) Link() *Link {
	s.mu.Lock()
	name := fmt.Sprintf("link-%d", len(s.links)+1)
	s.mu.Unlock()
	return s.link(name)
}

// here fails the test if the caller is in another bubble than the server, or in one and the server is not.
func (s *Server) here() {
	s.tb.Helper()
	if b := bubble(); b != s.bubble {
		s.tb.Fatalf("fairlocktest: the server was made %s, and is used %s: make it where it is used, with the t of there", place(s.bubble), place(b))
	}
}

func place(bubble string) string {
	if bubble == "" {
		return "outside a testing/synctest bubble"
	}
	return "in testing/synctest bubble " + bubble
}

func (s *Server) link(name string) *Link {
	s.tb.Helper()
	s.here()
	l := &Link{server: s, name: name, conns: map[*conn]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, l)
	return l
}

// LocalClock returns a clock that goes as the server's until it is told otherwise: that of a machine whose clock drifts,
// steps, or whose processes are stopped. Give it to a client as Config.Clock.
func (s *Server) LocalClock() *LocalClock {
	now := s.clock.Now()
	return &LocalClock{tb: s.tb, base: s.clock, since: now, local: now, rate: 1, timers: map[*localTimer]struct{}{}}
}

// Stop has the server away, as a crash does: every connection breaks, new ones are refused, until Start. Its data stays,
// and its clock runs on.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for _, l := range s.links {
		if !l.immune {
			l.breakAll()
		}
	}
	s.changed()
}

// Start ends a Stop.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	s.changed()
}

// LoseData empties the server, as a restart without persistence does; connections and scripts stay.
func (s *Server) LoseData() {
	s.Miniredis.FlushAll()
	s.touch()
}

// StepClock sets the server's clock forward, or back if d is negative, for good: TIME, and every TTL with it, as Redis
// keeps the moments at which keys expire. The clients' clocks are untouched.
func (s *Server) StepClock(d time.Duration) {
	s.tick() // what has expired until now has expired
	for i := range databases {
		db := s.Miniredis.DB(i)
		for _, key := range db.Keys() {
			if ttl := db.TTL(key); d < 0 && ttl > 0 {
				db.SetTTL(key, ttl-d) // miniredis keeps what is left when its clock goes back
			}
		}
	}
	s.time.Lock()
	s.offset += d
	s.time.Unlock()
	s.tick()
	s.touch()
}

// touch has everybody look who waits for a state.
func (s *Server) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed()
}

// changed wakes those who wait for a state of a lock. The caller holds mu.
func (s *Server) changed() {
	s.count++
	s.change.Broadcast()
}

// wait waits for a change, or until the server's clock says so; not for that if the time is zero. The caller holds mu.
func (s *Server) wait(change *sync.Cond, until time.Time) {
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
