package fairlock

import (
	"context"

	"github.com/fairlock/fairlock-go/internal/tokens"
)

// RWMutex is a lock that either one writer holds or any number of readers. All wait in one queue. Adjacent readers are
// granted the lock together, no reader passes a writer that came before it, and no writer passes a reader. An RWMutex is a
// value without state of its own. Copies, and RWMutexes of the same name from other clients, are the same lock. It is
// safe for concurrent use.
type RWMutex struct{ shared }

// RWMutex returns the read-write lock with that name, any 1 to 1,024 bytes. It has nothing in common with a Mutex or
// a Semaphore of that name. It does no I/O. The RWMutex's methods return an error for a name or an option
// that is out of bounds.
func (c *Client) RWMutex(name string, options ...Option) RWMutex {
	return RWMutex{shared{newLock(c, KindRWMutex, name, tokens.WriterWeight, options)}}
}

// Lock waits in order until the lock is granted for writing, that is, without other holders. It is otherwise like
// Mutex.Lock. It returns ErrReentrant also if ctx carries a lease for reading.
func (m RWMutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "lock", tokens.WriterWeight, false, nil)
}

// RLock waits in order until the lock is granted for reading, together with other readers. It is otherwise like
// Mutex.Lock. ErrReentrant is for a ctx that carries a lease for writing: a reader may read again. But it should not: if a
// writer has queued in between, the second RLock waits behind it until ctx ends, and the writer waits for the first.
func (m RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "rlock", 1, false, nil)
}

// TryLock returns the lease for writing if the lock is free and nobody waits for it, and ErrBusy otherwise. It never
// overtakes a waiter, and never joins the queue. It is otherwise like Mutex.TryLock.
func (m RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "trylock", tokens.WriterWeight, true, nil)
}

// TryRLock returns the lease for reading if no writer holds the lock and nobody waits for it, and ErrBusy otherwise.
// It never overtakes a waiter, and never joins the queue. It is otherwise like Mutex.TryLock.
func (m RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "tryrlock", 1, true, nil)
}

// Do runs f while it holds the lock for writing, as Mutex.Do does.
func (m RWMutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "do", tokens.WriterWeight, false, nil, f)
}

// RDo runs f while it holds the lock for reading, as Mutex.Do does.
func (m RWMutex) RDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "rdo", 1, false, nil, f)
}

// TryDo runs f while it holds the lock for writing, if TryLock gets it, as Mutex.TryDo does.
func (m RWMutex) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "trydo", tokens.WriterWeight, true, nil, f)
}

// TryRDo runs f while it holds the lock for reading, if TryRLock gets it, as Mutex.TryDo does. Its own ErrBusy has the Op
// "tryrdo".
func (m RWMutex) TryRDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "tryrdo", 1, true, nil, f)
}
