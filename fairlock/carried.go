package fairlock

import (
	"context"
	"iter"
)

// leaseContext is a ctx that carries a lease.
type leaseContext struct {
	context.Context // ends with the lease, by a timer or by end
	lease           *Lease
	end             context.CancelCauseFunc
}

// Done looks at the clock, as the lease's Done does: after a pause of the process its timer is late.
func (c *leaseContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err looks at the clock, as the lease's Err does.
func (c *leaseContext) Err() error {
	c.look()
	return c.Context.Err()
}

// look ends the ctx if the lease has ended.
func (c *leaseContext) look() {
	if cause := c.lease.Err(); cause != nil {
		c.end(cause)
	}
}

type leaseContextKey struct{}

// Value returns the leaseContext itself for leaseContextKey, so that those that it encloses can be found.
func (c *leaseContext) Value(key any) any {
	if key == (leaseContextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// enclosing returns the innermost leaseContext of ctx; nil if there is none.
func enclosing(ctx context.Context) *leaseContext {
	c, _ := ctx.Value(leaseContextKey{}).(*leaseContext)
	return c
}

// leasesIn returns the leases that ctx carries, the innermost first.
func leasesIn(ctx context.Context) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for c := enclosing(ctx); c != nil && yield(c.lease); {
			c = enclosing(c.Context)
		}
	}
}
