package fairlock

import (
	"context"

	"github.com/fairlock/fairlock-go/internal/tokens"
)

// RWMutex is held by one writer or any number of readers. Adjacent readers in the queue are granted the lock together.
type RWMutex struct{ shared }

// RWMutex returns the read-write lock with that name. Otherwise it is like Client.Mutex.
func (c *Client) RWMutex(name string, options ...Option) RWMutex {
	return RWMutex{shared{newLock(c, KindRWMutex, name, tokens.WriterWeight, options)}}
}

// Lock locks for writing. It is otherwise like Mutex.Lock, and returns ErrReentrant even if ctx carries a lease for
// reading.
func (m RWMutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, waits, "lock", tokens.WriterWeight, nil)
}

// RLock locks for reading. It is otherwise like Mutex.Lock, and returns ErrReentrant if ctx carries a lease for
// writing. A second RLock in a holder deadlocks until its ctx ends if a writer has queued in between.
func (m RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, waits, "rlock", 1, nil)
}

// TryLock locks for writing, as Mutex.TryLock does.
func (m RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, tries, "trylock", tokens.WriterWeight, nil)
}

// TryRLock locks for reading, as Mutex.TryLock does.
func (m RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, tries, "tryrlock", 1, nil)
}

// Do runs f while it holds the lock for writing, as Mutex.Do does.
func (m RWMutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, waits, "do", tokens.WriterWeight, nil, f)
}

// RDo runs f while it holds the lock for reading, as Mutex.Do does.
func (m RWMutex) RDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, waits, "rdo", 1, nil, f)
}

// TryDo runs f while it holds the lock for writing, as Mutex.TryDo does.
func (m RWMutex) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, tries, "trydo", tokens.WriterWeight, nil, f)
}
