package main

import (
	"net"
	"sync"
	"time"
)

// proxy passes data between its clients and a server, each way after half of a round trip.
type proxy struct {
	listener net.Listener
	server   string
	delay    time.Duration

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	tasks sync.WaitGroup
}

func newProxy(server string, rtt time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, server: server, delay: rtt / 2}
	p.tasks.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.tasks.Go(func() { p.pass(client, server) })
		p.tasks.Go(func() { p.pass(server, client) })
	}
}

// pass copies from one connection to the other, each piece after the delay.
func (p *proxy) pass(from, to net.Conn) {
	type piece struct {
		due  time.Time
		data []byte
	}
	under := make(chan piece, 4096) // way
	p.tasks.Go(func() {
		defer func() { _ = to.Close() }()
		for piece := range under {
			time.Sleep(time.Until(piece.due))
			if _, err := to.Write(piece.data); err != nil {
				_ = from.Close() // also ends the reader
			}
		}
	})
	defer close(under)
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if n > 0 {
			under <- piece{time.Now().Add(p.delay), data[:n]}
		}
		if err != nil {
			return
		}
	}
}

// close ends all connections.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.tasks.Wait()
}
