// Package locks has what demo and bench share: a lock of any kind that clients contend for.
package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/lua"
)

// Type is a kind of lock, with the permits of a semaphore.
type Type struct {
	Kind    view.Kind `json:"kind"`
	Permits int       `json:"permits,omitempty"` // of a semaphore; without effect for the others
}

// Check returns what is wrong with a Type.
func (t Type) Check() error {
	if _, err := view.ParseKind(string(t.Kind)); err != nil || t.Kind != view.Semaphore {
		return err
	}
	return Within("permits", t.Permits, 1, 1<<20)
}

// Within returns an error if a value is out of its bounds.
func Within[T int | time.Duration](name string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("%s is %v, must be from %v to %v", name, value, least, most)
	}
	return nil
}

// String names the type.
func (t Type) String() string {
	if t.Kind == view.Semaphore {
		return fmt.Sprintf("%s of %d", t.Kind, t.Permits)
	}
	return string(t.Kind)
}

// Capacity is the weight of all of a lock: 1 of a mutex, the permits of a semaphore, and what a writer takes.
func (t Type) Capacity() int {
	switch t.Kind {
	case view.Semaphore:
		return t.Permits
	case view.RW:
		return lua.WriterWeight
	default:
		return 1
	}
}

// Acquire waits for the lock with that name: for as many permits as weight says, or for all to write, else for one to
// read. ctx bounds the wait.
func (t Type) Acquire(ctx context.Context, c *fairlock.Client, name string, weight int) (*fairlock.Lease, error) {
	switch {
	case t.Kind == view.Semaphore:
		return c.Semaphore(name, t.Permits).Acquire(ctx, weight)
	case t.Kind == view.RW && weight == lua.WriterWeight:
		return c.RWMutex(name).Lock(ctx)
	case t.Kind == view.RW:
		return c.RWMutex(name).RLock(ctx)
	default:
		return c.Mutex(name).Lock(ctx)
	}
}

// Keys are all keys of the lock with that name.
func (t Type) Keys(namespace, name string) []string {
	if t.Kind == view.Mutex {
		k := lua.MutexKeys(namespace, name)
		return []string{k.Number, k.Queue, k.Heartbeats, k.Tombstones, k.Lock}
	}
	k := lua.SemaphoreKeys(namespace, name)
	if t.Kind == view.RW {
		k = lua.RWMutexKeys(namespace, name)
	}
	return []string{k.Number, k.Queue, k.Heartbeats, k.Tombstones, k.Permits, k.Holders}
}
