package demo

import (
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// inMemory stands where an address would.
const inMemory = "memory"

// memory starts a server in memory, which no network knows of, and the clients in this process.
func (c *cast) memory(cfg Config, rec *recorder) error {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	c.server = server.Close
	c.rdb = (&link{dial: server.Dial}).client()
	for _, r := range c.roles(cfg) {
		p := &local{link: &link{dial: server.Dial}, rec: rec}
		p.rdb = p.link.client()
		var err error
		if p.contender, err = contend(p.rdb, r, rec.clock, rec.add); err != nil {
			_ = p.rdb.Close()
			return err
		}
		c.players = append(c.players, p)
	}
	return nil
}

// client returns a client that connects by the link. It does not insist once that is cut.
func (l *link) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: inMemory, Dialer: l.Dial, DialerRetries: 1})
}

// local is a client that shares this process.
type local struct {
	*contender
	link *link
	rdb  *redis.Client
	rec  *recorder
}

func (p *local) name() string { return p.Client }

func (p *local) crash() {
	p.rec.kill(p.Client)
	p.link.Cut()
	p.cancel() // the workers stop; whatever they would still say, the link is cut
}

func (p *local) stop() {
	p.contender.stop()
	_ = p.rdb.Close()
}
