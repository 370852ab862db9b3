package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// RWMutex is a lock that either one writer holds or any number of readers. All wait in one queue: readers that stand
// together get in together, no reader passes a writer that came before it, and no writer a reader. It is a value
// without state of its own: copies, and RWMutexes of the same name from other clients, are the same lock. It is safe
// for concurrent use.
type RWMutex struct{ lock }

// RWMutex returns the read-write lock with that name, any 1 to MaxName bytes. It has nothing in common with a Mutex or
// a Semaphore of that name. It does no I/O; a name out of its bounds is reported by the RWMutex's methods.
func (c *Client) RWMutex(name string) RWMutex {
	return RWMutex{c.lock(rwMutex, name, lua.RWMutex(c.rdb, c.cfg.Namespace, name))}
}

// WithTTL returns the same lock whose leases last d. Bounds as Config.TTL; a fault is reported by the methods.
func (m RWMutex) WithTTL(d time.Duration) RWMutex {
	m.setTTL(d)
	return m
}

// WithMaxWaiters returns the same lock with another bound on its queue: a Lock or RLock by the returned value is
// refused with ErrQueueFull if n others wait. 0 means any number.
func (m RWMutex) WithMaxWaiters(n int) RWMutex {
	m.setMaxWaiters(n)
	return m
}

// Lock waits in order until the lock is granted for writing, which means alone. All that is said of Mutex.Lock holds.
func (m RWMutex) Lock(ctx context.Context) (*Lease, error) {
	m.weight = lua.Everybody
	return m.acquire(ctx, "lock", false)
}

// RLock waits in order until the lock is granted for reading, together with other readers. All that is said of
// Mutex.Lock holds. Readers are not reentrant either: who reads and reads again while a writer waits waits for itself.
func (m RWMutex) RLock(ctx context.Context) (*Lease, error) {
	m.weight = 1
	return m.acquire(ctx, "rlock", false)
}

// TryLock returns the lease for writing if nobody holds the lock and nobody waits for it, and ErrBusy otherwise. It
// never overtakes a waiter and leaves no trace. ctx bounds it. Errors: as Lock.
func (m RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	m.weight = lua.Everybody
	return m.acquire(ctx, "trylock", true)
}

// TryRLock returns the lease for reading if no writer holds the lock and nobody waits for it, and ErrBusy otherwise.
// It never overtakes a waiter and leaves no trace. ctx bounds it. Errors: as RLock.
func (m RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	m.weight = 1
	return m.acquire(ctx, "tryrlock", true)
}

// Do runs f while it holds the lock for writing, as Mutex.Do does.
func (m RWMutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	m.weight = lua.Everybody
	return m.do(ctx, "lock", f)
}

// RDo runs f while it holds the lock for reading, as Mutex.Do does.
func (m RWMutex) RDo(ctx context.Context, f func(ctx context.Context) error) error {
	m.weight = 1
	return m.do(ctx, "rlock", f)
}

// Resume goes on with a lease that was begun elsewhere, for reading or writing, as Mutex.Resume does.
func (m RWMutex) Resume(ctx context.Context, t token.Token) (*Lease, error) {
	return m.resume(ctx, t)
}

// Inspect tells who holds the lock and who waits, and which of them write, at one moment. It changes nothing. ctx
// bounds it.
func (m RWMutex) Inspect(ctx context.Context) (State, error) {
	return m.inspect(ctx)
}

// ForceRelease takes the lock from the writer or from all readers and hands it over to those who wait, as
// Mutex.ForceRelease does.
func (m RWMutex) ForceRelease(ctx context.Context) (bool, error) {
	return m.forceRelease(ctx)
}
