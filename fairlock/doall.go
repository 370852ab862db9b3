package fairlock

import (
	"context"
	"slices"
)

// maxNames is how many mutexes one DoAll may lock.
const maxNames = 100

// DoAll runs f while it holds the mutexes of all these names, 1 to 100. A name that is given twice counts once. DoAll
// locks them in the order of their bytes, so that two calls cannot deadlock, and releases all at once. That order will
// not change. A DoAll inside a Do or DoAll of other names can deadlock until ctx ends: name all in one call.
//
// The ctx of f ends when ctx does, or the lease of one of the mutexes. Mutex.LeaseFromContext returns the lease of
// each, for its fence. The package's LeaseFromContext returns that of the last name.
//
// While it waits for a mutex it holds those before. If many calls need the same pair, one mutex for the pair is faster.
// The options count for each mutex, but WithMaxWait bounds the whole wait. A call that holds a mutex goes on waiting
// during Shutdown, so use WithMaxWait.
//
// The first *Error in the error names the mutex that was not locked, or was lost. Errors are joined as by Mutex.Do.
// Nothing is sent if there are no names or more than 100, or if a name or an option is invalid. ErrReentrant means that
// ctx carries a lease of one of the mutexes; nothing was sent.
func (c *Client) DoAll(
	ctx context.Context, names []string, f func(ctx context.Context) error, options ...Option,
) (err error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	own := make([]HoldOption, len(options))
	for i, o := range options {
		own[i] = o
	}
	if err := require(len(names) >= 1 && len(names) <= maxNames, "names", "%d different ones, must be from 1 to %d",
		len(names), maxNames); err != nil {
		return &Error{Op: "doall", Err: err}
	}
	for _, name := range names {
		l := c.Mutex(name, own...).lock
		err := l.check(ctx, nil)
		if err == nil && l.heldBy(ctx, 1) != nil {
			err = ErrReentrant
		}
		if err != nil {
			return l.wrap("doall", err)
		}
	}
	began := c.cfg.Clock.Now()
	var leases []*Lease
	inner, cancel := context.WithCancel(ctx)
	defer func() { // also when f panics; a release that hangs does not hold up the others, whose leases would expire
		cancel()
		unlocked := make([]chan error, len(leases))
		for i, l := range leases {
			unlocked[i] = make(chan error, 1)
			context.AfterFunc(inner, func() { // at once, in a goroutine
				defer close(unlocked[i])
				unlocked[i] <- l.held.Unlock(ctx)
			})
		}
		for i, l := range slices.Backward(leases) {
			err = l.lock.outcome("do", err, <-unlocked[i])
		}
	}()
	for _, name := range names {
		l := c.Mutex(name, own...).lock
		if l.settings.maxWait > 0 { // 0 would mean none
			l.settings.maxWait = max(l.settings.maxWait-c.cfg.Clock.Now().Sub(began), 1)
		}
		lease, err := l.acquire(inner, waits, "do", 1, nil)
		if err != nil {
			return err
		}
		leases = append(leases, lease)
		inner, _ = lease.Context(inner) //nolint:fatcontext // each is in the one before, and all end with the first
	}
	for _, l := range leases {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return f(inner)
}

// DoValue runs f by do, which is the Do of a lock or a function with its signature. It returns f's value, even if the
// error is not nil:
//
//	balance, err := fairlock.DoValue(ctx, mutex.Do, read)
func DoValue[T any](
	ctx context.Context, do func(context.Context, func(context.Context) error) error,
	f func(ctx context.Context) (T, error),
) (v T, err error) {
	err = do(ctx, func(ctx context.Context) (err error) {
		v, err = f(ctx)
		return err
	})
	return v, err
}
