package demo

import (
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// inMemory stands where an address would. It is no name, because go-redis looks names up.
const inMemory = "127.0.0.1:0"

// memory starts a server in memory, which no network knows of, and the clients in this process.
func (s *setup) memory(cfg Config, rec *recorder) error {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	s.server = server.Close
	s.rdb = (&link{dial: server.Dial}).client()
	for _, r := range s.configs(cfg) {
		p := &local{link: &link{dial: server.Dial}, rec: rec}
		p.rdb = p.link.client()
		var err error
		if p.workers, err = startWorkers(p.rdb, r, rec.clock, rec.add); err != nil {
			_ = p.rdb.Close()
			return err
		}
		s.clients = append(s.clients, p)
	}
	return nil
}

// client returns a client that connects by the link. It does not insist once that is cut.
func (l *link) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: inMemory, Dialer: l.Dial, DialerRetries: 1})
}

// local is a client that shares this process.
type local struct {
	*workers
	link *link
	rdb  *redis.Client
	rec  *recorder
}

func (p *local) number() int { return p.Process }

func (p *local) crash() {
	p.link.Cut()
	p.rec.kill(p.Process) // after that: what it reported before may have reached the server
	p.cancel()            // the workers stop; whatever they would still say, the link is cut
}

func (p *local) stop() {
	p.workers.stop()
	_ = p.rdb.Close()
}
