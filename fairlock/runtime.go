package fairlock

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/script"
)

// runtime is what the parts of a Client share: its time, its log, and when it ends.
type runtime struct {
	clock  Clock
	log    *slog.Logger
	trace  *Trace
	jitter float64 // of back-offs
	outage *outage
	pool   *redis.Client // the client's, if it is one; else nil

	life       context.Context // ends when Close is called
	end        context.CancelCauseFunc
	open       context.Context // ends when Shutdown or Close is called
	refuse     context.CancelCauseFunc
	drained    chan struct{}   // closed when Shutdown has closed the client for further tasks
	leaves     context.Context // of releases and requests to leave; after Close it ends when Redis does not answer one of them
	stopLeaves context.CancelCauseFunc

	answered atomic.Bool // a server has answered a request of the client

	tasks sync.WaitGroup // grows under mu, or from inside a task

	mu     sync.Mutex
	closed bool                // guarded by mu
	busy   int                 // guarded by mu: number of tasks, but for those that last until the client is closed
	leases map[*Lease]struct{} // guarded by mu; those that have not ended, or that will be released because they were lost
	warned map[string]struct{} // guarded by mu; keys of the locks of which firstTime has been called
	begun  uint64              // guarded by mu: how many acquisitions have begun
	ends   map[uint64]func()   // guarded by mu: what ends an acquisition that is under way, by its number; nil after endAcquisitions
}

func newRuntime(cfg *Config) *runtime {
	rt := &runtime{
		clock: cfg.Clock, log: cfg.Logger, trace: cfg.Trace, jitter: jitter(cfg.Name), leases: map[*Lease]struct{}{}, warned: map[string]struct{}{}, ends: map[uint64]func(){},
		drained: make(chan struct{}),
	}
	rt.outage = &outage{rt: rt}
	rt.life, rt.end = context.WithCancelCause(context.Background())
	rt.open, rt.refuse = context.WithCancelCause(rt.life)
	rt.leaves, rt.stopLeaves = context.WithCancelCause(context.Background())
	return rt
}

// close ends the leases, lets no further task begin, and waits for those under way.
func (rt *runtime) close() {
	rt.endLeases()
	rt.tasks.Wait()
}

// endLeases ends the leases, lets no further task begin, and stops those under way.
func (rt *runtime) endLeases() {
	rt.mu.Lock()
	rt.closed = true
	leases := rt.leases
	rt.leases = map[*Lease]struct{}{}
	rt.mu.Unlock()

	rt.end(stopped{ErrClosed})
	rt.endAcquisitions()
	for _, l := range slices.SortedFunc(maps.Keys(leases), func(a, b *Lease) int { // in a fixed order, so that a simulation repeats
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.token.Text(), b.token.Text()))
	}) {
		l.close()
	}
}

// task is work that Close waits for: an operation, the call of a timer, a goroutine. Nothing but a task starts a
// goroutine, so no goroutine starts when Close has returned.
type task struct{ rt *runtime }

// begin begins a task, unless the client is closed. The caller calls end, and does not use the task after that.
func (rt *runtime) begin() (task, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return task{}, ErrClosed
	}
	rt.tasks.Add(1)
	rt.busy++
	return task{rt}, nil
}

func (t task) end() {
	t.rt.mu.Lock()
	t.rt.busy--
	t.rt.settle()
	t.rt.mu.Unlock()
	t.rt.tasks.Done()
}

// goes runs f in a goroutine, as a task of its own, which may outlast t.
func (t task) goes(f func(task)) {
	t.rt.mu.Lock()
	t.rt.busy++
	t.rt.mu.Unlock()
	t.rt.tasks.Add(1)
	go func() {
		defer t.end()
		f(t)
	}()
}

// stays is goes for an f that returns only when the client is closed. Shutdown does not wait for it.
func (t task) stays(f func(task)) { t.rt.tasks.Go(func() { f(t) }) }

// keep registers a lease, so that Close can end it.
func (rt *runtime) keep(l *Lease) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return ErrClosed
	}
	rt.leases[l] = struct{}{}
	return nil
}

func (rt *runtime) drop(l *Lease) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.leases, l)
	rt.settle()
}

// firstTime reports whether it is called for the first time with the key of a lock, so that a warning is logged once.
func (rt *runtime) firstTime(key string) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	_, again := rt.warned[key]
	rt.warned[key] = struct{}{}
	return !again
}

// untilClosed returns a copy of parent that also ends when the client is closed. The caller calls cancel.
func (rt *runtime) untilClosed(parent context.Context) (ctx context.Context, cancel func(), _ error) {
	ctx, cancel = joined(parent, rt.life)
	return ctx, cancel, nil
}

