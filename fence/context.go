package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlock/fairlock-go/fairlock"
)

// ErrNotHeld means that a ctx carries no lease of the lock, or only one that has ended. In the second case it comes
// with the lease's Err, such as an ErrLost.
var ErrNotHeld = errors.New("fence: ctx carries no lease of the lock")

// ErrReader means that a ctx carries a lease for reading. Readers hold a lock together, so their fences do not tell
// whose write is the last.
var ErrReader = errors.New("fence: the lock is held for reading")

// Lock is a lock with one holder: a fairlock.Mutex or a fairlock.RWMutex.
type Lock interface {
	Lock(ctx context.Context) (*fairlock.Lease, error)
	LeaseFromContext(ctx context.Context) (*fairlock.Lease, bool)
}

// FromContext returns the fence of the lock's lease that ctx carries. Such a ctx comes from Do or Lease.Context of the
// lock, of the same Client, and may carry leases of other locks as well. The error is ErrNotHeld or ErrReader.
// FromContext does no I/O. It looks at the clock, so the lease was trusted when it returned.
func FromContext(ctx context.Context, lock Lock) (uint64, error) {
	lease, err := held(ctx, lock)
	if err != nil {
		return 0, err
	}
	if _, shared := lock.(interface {
		RLock(ctx context.Context) (*fairlock.Lease, error)
	}); shared && lease.Token().Weight() == 1 {
		return 0, ErrReader
	}
	return lease.Fence(), nil
}

// AssertHeld returns ErrNotHeld unless ctx carries a lease of the lock that has not ended. It is for code that must be
// called under a lock, far from where that is acquired. The lock may be of any kind, and held for reading. AssertHeld
// does no I/O.
func AssertHeld(ctx context.Context, lock interface {
	LeaseFromContext(ctx context.Context) (*fairlock.Lease, bool)
}) error {
	_, err := held(ctx, lock)
	return err
}

func held(ctx context.Context, lock interface {
	LeaseFromContext(ctx context.Context) (*fairlock.Lease, bool)
}) (*fairlock.Lease, error) {
	lease, found := lock.LeaseFromContext(ctx)
	if !found {
		return nil, ErrNotHeld
	}
	if err := lease.Err(); err != nil {
		return nil, fmt.Errorf("%w: the lease of %.64q has ended: %w", ErrNotHeld, lease.Name(), err)
	}
	return lease, nil
}
