package fairlock

import (
	"context"
)

// Mutex is a lock with one holder at a time.
type Mutex struct{ shared }

// Mutex returns the mutex with that name of 1 to 1,024 bytes. It does no I/O. Methods of the lock return an ErrInvalid for a name
// or an option that is out of bounds.
func (c *Client) Mutex(name string, options ...HoldOption) Mutex {
	return Mutex{shared{newLock(c, KindMutex, name, 0, options)}}
}

// Lock waits in order until the lock is granted, and returns the lease. It returns the error of ctx, ErrWaitTimeout,
// ErrQueueFull, ErrReentrant, ErrClosed, ErrUnreachable, ErrInvalid, or an error of Redis. If a holder is known when the wait
// times out, a *HeldError names it. A waiter that cannot leave the queue, because Redis does not answer, expires after its
// WaiterTTL, or after its TTL if it was granted the lock meanwhile.
func (m Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "lock", 1, false, nil)
}

// TryLock returns the lease if the lock is free and nobody waits for it. Otherwise it returns ErrBusy, in a *HeldError if the
// lock is held. If several machines try to do a job once, record under the lock that it is done, because ErrBusy says nothing
// about the next moment. ErrUnreachable means that Redis did not serve TryLock for 3 s, and ErrLost that the lease had ended when
// the reply came.
func (m Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "trylock", 1, true, nil)
}

// Do runs f while it holds the lock, and releases it when f returns or panics. The ctx of f ends when the lease or ctx does, and
// f should return then. context.Cause tells why. LeaseFromContext finds the lease in it, for its fence.
//
// Do returns f's error, joined with one of the lock. Check for ErrLost first, because f's own error may only say that its ctx has
// ended. An *Error whose Op is "unlock" says that f has returned, and that the lock may stay held for the rest of its TTL.
func (m Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "do", 1, false, nil, f)
}

// TryDo is Do with TryLock in place of Lock. If f was not called because the lock is busy, the ErrBusy is in an *Error with Op
// "trydo" and this lock's name: f may return one of another lock.
func (m Mutex) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "trydo", 1, true, nil, f)
}
