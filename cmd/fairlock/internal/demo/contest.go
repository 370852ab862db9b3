package demo

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Kind is a kind of lock.
type Kind string

// The kinds of locks that a demo can be about.
const (
	Mutex     Kind = "mutex"
	Semaphore Kind = "semaphore"
	RW        Kind = "rw"
)

// Contest is what the clients contend for.
type Contest struct {
	Kind    Kind
	Permits int // of a semaphore; of no meaning for others
}

// everything is what a writer takes; a reader takes 1.
const everything = 1 << 30

func (c Contest) check() error {
	switch c.Kind {
	case Semaphore:
		return within("permits", c.Permits, 1, 1<<20)
	case Mutex, RW:
		return nil
	default:
		return fmt.Errorf("kind is %q, must be %s, %s or %s", string(c.Kind), Mutex, Semaphore, RW)
	}
}

// capacity is how much can be held at once.
func (c Contest) capacity() int {
	switch c.Kind {
	case Semaphore:
		return c.Permits
	case RW:
		return everything
	default:
		return 1
	}
}

// weight draws what a worker asks for: of permits mostly one, now and then two or three; one
// in seven writes.
func (c Contest) weight() int {
	switch n := rand.N(14); {
	case c.Kind == Semaphore && n < 3:
		return min(2+n%2, c.Permits)
	case c.Kind == RW && n < 2:
		return everything
	}
	return 1
}

// acquire waits for so much of the lock with that name.
func (c Contest) acquire(ctx context.Context, client *fairlock.Client, name string, weight int) (*fairlock.Lease, error) {
	switch {
	case c.Kind == Semaphore:
		return client.Semaphore(name, c.Permits).Acquire(ctx, weight)
	case c.Kind == RW && weight == everything:
		return client.RWMutex(name).Lock(ctx)
	case c.Kind == RW:
		return client.RWMutex(name).RLock(ctx)
	default:
		return client.Mutex(name).Lock(ctx)
	}
}

func (c Contest) inspect(ctx context.Context, client *fairlock.Client, name string) (fairlock.State, error) {
	switch c.Kind {
	case Semaphore:
		return client.Semaphore(name, c.Permits).Inspect(ctx)
	case RW:
		return client.RWMutex(name).Inspect(ctx)
	default:
		return client.Mutex(name).Inspect(ctx)
	}
}

// numberKey is the one key that stays on the server.
func (c Contest) numberKey(name string) string {
	return fmt.Sprintf("fairlock:{%s}:%snumber", name, map[Kind]string{Semaphore: "sem:", RW: "rw:"}[c.Kind])
}
