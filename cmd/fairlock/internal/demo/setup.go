package demo

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/history"
)

// client is one client of the demo, in this process or in one of its own.
type client interface {
	number() int   // its Process in the history
	keep(all bool) // let the next worker that asks keep what it is granted, and ask for everything if all is set
	letGo()        // end keep
	crash()        // die; when it returns, nothing of the client reaches Redis any more
	stop()         // end in order, or clean up after crash; returns when the client is gone
}

// setup is the clients, and the lock and the server that they use.
type setup struct {
	lock    string
	suffix  string // of the clients' names, for two demos on one server
	rdb     *redis.Client
	clients []client
	server  func() // ends the server, if it is ours
}

// start starts a server or finds it, and starts the clients on it.
func start(cfg Config) (*setup, *recorder, error) {
	run := strings.ToLower(rand.Text()[:6])
	s := &setup{lock: "demo-" + run, suffix: "-" + run, server: func() {}}
	clock, add := monotonic(), s.memory
	if cfg.Redis != "" {
		clock, add = wall, s.processes
	}
	rec := newRecorder(history.Run{
		TTL: cfg.TTL, WaiterTTL: cfg.WaiterTTL, Capacity: map[string]int{s.lock: cfg.capacity()},
	}, clock, s.name)
	if err := add(cfg, rec); err != nil {
		s.stop()
		return nil, nil, err
	}
	return s, rec, nil
}

// name is that of a client by its number.
func (s *setup) name(number int) string { return fmt.Sprintf("client-%d%s", number+1, s.suffix) }

// short is a client's name without what sets two demos apart.
func (s *setup) short(name string) string { return strings.TrimSuffix(name, s.suffix) }

// configs are those of the clients.
func (s *setup) configs(cfg Config) []clientConfig {
	all := make([]clientConfig, cfg.Clients)
	for i := range all {
		all[i] = clientConfig{
			Contest: cfg.Contest, Process: i, Client: s.name(i), Lock: s.lock, Workers: cfg.Workers,
			TTL: cfg.TTL, WaiterTTL: cfg.WaiterTTL, Hold: cfg.Hold, Redis: cfg.Redis,
		}
	}
	return all
}

// where says which server is used.
func (s *setup) where() string {
	if addr := s.rdb.Options().Addr; addr != inMemory {
		return "Redis at " + addr
	}
	return "Redis in memory"
}

// stop stops the clients, all at once, and ends the server if it is ours.
func (s *setup) stop() {
	var all sync.WaitGroup
	for _, c := range s.clients {
		all.Go(c.stop)
	}
	all.Wait()
	if s.rdb != nil {
		_ = s.rdb.Close()
	}
	s.server()
}
