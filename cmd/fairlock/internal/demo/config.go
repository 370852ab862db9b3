package demo

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// minClients leaves one that survives both crashes.
const minClients = 3

// Config is what a demo can be told. Every field counts: there are no defaults here.
type Config struct {
	Contest
	Redis     string // URL of a server to use; empty: one in memory
	Clients   int
	Workers   int           // of each client
	Duration  time.Duration // of the contention; what the crashes cost comes on top
	TTL       time.Duration
	WaiterTTL time.Duration // how long a waiter without heartbeats keeps its ticket
	Hold      time.Duration // of the lock, about, by each worker; it rests for about as long
	Live      bool          // draw the live display; the output is a terminal then
}

// Check returns every fault of the configuration, or nil.
func (c Config) Check() error {
	_, err := c.options()
	return errors.Join(
		err,
		c.check(),
		within("clients", c.Clients, minClients, 64),
		within("workers", c.Workers, 1, 64),
		within("duration", c.Duration, 100*time.Millisecond, 10*time.Minute),
		within("ttl", c.TTL, 100*time.Millisecond, time.Minute),
		within("waiter-ttl", c.WaiterTTL, fairlock.MinWaiterTTL, time.Minute),
		within("hold", c.Hold, 0, time.Second),
	)
}

func within[T int | time.Duration](name string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("%s is %v, must be from %v to %v", name, v, least, most)
	}
	return nil
}

// limit is how long anything may take that the demo waits for: both kinds of crash, everybody's turn, and a slow
// machine.
func (c Config) limit() time.Duration {
	return 5*time.Second + c.TTL + c.WaiterTTL + 2*time.Duration(c.Clients*c.Workers)*c.Hold
}

// options are how to reach the server that Redis names. The error does not quote it: it may hold a password.
func (c Config) options() (*redis.Options, error) {
	if c.Redis == "" {
		return &redis.Options{}, nil
	}
	opts, err := redis.ParseURL(c.Redis)
	if quoting, ok := errors.AsType[*url.Error](err); ok {
		err = quoting.Err
	}
	if err != nil {
		return nil, fmt.Errorf("redis URL, want redis://, rediss:// or unix://: %w", err)
	}
	return opts, nil
}