// joined returns a copy of parent that also ends when other does. The caller calls cancel.
func joined(parent, other context.Context) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	stop := context.AfterFunc(other, func() { end(context.Cause(other)) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// withTimeout is context.WithTimeout by the client's clock. What does not finish in time ends with an ErrUnreachable.
func (rt *runtime) withTimeout(parent context.Context, d time.Duration) (ctx context.Context, cancel func()) {
	return rt.withTimeoutCause(parent, d, stopped{fmt.Errorf("%w: no answer within %v", ErrUnreachable, d)})
}

// withTimeoutCause is context.WithTimeoutCause by the client's clock. By the system's clock, ctx has a deadline, so that a
// request can be sent without another goroutine (see package dispatch).
func (rt *runtime) withTimeoutCause(parent context.Context, d time.Duration, late stopped) (ctx context.Context, cancel func()) {
	if _, ok := rt.clock.(clock.System); ok {
		return context.WithTimeoutCause(parent, d, late) //nolint:forbidigo // it is the client's clock
	}
	ctx, end := context.WithCancelCause(parent)
	timer := rt.clock.AfterFunc(d, func() { end(late) })
	return ctx, func() {
		timer.Stop()
		end(nil)
	}
}

// withValues is a ctx that also has the values of another one, which does not end it.
type withValues struct {
	context.Context
	values context.Context
}

// Value looks at the first ctx first: package context finds by a value what ends it.
func (c withValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// Limits of calls that Redis does not serve. They are the library's own: go-redis reports the same outage after 0.1 to 36.5 s,
// by its version and by the kind of its client.
const (
	requestLimit = 3 * time.Second  // of calls that wait for Redis, but never for the lock
	silenceLimit = 10 * time.Second // of calls that wait for the lock, while no server has answered the client: the address may be wrong
)

// limited returns a copy of ctx for a call that waits for Redis, but never for the lock. The caller calls cancel.
func (rt *runtime) limited(ctx context.Context) (_ context.Context, cancel func()) {
	return rt.withTimeoutCause(ctx, requestLimit, stopped{ErrUnreachable})
}

// limitedBySilence returns a copy of parent for a call that waits for the lock: it also ends after some time if no server has
// answered the client until then. The caller calls cancel.
func (rt *runtime) limitedBySilence(parent context.Context) (ctx context.Context, cancel func()) {
	if rt.answered.Load() {
		return parent, func() {}
	}
	ctx, end := context.WithCancelCause(parent)
	timer := rt.clock.AfterFunc(silenceLimit, func() {
		if !rt.answered.Load() {
			end(stopped{ErrUnreachable})
		}
	})
	return ctx, func() {
		timer.Stop()
		end(nil)
	}
}

// attempt calls f, which sends a request, until it succeeds, fails in a way that another attempt cannot cure, or ctx or the
// client ends. In the last case the error is a triedError.
func (rt *runtime) attempt(ctx context.Context, f func() error) error {
	var failure error
	began := rt.clock.Now()
	for pause := (backoff{}); ; {
		err := f()
		if err == nil || script.OriginOf(err) == script.Permanent {
			return err
		}
		failure = latest(ctx, failure, err)
		if !rt.sleep(ctx, pause.next(rt.jitter)) {
			reason := ErrClosed
			if ctx.Err() != nil {
				reason = ended(ctx)
			}
			return &triedError{reason, failure, rt.clock.Now().Sub(began)}
		}
	}
}

// retry is attempt for an f that releases a lock or removes a waiter. If the client is closed, an attempt that is under way
// goes on, and no other follows. If Redis does not answer that attempt, all that are under way end.
func (rt *runtime) retry(ctx context.Context, f func() error) error {
	var last error
	err := rt.attempt(ctx, func() error {
		last = f()
		return last
	})
	if err == nil || script.OriginOf(last) == script.Permanent || rt.life.Err() == nil {
		return err
	}
	if script.OriginOf(last) == script.NoReply {
		rt.stopLeaves(context.Cause(rt.life))
	}
	return fmt.Errorf("%w: %w", ErrClosed, last)
}

// sleep reports false if ctx or the client ends first.
func (rt *runtime) sleep(ctx context.Context, d time.Duration) bool {
	timer, cancel := rt.withTimeout(ctx, d)
	defer cancel()
	select {
	case <-timer.Done():
	case <-rt.life.Done():
	}
	return ctx.Err() == nil && rt.life.Err() == nil
}

// longestPause is how much later than go-redis, at the most, a back-off lets a call notice that Redis is back.
const longestPause = 250 * time.Millisecond

// backoff is the pause between attempts: 20 ms, doubled each time up to the longest.
type backoff struct{ d time.Duration }

// next returns the next pause, shortened by the jitter.
func (b *backoff) next(jitter float64) time.Duration {
	b.d = min(max(2*b.d, 20*time.Millisecond), longestPause)
	return b.d - time.Duration(jitter*float64(b.d))
}

// jitter returns by which part of itself a pause is shortened, from 0 to 1/2. It differs from client to client, and from waiter
// to waiter, so that those that lost Redis together do not come back together.
func jitter(name string) float64 {
	return float64(crc32.ChecksumIEEE([]byte(name))) / (2 << 32)
}
