package fairlock

import "context"

// shared is what all kinds of locks have.
type shared struct{ lock *lock }

// Resume takes over a lease that was begun elsewhere, perhaps in another process, and returns it like any other lease: with a token
// of this client, another fence, and this lock's TTL and minimum hold. It has as many permits as before. From then on the other
// process cannot renew or release it: there it ends with ErrLost at its next renewal, at most a third of TTL later, and a
// resource that has seen the new fence refuses it at once.
//
// The handle comes from Lease.Handle, Detach or Inspect. It serves once: who resumes hands on the handle of the new lease. Of two
// that resume with one handle, one gets the lease, and the other one an ErrLost with ErrTaken. So does whoever comes after the
// lease's end.
//
// ctx bounds the request. While Redis does not serve it, it is sent again, for 3 s at most; after that the error is
// ErrUnreachable. After another error than ErrTaken the lease may have been taken over: then this client releases the lock as
// soon as Redis serves it, or when its minimum hold is over.
func (s shared) Resume(ctx context.Context, h Handle) (*Lease, error) { return s.lock.resume(ctx, h) }

// Inspect returns the holders and the waiters of the lock at one moment. It changes nothing. It never waits for the lock, but
// for Redis: while ctx lasts, and for 3 s at most. After that the error is ErrUnreachable.
func (s shared) Inspect(ctx context.Context) (State, error) { return s.lock.inspect(ctx) }

// ForceRelease takes the lock from its holders, all permits of a semaphore for example, hands it to the first waiters, and reports
// whether it was held. It is for operators. A holder trusts its lease until its next renewal. A resource that checks fences refuses
// that holder as soon as it has seen the fence of a later one. To take the permits of one holder, Resume its lease with the handle
// that Inspect returns, and Unlock it. ctx bounds the requests. Each is sent again while Redis does not serve it, for 3 s at most;
// after that the error is ErrUnreachable.
func (s shared) ForceRelease(ctx context.Context) (bool, error) { return s.lock.forceRelease(ctx) }
