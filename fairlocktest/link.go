package fairlocktest

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialTimeout is after how long connecting over a link that hangs fails, as go-redis has it by default.
const dialTimeout = 5 * time.Second

// Link is the way of one client to the server; it fails on demand. Its methods are safe for concurrent use, and take
// effect at once, also on the connections there are.
type Link struct {
	server *Server
	name   string
	immune bool // a lever's: no fault reaches it
	silent bool // the looker's: what it does is no change that anybody waits for

	// Guarded by the server's mu.
	conns        map[*conn]struct{}
	cut          bool
	hung         bool
	deaf         bool
	there, back  time.Duration
	loseRequests int
	loseReplies  int
}

// Redis returns a new go-redis client over this link; it is closed when the test ends. Its own retries are immediate,
// because go-redis's pauses between them go by the system's clock.
func (l *Link) Redis() *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // of no meaning; a name would be looked up, which no bubble can bear
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := l.Dial(ctx)
			if err != nil {
				// After many failures go-redis's pool dials once a second only, by the system's clock; so it fails later.
				conn = &failed{err: err}
			}
			return conn, nil
		},
		MinRetryBackoff: -1, MaxRetryBackoff: -1,
		PoolSize: 1000, // who waits for a connection would wait by the system's clock, too
	})
	l.server.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Dial opens a connection to the server, for other Redis clients than go-redis.
func (l *Link) Dial(ctx context.Context) (net.Conn, error) {
	s := l.server
	s.mu.Lock()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.change.Broadcast()
	})
	defer stop()
	for until := s.clock.Now().Add(dialTimeout); l.hung && !l.refuses(); {
		if ctx.Err() != nil || !s.clock.Now().Before(until) {
			s.mu.Unlock()
			return nil, &net.OpError{Op: "dial", Net: "memory", Err: context.DeadlineExceeded}
		}
		s.wait(s.change, until)
	}
	refused := l.refuses()
	s.mu.Unlock()
	if refused {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	peer, err := s.Miniredis.Dial()
	if err != nil {
		return nil, err
	}
	c := newConn(l, peer)
	s.mu.Lock()
	l.conns[c] = struct{}{}
	c.broken = l.refuses()
	s.mu.Unlock()
	c.start()
	return c, nil
}

// refuses reports whether connections are refused. The caller holds the server's mu.
func (l *Link) refuses() bool { return l.cut || l.server.down && !l.immune }

// Cut breaks every connection and refuses new ones, until Mend.
func (l *Link) Cut() {
	l.set(func() {
		l.cut = true
		l.breakAll()
	})
}

// Break breaks every connection; new ones work.
func (l *Link) Break() { l.set(l.breakAll) }

// Hang lets nothing pass any more, and says nothing: a cable that was pulled, a connection that is half open. After
// Mend everything arrives that was sent meanwhile, as TCP sends it again; also what was sent on connections that were
// closed since.
func (l *Link) Hang() { l.set(func() { l.hung = true }) }

// Delay has every request take so long to the server, and every reply so long back, from now on; what is on its way keeps
// the time it was given, also after Mend.
func (l *Link) Delay(request, reply time.Duration) {
	l.set(func() { l.there, l.back = request, reply })
}

// DropRequest has the next request vanish, and its connection break: the server never sees it. (A pipeline is one
// request. What go-redis sends by itself, such as HELLO, does not count; nor does what is already on its way.)
func (l *Link) DropRequest() { l.set(func() { l.loseRequests++ }) }

// DropReply has the reply to the next request vanish, and its connection break: the server has done what was asked, and
// nobody hears of it.
func (l *Link) DropReply() { l.set(func() { l.loseReplies++ }) }

// Deafen has everything vanish that comes on connections that subscribe: the client's wake-ups are lost.
func (l *Link) Deafen() { l.set(func() { l.deaf = true }) }

// Mend ends every fault.
func (l *Link) Mend() {
	l.set(func() {
		l.cut, l.hung, l.deaf = false, false, false
		l.there, l.back = 0, 0
		l.loseRequests, l.loseReplies = 0, 0
	})
}

// failed is a connection that was never made.
type failed struct {
	net.Conn // nil: go-redis writes first

	err error
}

func (f *failed) Write([]byte) (int, error)        { return 0, f.err }
func (f *failed) Read([]byte) (int, error)         { return 0, f.err }
func (f *failed) SetDeadline(time.Time) error      { return nil }
func (f *failed) SetReadDeadline(time.Time) error  { return nil }
func (f *failed) SetWriteDeadline(time.Time) error { return nil }
func (f *failed) RemoteAddr() net.Addr             { return address("nowhere") }
func (f *failed) LocalAddr() net.Addr              { return address("nowhere") }
func (f *failed) Close() error                     { return nil }

// Network is net.Addr's.
func (l *Link) Network() string { return "memory" }

// String is the client's name.
func (l *Link) String() string { return l.name }

func (l *Link) set(f func()) {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	f()
	for c := range l.conns {
		c.change.Broadcast()
	}
	l.server.changed()
}

// breakAll breaks every connection. The caller holds the server's mu.
func (l *Link) breakAll() {
	for c := range l.conns {
		c.broken = true
		c.change.Broadcast()
		delete(l.conns, c)
	}
}

// next is when the first parcel arrives if nothing changes; zero if it does not. The caller holds the server's mu.
func (l *Link) next(way []parcel) time.Time {
	if len(way) == 0 || l.hung {
		return time.Time{}
	}
	return way[0].due
}
