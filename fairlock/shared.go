package fairlock

import "context"

// shared is what all kinds of locks have.
type shared struct{ lock *lock }

// Resume takes over a lease that was begun elsewhere, perhaps in another process, and returns it with another token, fence and
// handle, and with this lock's TTL and minimum hold. The other process loses it: there it ends with ErrLost at the next renewal,
// at most a third of TTL later.
//
// ErrTaken means that the lease has ended, or that the handle was used before. After any other error the lease may have been
// taken over. Then this client releases it as soon as Redis serves it, or when its minimum hold is over. ctx bounds the request,
// 3 s at most.
func (s shared) Resume(ctx context.Context, h Handle) (*Lease, error) { return s.lock.resume(ctx, h) }

// Inspect returns the holders and the waiters of the lock at one moment. It changes nothing. ctx bounds the request, 3 s at most.
func (s shared) Inspect(ctx context.Context) (State, error) { return s.lock.inspect(ctx) }

// ForceRelease is for operators. It takes the lock from all its holders, hands it to the first waiters, and reports whether it
// was held. A holder trusts its lease until its next renewal. To take the permits of one holder, Resume its lease with the handle
// that Inspect returns, and Unlock it. ctx bounds each request, 3 s at most.
func (s shared) ForceRelease(ctx context.Context) (bool, error) { return s.lock.forceRelease(ctx) }
