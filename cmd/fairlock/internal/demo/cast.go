package demo

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// player is one client of the demo, in this process or in its own.
type player interface {
	name() string
	keep(all bool) // have the next worker that asks keep what it is granted, and ask for everything if it is to be all
	letGo()        // end keep
	crash()        // die; when it returns, nothing of the client reaches Redis any more
	stop()         // end in order, or clean up after crash; returns when the client is gone
}

// cast is who plays and where.
type cast struct {
	lock    string
	suffix  string // of the clients' names, for two demos on one server
	rdb     *redis.Client
	players []player
	server  func() // ends the server, if it is ours
}

// assemble starts a server or finds it, and starts the clients on it.
func assemble(cfg Config, rec *recorder) (*cast, error) {
	run := strings.ToLower(rand.Text()[:6])
	c := &cast{lock: "demo-" + run, suffix: "-" + run, server: func() {}}
	add := c.processes
	if cfg.Redis == "" {
		add = c.memory
	}
	if err := add(cfg, rec); err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}

// roles are the parts that the clients play.
func (c *cast) roles(cfg Config) []role {
	all := make([]role, cfg.Clients)
	for i := range all {
		all[i] = role{
			Contest: cfg.Contest, Client: fmt.Sprintf("client-%d%s", i+1, c.suffix), Lock: c.lock, Workers: cfg.Workers,
			TTL: cfg.TTL, Patience: cfg.Patience, Hold: cfg.Hold, Redis: cfg.Redis,
		}
	}
	return all
}

// short is a client's name without what sets two demos apart.
func (c *cast) short(name string) string { return strings.TrimSuffix(name, c.suffix) }

// where says which server is used.
func (c *cast) where() string {
	if addr := c.rdb.Options().Addr; addr != inMemory {
		return "Redis at " + addr
	}
	return "Redis in memory"
}

// leave stops the clients, all at once, and ends the server if it is ours.
func (c *cast) leave() {
	var all sync.WaitGroup
	for _, p := range c.players {
		all.Go(p.stop)
	}
	all.Wait()
	if c.rdb != nil {
		_ = c.rdb.Close()
	}
	c.server()
}
