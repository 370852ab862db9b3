package redistest

import (
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
	cut    bool                     // guarded by mu: connections are refused
	closed bool                     // guarded by mu
	tasks  sync.WaitGroup
}

type connection struct{ client, server net.Conn }

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

// Cut breaks every connection and refuses new ones.
func (l *Link) Cut() {
	l.set(func() { l.cut = true })
	l.breakAll()
}

func (l *Link) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.close()
	}
}

// Mend ends every fault.
func (l *Link) Mend() { l.set(func() { l.hung, l.cut = false, false }) }

func (l *Link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.change.Broadcast()
}

func (l *Link) close() {
	_ = l.listener.Close()
	l.set(func() { l.closed = true })
	l.breakAll()
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
		l.tasks.Go(func() { l.pump(c, c.client, c.server) })
		l.tasks.Go(func() { l.pump(c, c.server, c.client) })
	}
}

func (c *connection) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// pump copies bytes in one direction.
func (l *Link) pump(c *connection, from, to net.Conn) {
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
		for l.hung && !l.closed {
			l.change.Wait()
		}
		l.mu.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
