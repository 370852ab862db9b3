package bench

import (
	"fmt"
	"time"
)

// Kind is a kind of lock.
type Kind string

// The kinds.
const (
	Mutex     Kind = "mutex"
	Semaphore Kind = "semaphore"
	RW        Kind = "rw" // pairs write; of the contenders, one in four writes and the others read
)

// Config says what is measured.
type Config struct {
	Kind       Kind
	Permits    int           // of a semaphore; each takes one
	Contenders int           // goroutines, over all clients
	Clients    int           // with connections of their own
	Duration   time.Duration // of all slices together, but for warming up
}

// Bounds.
const (
	MaxContenders = 10_000
	MaxClients    = 1_000
	MinDuration   = 100 * time.Millisecond
)

// Check returns what is wrong with it.
func (c Config) Check() error {
	switch {
	case c.Kind != Mutex && c.Kind != Semaphore && c.Kind != RW:
		return fmt.Errorf("kind is %q, must be mutex, semaphore or rw", c.Kind)
	case c.Kind == Semaphore && c.Permits < 1:
		return fmt.Errorf("permits is %d, must be at least 1", c.Permits)
	case c.Contenders < 1 || c.Contenders > MaxContenders:
		return fmt.Errorf("contenders is %d, must be from 1 to %d", c.Contenders, MaxContenders)
	case c.Clients < 1 || c.Clients > MaxClients:
		return fmt.Errorf("clients is %d, must be from 1 to %d", c.Clients, MaxClients)
	case c.Duration < MinDuration:
		return fmt.Errorf("duration is %v, must be at least %v", c.Duration, MinDuration)
	}
	return nil
}
