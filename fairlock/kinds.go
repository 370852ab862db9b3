package fairlock

import (
	"context"
	"time"

	"github.com/fairlock/fairlock-go/token"
)

// This file has what all kinds of locks can do. Each is a method of lock, and one of each kind with its own documentation.

// with returns a copy of the lock in which set has changed a setting.
//
// To add a setting that a lock can have of its own:
//  1. if it is new, a field of Config, with its default and its bounds (config.go); or one of lock, if it makes no sense for
//     all locks of a client (withMaxWait)
//  2. With<Setting> of Mutex, Semaphore and RWMutex, below
//  3. what depends on it reads it from lock.cfg, not from Client.cfg; FenceTTL is passed on in
//     Client.newLock. The waiters of one lock in one client share their heartbeats, so WaiterTTL is the same for all locks
//     of a client (queue.lock)
//  4. a test of what it does; TestConfig_BadInputSendsNothing finds its method and checks its bounds
//  5. the table of limits in docs/concepts.md, and a line in the CHANGELOG
func (l *lock) with(set func(*Config)) *lock {
	return l.copied(func(c *lock) {
		cfg := *l.cfg
		set(&cfg)
		c.cfg, c.settings = &cfg, cfg.check()
	})
}

// copied returns a copy of the lock that change has changed.
func (l *lock) copied(change func(*lock)) *lock {
	if l == nil {
		return nil
	}
	c := *l
	change(&c)
	return &c
}

func (l *lock) withTTL(d time.Duration) *lock { return l.with(func(c *Config) { c.TTL = d }) }
func (l *lock) withMaxWaiters(n int) *lock    { return l.with(func(c *Config) { c.MaxWaiters = n }) }

// withMaxWait changes a setting that no Client has.
func (l *lock) withMaxWait(d time.Duration) *lock {
	return l.copied(func(c *lock) { c.maxWait, c.badWait = d, checkYear("MaxWait", d) })
}

// withMinHold changes a setting that no Client has.
func (l *lock) withMinHold(d time.Duration) *lock {
	return l.copied(func(c *lock) { c.minHold, c.badHold = d, checkYear("MinHold", d) })
}

func checkYear(field string, d time.Duration) error {
	return require(d > 0 && d <= MaxTTL, field, "%v, must be above 0, and at most %v (a year)", d, MaxTTL)
}

// WithTTL returns the same lock, whose leases last d. The bounds are those of Config.TTL; methods of the returned value
// return an error for a d that is out of bounds.
func (m Mutex) WithTTL(d time.Duration) Mutex { return Mutex{m.lock.withTTL(d)} }

// WithMaxWaiters returns the same lock with another bound on its queue. Lock of the returned value returns ErrQueueFull
// if n others wait. 0 means any number.
func (m Mutex) WithMaxWaiters(n int) Mutex { return Mutex{m.lock.withMaxWaiters(n)} }

// WithMaxWait returns the same lock, for which Lock and Do wait for d at most, the first request included. ctx bounds the
// wait as well: whichever ends first gives the error. After d that is ErrWaitTimeout, in a *HeldError if a holder is known,
// and otherwise with the last error of Redis. What else happens then is as if ctx had ended (see Mutex.Lock). It bounds
// neither the lease nor the function of Do, and has no effect on Try… and Resume. d is above 0, and at most a year; methods
// of the returned value return an error for another d.
func (m Mutex) WithMaxWait(d time.Duration) Mutex { return Mutex{m.lock.withMaxWait(d)} }

// WithMinHold returns the same lock, which stays taken until d after each grant, whatever its holder does: if Unlock is called
// earlier, Unlock returns at once, and the next holder is granted the lock when d is over. So a job that several machines try
// to do with TryDo is done at most once in d. If its holder crashes, the lock is free when d is over, and TTL after the latest
// renewal. An error or a panic of the function of Do does not shorten it; ForceRelease does.
//
// d counts from the grant, by the holder's clock; for a lease that Resume has taken over, from Resume, if its token has as long
// a minimum. Let d, and what is left of the period in which something is to happen once, be longer than the clocks of your
// machines are apart. d is above 0, and at most a year; methods of the returned value return an error for another d.
func (m Mutex) WithMinHold(d time.Duration) Mutex { return Mutex{m.lock.withMinHold(d)} }

// WithTTL returns the same semaphore, whose leases last d. The bounds are those of Config.TTL; methods of the returned
// value return an error for a d that is out of bounds.
func (s Semaphore) WithTTL(d time.Duration) Semaphore { return Semaphore{s.lock.withTTL(d)} }

// WithMaxWaiters returns the same semaphore with another bound on its queue. Acquire of the returned value returns
// ErrQueueFull if n others wait. 0 means any number.
func (s Semaphore) WithMaxWaiters(n int) Semaphore {
	return Semaphore{s.lock.withMaxWaiters(n)}
}

