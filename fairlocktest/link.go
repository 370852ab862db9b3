package fairlocktest

import (
	"context"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialTimeout is how long connecting over a link that hangs takes to fail. It is go-redis's default.
const dialTimeout = 5 * time.Second

// Link connects one client to the server and fails on demand. Its methods are safe for concurrent use. They take effect
// at once, even on existing connections.
type Link struct {
	server *Server
	name   string
	immune bool // of a client of this package: it has no faults
	// of the client that inspects: no wait for a state needs to look again after its requests
	unobserved bool

	// Guarded by the server's mu.
	conns             []*conn
	cut               bool
	hung              bool
	dropNotifications bool
	requestDelay      time.Duration
	replyDelay        time.Duration
	jitter            time.Duration
	random            *rand.Rand
	dropRequests      int
	dropReplies       int
}

// Redis returns a new go-redis client over this link; it is closed when the test ends. It pauses for 1 ns before each
// retry of its own, because go-redis's pauses go by the system's clock.
func (l *Link) Redis() *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // of no meaning; a name would be looked up, which is not possible in a bubble
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := l.Dial(ctx)
			if err != nil {
				// A dial always succeeds, because after PoolSize failures go-redis dials only once a second, by the
				// system's clock. The connection fails when it is used.
				conn = &failed{err: err}
			}
			return conn, nil
		},
		// Not 0: the race detector crashes when goroutines of a bubble receive at once from timers that have expired
		// before (golang/go#78156).
		MinRetryBackoff: 1, MaxRetryBackoff: 1,
		// With RESP3 go-redis holds a mutex while it sends CLIENT MAINT_NOTIFICATIONS, and a bubble's time stands still
		// while a goroutine waits for a mutex.
		Protocol:    2,
		DialTimeout: 2 * dialTimeout, // so that of two timeouts that would end at one instant this one is never first
		PoolSize:    1000,            // go-redis waits for a free connection by the system's clock
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
	extra, until := l.extraLocked(), s.clock.Now().Add(dialTimeout)
	hangs := func() bool { return l.hung && !l.refusesLocked() }
	for ready := s.clock.Now().Add(extra); (hangs() || s.clock.Now().Before(ready)) && ctx.Err() == nil; {
		if !hangs() {
			s.waitLocked(s.change, ready)
			continue
		}
		if !s.clock.Now().Before(until) {
			s.mu.Unlock()
			return nil, &net.OpError{Op: "dial", Net: "memory", Err: context.DeadlineExceeded}
		}
		s.waitLocked(s.change, until)
		ready = s.clock.Now().Add(extra)
	}
	refused := l.refusesLocked()
	s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: err}
	}
	if refused {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	// A server that is closing waits for what has started, and nothing starts any more.
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.closed {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	peer, err := s.Miniredis.Dial()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newConn(l, peer)
	l.conns = append(l.conns, c)
	if l.random != nil {
		c.random = rand.New(rand.NewPCG(l.random.Uint64(), 0))
	}
	c.broken = l.refusesLocked()
	c.start()
	return c, nil
}

// refusesLocked reports whether connections are refused.
func (l *Link) refusesLocked() bool { return l.cut || l.server.down && !l.immune }

// Cut breaks every connection and refuses new ones, until Mend.
func (l *Link) Cut() {
	l.set(func() {
		l.cut = true
		l.breakAllLocked()
	})
}

// Break breaks every connection; new ones work.
func (l *Link) Break() { l.set(l.breakAllLocked) }

// Hang stops all data without breaking a connection, as when a cable is pulled or a connection is half open. After
// Mend, all data that was sent meanwhile arrives, because TCP retransmits it, even on connections that have been closed
// since.
func (l *Link) Hang() { l.set(func() { l.hung = true }) }

// Delay delays every request by request, and every reply by reply, from now on. Data in transit keeps its delay, even
// after Mend.
func (l *Link) Delay(request, reply time.Duration) {
	l.set(func() { l.requestDelay, l.replyDelay = request, reply })
}

// Jitter adds a random delay below most to all connections that are made from now on: to connecting, to all data, and
// to errors. So no two packets arrive at the same instant, and the seed of random decides the order of events in a
// bubble. Only this Link uses random. Mend does not end it.
func (l *Link) Jitter(most time.Duration, random *rand.Rand) {
	if most <= 0 || random == nil {
		l.server.tb.Fatalf("fairlocktest: Jitter: want a duration above 0 and a source")
	}
	if _, ok := l.server.clock.(*Clock); ok {
		l.server.tb.Fatalf("fairlocktest: Jitter: a Clock stands still while a client waits for the end of the delay")
	}
	l.set(func() { l.jitter, l.random = most, random })
}

// DropRequest drops the next request and breaks its connection. The server never receives it. A pipeline is one
// request. Requests in transit do not count. What go-redis sends when it connects, such as HELLO, does not count.
func (l *Link) DropRequest() { l.set(func() { l.dropRequests++ }) }

// DropReply drops the reply to the next request and breaks its connection. The server has executed the request, and the
// client does not know.
func (l *Link) DropReply() { l.set(func() { l.dropReplies++ }) }

// DropNotifications drops what the server sends on connections that subscribe, so that the client loses its
// notifications.
func (l *Link) DropNotifications() { l.set(func() { l.dropNotifications = true }) }

// extraLocked returns a random time that it takes to make or refuse a connection.
func (l *Link) extraLocked() time.Duration {
	if l.random == nil {
		return 0
	}
	return time.Duration(l.random.Int64N(int64(l.jitter)))
}

// Mend ends every fault.
func (l *Link) Mend() {
	l.set(func() {
		if l.hung {
			for _, c := range l.conns {
				c.resumeLocked()
			}
		}
		l.cut, l.hung, l.dropNotifications = false, false, false
		l.requestDelay, l.replyDelay = 0, 0
		l.dropRequests, l.dropReplies = 0, 0
	})
}

// failed is the connection of a dial that has failed.
type failed struct {
	net.Conn // nil

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

// SyscallConn implements syscall.Conn. By it go-redis finds out that the connection is broken before it takes it from
// its pool. The pool has an unused connection if the request that needed it ended before the dial did.
func (f *failed) SyscallConn() (syscall.RawConn, error) { return nil, f.err }

// Network returns "memory". With Network and String, a Link is the local net.Addr of its connections.
func (l *Link) Network() string { return "memory" }

// String returns the client's name.
func (l *Link) String() string { return l.name }

func (l *Link) set(f func()) {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	f()
	for _, c := range l.conns {
		c.change.Broadcast()
	}
	l.server.touchLocked()
}

// breakAllLocked breaks every connection.
func (l *Link) breakAllLocked() {
	for _, c := range l.conns {
		c.breakLocked()
	}
	l.conns = nil
}

// nextLocked returns when the first packet arrives if nothing changes, or zero if it does not arrive.
func (l *Link) nextLocked(transit []packet) time.Time {
	if len(transit) == 0 || l.hung {
		return time.Time{}
	}
	return transit[0].due
}
