package demo

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errCut = errors.New("this client has crashed")

// link is the connections of one client to the server. Once it is cut, nothing of the client reaches the server.
type link struct {
	dial func() (net.Conn, error)

	mu    sync.Mutex
	cut   bool       // guarded by mu
	conns []net.Conn // guarded by mu
}

// Dial connects; it is go-redis's Dialer.
func (l *link) Dial(context.Context, string, string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errCut
	}
	conn, err := l.dial()
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// Cut breaks every connection, now and for good.
func (l *link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, conn := range l.conns {
		_ = conn.Close() // it may be closed already
	}
	l.conns = nil
}
