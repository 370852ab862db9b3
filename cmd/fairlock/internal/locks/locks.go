// Package locks is a lock of any kind, for run, demo and bench.
package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// Type is a kind of lock, with the permits of a semaphore.
type Type struct {
	Kind    fairlock.Kind `json:"kind"`
	Permits int           `json:"permits,omitempty"` // of a semaphore; without effect for the others

	Key      string `json:"-"` // of a keyed semaphore: the key, its limit (0: none), its share
	KeyLimit int    `json:"-"`
	Share    int    `json:"-"`

	// how long the lock stays taken after each grant; 0: until it is released. Not for an rwmutex
	MinHold time.Duration `json:"-"`
}

// Check returns what is wrong with a Type.
func (t Type) Check() error {
	if _, err := inspect.ParseKind(string(t.Kind)); err != nil || t.Kind == fairlock.KindMutex ||
		t.Kind == fairlock.KindRWMutex {
		return err
	}
	if t.Kind == fairlock.KindKeyedSemaphore {
		return fmt.Errorf("kind %s is not for this command, want mutex, semaphore or rwmutex", t.Kind)
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
	if t.Kind == fairlock.KindSemaphore {
		return fmt.Sprintf("%s of %d", t.Kind, t.Permits)
	}
	return string(t.Kind)
}

// Capacity returns the weight of the whole lock: 1 for a mutex, the permits of a semaphore, a writer's weight.
func (t Type) Capacity() int {
	switch t.Kind {
	case fairlock.KindSemaphore:
		return t.Permits
	case fairlock.KindRWMutex:
		return tokens.WriterWeight
	default:
		return 1
	}
}

// Acquire waits for the lock with that name, or only tries. Of a semaphore it acquires weight permits. It locks a
// read-write lock for writing if weight is Capacity, else for reading. ctx bounds the wait.
func (t Type) Acquire(ctx context.Context, c *fairlock.Client, name string, weight int, try bool) (*fairlock.Lease,
	error) {
	minHold := fairlock.WithMinHold(t.MinHold)
	if t.Kind == fairlock.KindKeyedSemaphore {
		key := c.KeyedSemaphore(name, t.Permits, minHold).Key(t.Key, fairlock.WithKeyLimit(t.KeyLimit),
			fairlock.WithShare(max(t.Share, 1)))
		if try {
			return key.TryAcquire(ctx, weight)
		}
		return key.Acquire(ctx, weight)
	}
	m, s, rw := c.Mutex(name, minHold), c.Semaphore(name, t.Permits, minHold), c.RWMutex(name)
	wait, now := m.Lock, m.TryLock
	switch {
	case t.Kind == fairlock.KindSemaphore && try:
		return s.TryAcquire(ctx, weight)
	case t.Kind == fairlock.KindSemaphore:
		return s.Acquire(ctx, weight)
	case t.Kind == fairlock.KindRWMutex && weight == tokens.WriterWeight:
		wait, now = rw.Lock, rw.TryLock
	case t.Kind == fairlock.KindRWMutex:
		wait, now = rw.RLock, rw.TryRLock
	}
	if try {
		return now(ctx)
	}
	return wait(ctx)
}
