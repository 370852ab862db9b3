package fairlock

import (
	"context"
)

// Mutex is a lock with one holder at a time.
type Mutex struct{ shared }

// Mutex returns the mutex with that name, of 1 to 1,024 bytes. It does no I/O. The lock's methods return an ErrInvalid
// for a name or an option out of bounds.
func (c *Client) Mutex(name string, options ...HoldOption) Mutex {
	return Mutex{shared{newLock(c, KindMutex, name, 0, options)}}
}

// Lock waits in order until the lock is granted, and returns the lease. The error is that of ctx, ErrWaitTimeout,
// ErrQueueFull, ErrReentrant, ErrClosed, ErrUnreachable, ErrRefused, ErrInvalid, or one of Redis. A timeout is in a
// *HeldError if a holder is known.
func (m Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, waits, "lock", 1, nil)
}

// TryLock returns the lease if the lock is free and has no waiters. Otherwise it returns ErrBusy, in a *HeldError if
// the lock is held. ErrUnreachable means that Redis did not serve TryLock for MaxOutage, by default 3 s, ErrLost that
// the lease had ended when the reply came. To do a job once on several machines, see WithMinHold.
func (m Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, tries, "trylock", 1, nil)
}

// Do runs f while it holds the lock, and releases it when f returns or panics. The ctx of f ends when the lease or ctx
// does, and f should return then. context.Cause says why. LeaseFromContext returns the lease, for its fence.
//
// Do returns f's error, joined with one of the lock. Check for ErrLost first, because f's own error may be a
// consequence. After an *Error with Op "unlock", f has run, and the lock may stay held for the rest of its TTL.
func (m Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, waits, "do", 1, nil, f)
}

// TryDo is Do with TryLock in place of Lock. If the lock is busy, the ErrBusy is in an *Error with Op "trydo" and this
// lock's name. So it differs from one that f returns.
func (m Mutex) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, tries, "trydo", 1, nil, f)
}
