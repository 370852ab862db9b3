// Package proxy is a network that loses what it carries: it stands between Redis and its clients.
//
// A stream cannot lose one message and deliver the next. So a lost message ends its connection: it is reset, or it
// stays open without passing data until its ends time out.
package proxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Faults is what goes wrong. Chances are from 0 to 1, for each message; the zero value is a network that works.
type Faults struct {
	Requests float64       // chance that a request is lost
	Replies  float64       // chance that a reply, or what is published, is lost
	Late     float64       // chance that a request is Delay late, even if its sender does not wait any more
	Delay    time.Duration // at most
	Latency  time.Duration // at most that for every message
	Slow     time.Duration // added for every reply
	Mute     bool          // nothing reaches subscribers
	Hung     bool          // nothing passes; it arrives when that is over
	Cut      bool          // all connections are reset and no new ones made
}

// Counts is what has gone wrong so far.
type Counts struct {
	Requests, Replies int // lost
	Late              int // requests
	Muted             int // lost on their way to subscribers because of Mute
	Reset             int // connections
	Silent            int // connections that stayed open
	Torn              int // lost messages that have arrived in part
	Refused           int // connections
}

// Proxy is one such network. It is safe for concurrent use.
type Proxy struct {
	network, addr string
	dir           string
	listener      net.Listener
	tasks         sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond         // on mu: faults or closed have changed
	faults Faults             // guarded by mu
	counts Counts             // guarded by mu
	links  map[*link]struct{} // guarded by mu
	closed bool               // guarded by mu
}

// link is one connection.
type link struct {
	client, server net.Conn
	over           chan struct{} // closed with it
	once           sync.Once
	subscriber     bool // guarded by the proxy's mu
	silent         bool // guarded by the proxy's mu
}

// New returns a network to a server that works at first. Close it.
func New(network, addr string) (*Proxy, error) {
	dir, err := os.MkdirTemp("", "proxy") // short: the path of a Unix socket may have 107 bytes
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &Proxy{network: network, addr: addr, dir: dir, listener: listener, links: map[*link]struct{}{}}
	p.change = sync.NewCond(&p.mu)
	p.tasks.Go(p.accept)
	return p, nil
}

// Addr is the path of its Unix socket.
func (p *Proxy) Addr() string { return filepath.Join(p.dir, "s") }

// Set changes what goes wrong from now on.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	p.faults = f
	p.mu.Unlock()
	p.change.Broadcast()
	if f.Cut {
		p.Reset()
	}
}

// Counts returns what has gone wrong.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Reset resets all connections.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Reset += len(p.links)
	for l := range p.links {
		l.close()
	}
}

// Close ends it, and returns when all its goroutines have ended.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.change.Broadcast()
	p.Reset()
	p.tasks.Wait()
	return errors.Join(err, os.RemoveAll(p.dir))
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.tasks.Go(func() { p.connect(client) })
	}
}

// connect joins a client and the server, if it may.
func (p *Proxy) connect(client net.Conn) {
	p.mu.Lock()
	refuse := p.faults.Cut || p.closed
	if refuse {
		p.counts.Refused++
	}
	p.mu.Unlock()
	if refuse {
		_ = client.Close()
		return
	}
	server, err := net.Dial(p.network, p.addr)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server, over: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.closed {
		l.close()
	}
	p.mu.Unlock()
	// Not until both ways have ended: what a client has sent before it hung up arrives.
	var ways sync.WaitGroup
	ways.Go(func() { p.carry(l, client, server, p.requestLocked) })
	ways.Go(func() {
		p.carry(l, server, client, p.replyLocked)
		_ = client.Close()
	})
	ways.Wait()
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.over)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// carry carries one way until its source ends. A slow reader does not hold up the writer for ever:
// what cannot be delivered is dropped.
func (p *Proxy) carry(l *link, from, to net.Conn, decide func(*link, []byte) fate) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			if half, ok := to.(interface{ CloseWrite() error }); ok && errors.Is(err, io.EOF) {
				_ = half.CloseWrite()
			}
			return
		}
		p.mu.Lock()
		for p.faults.Hung && !p.closed {
			p.change.Wait()
		}
		f := decide(l, buffer[:n])
		p.mu.Unlock()
		if f.after > 0 {
			select {
			case <-time.After(f.after):
			case <-l.over:
				return
			}
		}
		if f.pass > 0 {
			_, _ = to.Write(buffer[:f.pass]) // if it is gone, this is lost
		}
		if f.reset {
			l.close()
			return
		}
	}
}

// fate is what becomes of a message.
type fate struct {
	after time.Duration
	pass  int  // bytes
	reset bool // the connection
}

var subscribe = []byte("\r\nsubscribe\r\n")

// requestLocked decides the fate of data that a client sends. Clients write a request, or several at once, in one
// piece.
func (p *Proxy) requestLocked(l *link, data []byte) fate {
	l.subscriber = l.subscriber || bytes.Contains(bytes.ToLower(data[:min(len(data), 128)]), subscribe)
	f := p.messageLocked(l, len(data), p.faults.Requests, &p.counts.Requests)
	if f.pass == len(data) && rand.Float64() < p.faults.Late {
		p.counts.Late++
		f.after += rand.N(p.faults.Delay)
	}
	return f
}

// replyLocked decides the fate of data that the server sends.
func (p *Proxy) replyLocked(l *link, data []byte) fate {
	if l.subscriber && p.faults.Mute {
		p.counts.Muted++
		return fate{}
	}
	f := p.messageLocked(l, len(data), p.faults.Replies, &p.counts.Replies)
	f.after += p.faults.Slow
	return f
}

// messageLocked decides by chance whether a message is lost.
func (p *Proxy) messageLocked(l *link, size int, chance float64, lost *int) fate {
	if l.silent {
		return fate{}
	}
	if rand.Float64() >= chance {
		f := fate{pass: size}
		if p.faults.Latency > 0 {
			f.after = rand.N(p.faults.Latency)
		}
		return f
	}
	*lost++
	var f fate
	if rand.IntN(4) == 0 {
		f.pass = rand.IntN(size)
		if f.pass > 0 {
			p.counts.Torn++
		}
	}
	if rand.IntN(2) == 0 {
		p.counts.Reset++
		f.reset = true
	} else {
		p.counts.Silent++
		l.silent = true
	}
	return f
}
