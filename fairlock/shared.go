package fairlock

import "context"

// shared is what all kinds of locks have.
type shared struct{ lock *lock }

// Resume takes over the lease of a handle, with a new token, fence and handle, and with this lock's TTL and minimum
// hold. Its old holder gets ErrLost at its next renewal. ErrRevoked means that the lease has ended, or that the handle
// was used before. After any other error, this client releases the lease if it was taken over, when Redis serves it and
// the minimum hold is over. ctx bounds the request, 3 s at most.
func (s shared) Resume(ctx context.Context, h Handle) (*Lease, error) { return s.lock.resume(ctx, h) }

// LeaseFromContext returns the innermost lease of this lock that ctx carries, acquired through the same Client, and
// false if there is none. ctx comes from Do or Lease.Context. The lease may have ended: its Err says so. The lease of a
// KeyedSemaphore may be of any key.
func (s shared) LeaseFromContext(ctx context.Context) (*Lease, bool) {
	for l := range s.lock.leasesIn(ctx) {
		return l, true
	}
	return nil, false
}
