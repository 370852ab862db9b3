//go:build unix

package redistest

import (
	"bytes"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// Link is a proxy between clients and a server that fails on demand.
type Link struct {
	network, addr string
	listener      net.Listener
	path          string

	mu     sync.Mutex
	change *sync.Cond               // on mu: a field below has changed
	conns  map[*connection]struct{} // guarded by mu
	hung   bool                     // guarded by mu: no data passes
	mute   bool                     // guarded by mu: notifications are dropped
	cut    bool                     // guarded by mu: connections are refused
	lose   int                      // guarded by mu: replies still to be dropped
	lost   int                      // guarded by mu: replies dropped so far
	closed bool                     // guarded by mu
	tasks  sync.WaitGroup
}

type connection struct {
	client, server net.Conn
	subscriber     bool // guarded by the link's mu
	scripted       bool // guarded by the link's mu: the last request ran a script
	frozen         bool // guarded by the link's mu: no data passes
}

// NewLink returns a link to a server, without faults.
func NewLink(tb testing.TB, s *Server) *Link {
	tb.Helper()
	path := filepath.Join(tempDir(tb), "l")
	listener, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	l := &Link{network: s.network, addr: s.addr, listener: listener, path: path, conns: map[*connection]struct{}{}}
	l.change = sync.NewCond(&l.mu)
	l.tasks.Go(l.accept)
	tb.Cleanup(l.close)
	return l
}

// Addr is the path of the link's Unix socket.
func (l *Link) Addr() string { return l.path }

// Hang stops all data, and no connection breaks. After Mend, all data arrives that was sent meanwhile.
func (l *Link) Hang() { l.set(func() { l.hung = true }) }

// Freeze stops all data on the existing connections; new ones work.
func (l *Link) Freeze() {
	l.set(func() {
		for c := range l.conns {
			c.frozen = true
		}
	})
}

// DropNotifications drops all data that the server sends to subscribers, on existing and on new connections.
func (l *Link) DropNotifications() { l.set(func() { l.mute = true }) }

// Cut breaks every connection and refuses new ones.
func (l *Link) Cut() {
	l.set(func() { l.cut = true })
	l.Break()
}

// Break breaks every connection; new ones work.
func (l *Link) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.close()
	}
}

// LoseReplies drops the server's replies to the next n scripts and breaks their connections: the server has executed
// the script, and the client does not know.
func (l *Link) LoseReplies(n int) { l.set(func() { l.lose = n }) }

// Lost returns how many replies were dropped so far.
func (l *Link) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Mend ends every fault.
func (l *Link) Mend() {
	l.set(func() {
		l.hung, l.mute, l.cut, l.lose = false, false, false, 0
		for c := range l.conns {
			c.frozen = false
		}
	})
}

func (l *Link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.change.Broadcast()
}

func (l *Link) close() {
	_ = l.listener.Close()
	l.set(func() { l.closed = true })
	l.Break()
	l.tasks.Wait()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		refuse := l.cut || l.closed
		l.mu.Unlock()
		if refuse {
			_ = client.Close()
			continue
		}
		server, err := net.Dial(l.network, l.addr)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &connection{client: client, server: server}
		l.mu.Lock()
		refuse = l.cut || l.closed // it may have been set since
		if !refuse {
			l.conns[c] = struct{}{}
		}
		l.mu.Unlock()
		if refuse {
			c.close()
			continue
		}
		l.tasks.Go(func() { l.pump(c, c.client, c.server, l.request) })
		l.tasks.Go(func() { l.pump(c, c.server, c.client, l.reply) })
	}
}

func (c *connection) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// pump copies bytes in one direction, as long as pass allows it.
func (l *Link) pump(c *connection, from, to net.Conn, pass func(*connection, []byte) action) {
	defer func() {
		c.close()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		for (l.hung || c.frozen) && !l.closed {
			l.change.Wait()
		}
		do := pass(c, buffer[:n])
		l.mu.Unlock()
		switch do {
		case discard:
			continue
		case hangUp:
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

type action int

const (
	forward action = iota
	discard
	hangUp
)

// request inspects data from a client. The caller holds mu.
func (l *Link) request(c *connection, data []byte) action {
	lower := bytes.ToLower(data[:min(len(data), 128)])
	c.subscriber = c.subscriber || bytes.Contains(lower, []byte("\r\nsubscribe\r\n"))
	c.scripted = bytes.Contains(lower, []byte("\r\nevalsha\r\n")) || bytes.Contains(lower, []byte("\r\neval\r\n"))
	return forward
}

// reply inspects data from the server. The caller holds mu. A reply NOSCRIPT passes: the script was not run.
func (l *Link) reply(c *connection, data []byte) action {
	switch {
	case l.mute && c.subscriber:
		return discard
	case l.lose > 0 && c.scripted && !bytes.HasPrefix(data, []byte("-NOSCRIPT")):
		l.lose--
		l.lost++
		return hangUp
	}
	return forward
}
