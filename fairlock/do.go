package fairlock

import (
	"context"
	"errors"
)

// do runs f under the lease and releases it.
func (l *Lease) do(ctx context.Context, f func(context.Context) error) (err error) {
	inner, cancel := l.Context(ctx)
	defer func() { // also when f panics
		cancel()
		err = errors.Join(err, l.Unlock(ctx))
	}()
	if err := l.Err(); err != nil {
		return err
	}
	return f(inner)
}