// WithMaxWait returns the same semaphore, for which Acquire and Do wait for d at most, as Mutex.WithMaxWait does for a lock.
func (s Semaphore) WithMaxWait(d time.Duration) Semaphore {
	return Semaphore{s.lock.withMaxWait(d)}
}

// WithMinHold returns the same semaphore, whose permits stay taken until d after each grant, as Mutex.WithMinHold does with a
// lock. With five permits and a minute, five holders start in a minute, first come, first served.
func (s Semaphore) WithMinHold(d time.Duration) Semaphore {
	return Semaphore{s.lock.withMinHold(d)}
}

// WithTTL returns the same lock, whose leases last d. The bounds are those of Config.TTL; methods of the returned value
// return an error for a d that is out of bounds.
func (m RWMutex) WithTTL(d time.Duration) RWMutex { return RWMutex{m.lock.withTTL(d)} }

// WithMaxWaiters returns the same lock with another bound on its queue. Lock and RLock of the returned value return
// ErrQueueFull if n others wait. 0 means any number.
func (m RWMutex) WithMaxWaiters(n int) RWMutex { return RWMutex{m.lock.withMaxWaiters(n)} }

// WithMaxWait returns the same lock, for which Lock, RLock, Do and RDo wait for d at most, as Mutex.WithMaxWait does.
func (m RWMutex) WithMaxWait(d time.Duration) RWMutex { return RWMutex{m.lock.withMaxWait(d)} }

// Resume takes over a lease that was begun elsewhere, perhaps in another process, and returns it like any other lease. It
// renews the lease at once, for this lock's TTL or the one in its token, whichever is shorter, and gives it a new fence.
// ErrLost means that the token does not hold the lock. ctx bounds the two requests. While Redis does not serve them, they are
// sent again, for 3 s at most; after that the error is ErrUnreachable. After another error than ErrLost the lease may have been
// taken over all the same, also later, when the request arrives; Resume can be called again.
//
// Pass on Lease.Token().Text() and read it with token.Parse. A token can be resumed as often as you like; the last one to
// do so has the lease. Of two that do so at once, one gets ErrLost. Stop using it where it was before: there it ends with
// ErrLost at its next renewal, at most a third of TTL later, and a resource that has seen the new fence refuses it at once.
//
// The minimum hold is as this lock says (WithMinHold), and not as where the lease began. The token stays the same, so others
// see the holder by the Name of the client where the lease began: in HeldError, Inspect and fairlock status.
func (m Mutex) Resume(ctx context.Context, t token.Token) (*Lease, error) {
	return m.lock.resume(ctx, t)
}

// Resume continues a lease that was begun elsewhere, with as many permits as it has, as Mutex.Resume does. Resume, Inspect
// and ForceRelease do not depend on the number of permits.
func (s Semaphore) Resume(ctx context.Context, t token.Token) (*Lease, error) {
	return s.lock.resume(ctx, t)
}

// Resume continues a lease that was begun elsewhere, for reading or writing, as Mutex.Resume does.
func (m RWMutex) Resume(ctx context.Context, t token.Token) (*Lease, error) {
	return m.lock.resume(ctx, t)
}

// Inspect returns the holder and the waiters of the lock at one moment. It changes nothing. It never waits for the lock, but
// for Redis: while ctx lasts, and for 3 s at most. After that the error is ErrUnreachable.
func (m Mutex) Inspect(ctx context.Context) (State, error) { return m.lock.inspect(ctx) }

// Inspect returns the holders and the waiters with their numbers of permits, at one moment. It changes nothing. ctx and
// errors are as those of Mutex.Inspect.
func (s Semaphore) Inspect(ctx context.Context) (State, error) { return s.lock.inspect(ctx) }

// Inspect returns the holders and the waiters, and which of them write, at one moment. It changes nothing. ctx and errors
// are as those of Mutex.Inspect.
func (m RWMutex) Inspect(ctx context.Context) (State, error) { return m.lock.inspect(ctx) }

// ForceRelease takes the lock from its holder, hands it to the first waiter, and reports whether the lock was held. It is
// for operators. The holder trusts its lease until its next renewal. A resource that checks fences refuses that holder as
// soon as it has seen the fence of a later one. ctx bounds the requests. Each is sent again while Redis does not serve it, for 3 s
// at most; after that the error is ErrUnreachable.
func (m Mutex) ForceRelease(ctx context.Context) (bool, error) { return m.lock.forceRelease(ctx) }

// ForceRelease takes the permits from all holders and hands them to the waiters, as Mutex.ForceRelease does with a lock.
// To take the permits of one holder, Resume its lease with the token that Inspect returns, and Unlock it.
func (s Semaphore) ForceRelease(ctx context.Context) (bool, error) { return s.lock.forceRelease(ctx) }

// ForceRelease takes the lock from the writer or from all readers and hands it to the waiters, as Mutex.ForceRelease
// does.
func (m RWMutex) ForceRelease(ctx context.Context) (bool, error) { return m.lock.forceRelease(ctx) }
