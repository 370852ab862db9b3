package fairlocktest

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is a client's end of a connection to the server in memory. What passes, when and whether is its Link's say.
// Nothing in it blocks but Read; what is written is queued, so that a server is never held up by a client that does not
// read.
type conn struct {
	link *Link
	peer net.Conn // the pipe to the server

	// Guarded by the server's mu.
	change     *sync.Cond // something below, or of the link, has changed
	in, out    []parcel
	deadline   time.Time // of Read, by the server's clock; zero if there is none
	ended      bool      // the server has closed it: Read ends when everything is read
	broken     bool      // both ends know that it is gone
	closed     bool      // by the client
	subscribed bool      // what comes is published
	begun      bool      // a request has been written, in part at least, and nothing read since
	lose       bool      // the reply to it is lost
	carrying   bool      // something is being taken to the server
	answered   bool      // something came from there since
}

// parcel is something on its way.
type parcel struct {
	data []byte
	due  time.Time // when it arrives, by the server's clock
}

func newConn(l *Link, peer net.Conn) *conn {
	return &conn{link: l, peer: peer, change: sync.NewCond(&l.server.mu)}
}

func (c *conn) start() {
	c.link.server.tasks.Go(c.carryOut)
	c.link.server.tasks.Go(c.carryIn)
}

// carryOut takes to the server what the client has written. What was on its way when the client closed still arrives.
func (c *conn) carryOut() {
	defer func() { _ = c.peer.Close() }()
	s := c.link.server
	for {
		s.mu.Lock()
		for !c.broken && !c.arrived(c.out) && (!c.closed || len(c.out) > 0) {
			s.wait(c.change, c.link.next(c.out))
		}
		if c.broken || len(c.out) == 0 {
			delete(c.link.conns, c)
			s.mu.Unlock()
			return
		}
		data := c.out[0].data
		c.out = c.out[1:]
		c.carrying, c.answered = true, false
		s.mu.Unlock()
		s.tick()
		_, err := c.peer.Write(data)
		s.mu.Lock()
		c.carrying = false
		c.forget()
		s.mu.Unlock()
		if err != nil {
			return // carryIn notices, too
		}
	}
}

// carryIn takes to the client what the server writes.
func (c *conn) carryIn() {
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
			c.forget()
		case c.subscribed && c.link.deaf: // vanishes
		default:
			c.in = append(c.in, parcel{bytes.Clone(buffer[:n]), s.clock.Now().Add(c.link.back)})
		}
		c.change.Broadcast()
		if !c.link.silent {
			s.changed()
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// forget breaks the connection if the reply to the whole of a request is lost: the client reads, and so has written all of
// it, and the server has begun to answer the last part. The caller holds the server's mu.
func (c *conn) forget() {
	if c.lose && !c.begun && len(c.out) == 0 && !c.carrying && c.answered {
		c.broken = true
		c.change.Broadcast()
	}
}

// arrived reports whether the first parcel is there. The caller holds the server's mu.
func (c *conn) arrived(way []parcel) bool {
	return len(way) > 0 && !c.link.hung && !way[0].due.After(c.link.server.clock.Now())
}

// Read is net.Conn's.
func (c *conn) Read(p []byte) (int, error) {
	s := c.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.begun = false
	c.forget()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.broken:
			return 0, &net.OpError{Op: "read", Net: "memory", Err: syscall.ECONNRESET}
		case c.arrived(c.in):
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
		s.wait(c.change, earliest(c.deadline, c.link.next(c.in)))
	}
}

// Write is net.Conn's. It never blocks.
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
	case begun: // more of the same
	case command == "subscribe" || command == "psubscribe":
		c.subscribed = true
	case greeting[command]:
	case l.loseRequests > 0:
		l.loseRequests--
		c.broken = true
		c.change.Broadcast()
		return len(p), nil
	case l.loseReplies > 0:
		l.loseReplies--
		c.lose = true
	}
	c.out = append(c.out, parcel{bytes.Clone(p), s.clock.Now().Add(l.there)})
	c.change.Broadcast()
	return len(p), nil
}

// greeting are the commands that go-redis sends by itself.
var greeting = map[string]bool{"hello": true, "client": true, "auth": true, "select": true}

// name returns the first command's name in small letters, of what is written in Redis's protocol.
func name(request []byte) string {
	parts := bytes.SplitN(request, []byte("\r\n"), 4)
	if len(parts) < 4 {
		return ""
	}
	return string(bytes.ToLower(parts[2]))
}

// Close is net.Conn's.
func (c *conn) Close() error {
	s := c.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.closed = true
	c.change.Broadcast()
	return nil
}

// SetReadDeadline is net.Conn's. Its time is the system's; what is left until then passes by the server's clock.
func (c *conn) SetReadDeadline(t time.Time) error {
	s := c.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.deadline = time.Time{}
	if !t.IsZero() {
		c.deadline = s.clock.Now().Add(untilDeadline(t))
	}
	c.change.Broadcast()
	return nil
}

// SetWriteDeadline is net.Conn's; a Write takes no time.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline is net.Conn's.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// LocalAddr is net.Conn's.
func (c *conn) LocalAddr() net.Addr { return c.link }

// RemoteAddr is net.Conn's.
func (c *conn) RemoteAddr() net.Addr { return address("server") }

type address string

func (a address) Network() string { return "memory" }
func (a address) String() string  { return string(a) }

// earliest is the first of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}
