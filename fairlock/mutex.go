package fairlock

import (
	"context"
)

// Mutex is a lock with one holder at a time. It is a value without state of its own. Copies, and Mutexes of the same name
// from other clients, are the same lock. It is safe for concurrent use.
type Mutex struct{ shared }

// Mutex returns the mutex with that name, any 1 to 1,024 bytes. It does no I/O. The Mutex's methods return an error
// for a name or an option that is out of bounds.
func (c *Client) Mutex(name string, options ...HoldOption) Mutex {
	return Mutex{shared{newLock(c, KindMutex, name, 0, options)}}
}

// Lock waits in order until the lock is granted, and returns the lease. ctx bounds the waiting, and not the lease. When it
// ends, Lock returns its error within 100 ms, even if Redis hangs (New says when a cancellation takes longer). The waiter
// leaves the queue then, or as soon as Redis answers. If Redis answers none of its requests to leave, it expires after its
// WaiterTTL, or after its TTL if it was granted the lock meanwhile.
//
// The order is the order of arrival at Redis. While Redis does not serve the client, because connections fail, or because a
// server answers that it cannot run the request now (READONLY, LOADING, …), Lock goes on for as long as ctx lasts, its first
// request included; a waiter in the queue keeps its ticket. Only if no server has ever answered the client, Lock gives up
// after 10 s with ErrUnreachable: the address may be wrong.
//
// Lock returns the error of ctx, ErrQueueFull, ErrClosed, ErrInvalid, or an error of Redis. If a holder is known when
// ctx's deadline passes, its error is in a *HeldError. After an error the caller does not hold the lock. WithMaxWait bounds
// the wait without a ctx.
//
// If ctx carries a lease of the same lock of the same Client that has not ended, Lock returns ErrReentrant at once, because it
// would wait for itself: the ctx of the function of Do carries one, and so do contexts made of it, also by
// context.WithoutCancel. Work that shall wait for the end of the lease needs a ctx from outside. TryLock returns ErrBusy then.
func (m Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "lock", 1, false, nil)
}

// TryLock returns the lease if the lock is free and nobody waits for it. Otherwise it returns ErrBusy, in a *HeldError if
// the lock is held. It never overtakes a waiter, and never joins the queue. ErrBusy says nothing about the next moment: if
// several machines try to do a job once, record under the lock that it is done. TryLock never waits for the lock, but for
// Redis: while ctx lasts, and for 3 s at most, it tries again if Redis does not serve it, and returns ErrUnreachable after
// that. TryLock returns the other errors of Lock too, and ErrLost if the lock was granted, but the reply came when the lease
// had ended.
func (m Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.lock.acquire(ctx, "trylock", 1, true, nil)
}

// Do runs f while it holds the lock. It never calls f without the lock, and releases it when f returns or panics. The ctx
// of f ends when the lease or ctx does, and f should return then. context.Cause tells why, and LeaseFromContext finds the
// lease in it, for its fence.
//
// Do returns f's error, joined with an error of the lock: ErrLost, for example, if the lock was lost while f ran. Check for
// ErrLost first, because f's own error may only say that its ctx has ended. An *Error whose Op is "unlock" says that f has
// returned, and that its lock may stay held for the rest of its TTL, because Redis did not serve the release.
func (m Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "do", 1, false, nil, f)
}

// TryDo runs f while it holds the lock, as Do does, if TryLock gets the lock. Otherwise it does not call f, and returns the
// error of TryLock. An ErrBusy of TryDo itself is an *Error with Op "trydo" and this lock's name: f may have returned an
// ErrBusy of another lock.
func (m Mutex) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.lock.do(ctx, "trydo", 1, true, nil, f)
}
