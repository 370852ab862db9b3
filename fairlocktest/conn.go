package fairlocktest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// conn is a client's end of a connection to the server in memory. Its Link decides what passes, and when. Only Read
// blocks. Writes are queued, so that a client that does not read never blocks the server.
type conn struct {
	link   *Link
	peer   net.Conn   // the pipe to the server
	random *rand.Rand // of jitter; nil if there is none; guarded by the server's mu

	// Guarded by the server's mu.
	change     *sync.Cond // a field below, or one of the link, has changed
	in, out    []packet
	deadline   time.Time // of Read, by the server's clock; zero if there is none
	ended      bool      // the server has closed it: Read ends when everything is read
	broken     bool      // writes fail, at both ends
	reset      time.Time // when reads begin to fail as well, by the server's clock, if it is broken
	closed     bool      // by the client
	subscribed bool      // what arrives are notifications
	begun      bool      // a request, or a part of one, has been written, and nothing was read since
	lose       bool      // its reply is dropped
	delivering bool      // data is being written to the server
	answered   bool      // the server has written something since
}

// packet is data in transit.
type packet struct {
	data []byte
	due  time.Time // when it arrives, by the server's clock
}

func newConn(l *Link, peer net.Conn) *conn {
	return &conn{link: l, peer: peer, change: sync.NewCond(&l.server.mu)}
}

func (c *conn) start() {
	c.link.server.tasks.Go(c.deliverRequests)
	c.link.server.tasks.Go(c.deliverReplies)
}

// deliverRequests writes the client's data to the server. Data in transit when the client closes still arrives.
func (c *conn) deliverRequests() {
	defer func() { _ = c.peer.Close() }()
	s := c.link.server
	for {
		s.mu.Lock()
		for !c.broken && !c.arrivedLocked(c.out) && (!c.closed || len(c.out) > 0) {
			s.waitLocked(c.change, c.link.nextLocked(c.out))
		}
		if c.broken || len(c.out) == 0 {
			c.link.conns = slices.DeleteFunc(c.link.conns, func(other *conn) bool { return other == c })
			s.mu.Unlock()
			return
		}
		data := c.out[0].data
		c.out = c.out[1:]
		c.delivering, c.answered = true, false
		s.mu.Unlock()
		s.tick()
		_, err := c.peer.Write(s.withTexts(data))
		s.mu.Lock()
		c.delivering = false
		c.breakIfRepliedLocked()
		s.mu.Unlock()
		if err != nil {
			return // deliverReplies gets an error as well
		}
	}
}

