package fairlock

import (
	"context"
	"errors"
)

// do acquires the lock, runs f under the lease, and releases it.
func (l lock) do(ctx context.Context, op string, f func(context.Context) error) (err error) {
	lease, err := l.acquire(ctx, op, false)
	if err != nil {
		return err
	}
	inner, cancel := lease.Context(ctx)
	defer func() { // also when f panics
		cancel()
		err = errors.Join(err, lease.Unlock(ctx))
	}()
	if err := lease.Err(); err != nil {
		return err
	}
	return f(inner)
}