// deliverReplies passes the server's data to the client.
func (c *conn) deliverReplies() {
	s := c.link.server
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.peer.Read(buffer)
		s.mu.Lock()
		switch {
		case err != nil:
			c.ended = true
		case c.lose:
			c.answered = true
			c.breakIfRepliedLocked()
		case c.subscribed && c.link.dropNotifications: // dropped
		default:
			c.in = append(c.in, packet{bytes.Clone(buffer[:n]), c.dueLocked(c.link.replyDelay)})
		}
		c.change.Broadcast()
		if !c.link.unobserved {
			s.touchLocked()
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// breakIfRepliedLocked breaks the connection once the reply to drop has begun. By then the client has written the whole
// request, because it reads, and the server has begun to reply to its last part.
func (c *conn) breakIfRepliedLocked() {
	if c.lose && !c.begun && len(c.out) == 0 && !c.delivering && c.answered {
		c.breakLocked()
	}
}

// breakLocked breaks the connection. The client's Read fails when a packet that is sent now would arrive.
func (c *conn) breakLocked() {
	if !c.broken {
		c.broken, c.reset = true, c.dueLocked(0)
		c.change.Broadcast()
	}
}

// dueLocked returns when data that is sent now arrives.
func (c *conn) dueLocked(delay time.Duration) time.Time {
	if c.random != nil {
		delay += time.Duration(c.random.Int64N(int64(c.link.jitter)))
	}
	return c.link.server.clock.Now().Add(delay)
}

// resumeLocked delays the packets that the link held back while it hung, as dueLocked does with data that is sent now.
func (c *conn) resumeLocked() {
	for _, transit := range [][]packet{c.in, c.out} {
		if len(transit) > 0 && !transit[0].due.After(c.link.server.clock.Now()) {
			transit[0].due = c.dueLocked(0)
		}
	}
}

// arrivedLocked reports whether the first packet has arrived.
func (c *conn) arrivedLocked(transit []packet) bool {
	return len(transit) > 0 && !c.link.hung && !transit[0].due.After(c.link.server.clock.Now())
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	s := c.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.begun = false
	c.breakIfRepliedLocked()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.broken && s.clock.Now().Before(c.reset):
			s.waitLocked(c.change, c.reset)
			continue
		case c.broken:
			return 0, &net.OpError{Op: "read", Net: "memory", Err: syscall.ECONNRESET}
		case c.arrivedLocked(c.in):
			n := copy(p, c.in[0].data)
			if c.in[0].data = c.in[0].data[n:]; len(c.in[0].data) == 0 {
				c.in = c.in[1:]
			}
			return n, nil
		case c.ended && len(c.in) == 0:
			return 0, io.EOF
		case !c.deadline.IsZero() && !s.clock.Now().Before(c.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		s.waitLocked(c.change, earliest(c.deadline, c.link.nextLocked(c.in)))
	}
}

// Write implements net.Conn. It never blocks.
func (c *conn) Write(p []byte) (int, error) {
	l := c.link
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.broken || c.ended:
		return 0, &net.OpError{Op: "write", Net: "memory", Err: syscall.EPIPE}
	}
	begun := c.begun
	c.begun = true
	switch command := name(p); {
	case begun: // a further part of a request
	case command == "subscribe" || command == "psubscribe":
		c.subscribed = true
	case handshake[command]:
	case l.dropRequests > 0:
		l.dropRequests--
		c.breakLocked()
		return len(p), nil
	case l.dropReplies > 0:
		l.dropReplies--
		c.lose = true
	}
	c.out = append(c.out, packet{bytes.Clone(p), c.dueLocked(l.requestDelay)})
	c.change.Broadcast()
	return len(p), nil
}

// handshake is the set of commands that go-redis sends when it connects.
var handshake = map[string]bool{"hello": true, "client": true, "auth": true, "select": true}

// name returns the name of the first command in a request in Redis's protocol, in lower case.
func name(request []byte) string {
	parts := bytes.SplitN(request, []byte("\r\n"), 4)
	if len(parts) < 4 {
		return ""
	}
	return string(bytes.ToLower(parts[2]))
}

// Close implements net.Conn.
func (c *conn) Close() error {
	s := c.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.closed = true
	c.change.Broadcast()
	return nil
}

// SetReadDeadline implements net.Conn. t is the system's time. The time left until t is measured by the server's clock.
func (c *conn) SetReadDeadline(t time.Time) error {
	s := c.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.deadline = time.Time{}
	if !t.IsZero() {
		c.deadline = s.clock.Now().Add(untilDeadline(s.clock, t))
	}
	c.change.Broadcast()
	return nil
}

// SyscallConn implements syscall.Conn. By it go-redis finds out that an idle connection is broken before it takes it
// from its pool, as with connections of a network.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	s := c.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.broken || c.ended || c.closed {
		return nil, net.ErrClosed
	}
	return alive{}, nil
}

// alive is the syscall.RawConn of a connection that is not broken.
type alive struct{}

func (alive) Control(func(uintptr)) error    { return nil }
func (alive) Read(func(uintptr) bool) error  { return nil }
func (alive) Write(func(uintptr) bool) error { return nil }

// SetWriteDeadline implements net.Conn. It has no effect: a Write does not block.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.link }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address("server") }

type address string

func (a address) Network() string { return "memory" }
func (a address) String() string  { return string(a) }

// earliest returns the earliest of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}
