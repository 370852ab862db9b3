package otelfairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

const second = time.Second

// world is where something is counted.
type world struct {
	s      *fairlocktest.Server
	client *fairlocktest.Client // whose Trace is read
	m      fairlock.Mutex       // of client; w.lock is the same
	lock   fairlocktest.Lock
}

// held returns a lease of the mutex.
func (w world) held(t *testing.T) *fairlock.Lease {
	t.Helper()
	lease, err := w.m.TryLock(t.Context())
	require.NoError(t, err)
	return lease
}

// waiting has somebody wait for the mutex. It returns how that ended, once it has.
func (w world) waiting(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		lease, err := w.m.Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// refuses is a hook that has Redis refuse a request.
type refuses struct{ err error }

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func (refuses) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *refuses) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.err != nil {
			cmd.SetErr(r.err)
			return r.err
		}
		return next(ctx, cmd)
	}
}
func (refuses) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }

// Each event is counted once, with its duration, and the gauges are what is there.
func TestMetrics_CountOnce(t *testing.T) {
	bubbles(t, map[string]struct {
		do   func(t *testing.T, w world)
		want []string
	}{
		"free": {func(t *testing.T, w world) {
			require.NoError(t, w.m.Do(t.Context(), func(context.Context) error { time.Sleep(second); return nil }))
		}, nil},
		"held": {func(t *testing.T, w world) { w.held(t) }, nil},
		"busy": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			_, err := w.m.TryLock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrBusy)
		}, nil},
		"handoff": {func(t *testing.T, w world) {
			other := w.lock.HoldAs("other")
			done := w.waiting(t.Context())
			pass(second)
			require.NoError(t, other.Unlock(t.Context()))
			require.NoError(t, <-done)
		}, nil},
		"waiting": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			w.waiting(t.Context())
			w.waiting(t.Context())
		}, nil},
		"canceled": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			ctx, cancel := context.WithCancel(t.Context())
			done := w.waiting(ctx)
			pass(second)
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
		}, nil},
		"wait times out": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			_, err := w.m.WithMaxWait(second).Lock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
		}, nil},
		"queue full": {func(t *testing.T, w world) {
			w.lock.HoldAs("other")
			w.lock.CrashQueued("waiter", time.Minute)
			_, err := w.m.WithMaxWaiters(1).Lock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrQueueFull)
		}, nil},
		"capacity": {func(t *testing.T, w world) {
			w.s.Semaphore("x", 2).HoldAs("other")
			_, err := w.client.Semaphore("x", 3).TryAcquire(t.Context(), 1)
			require.Error(t, err)
		}, nil},
		"capacity, while it waits": {func(t *testing.T, w world) {
			w.s.Semaphore("x", 2).HoldAs("other")
			x := w.client.Semaphore("x", 2)
			time.AfterFunc(second/2, func() { assert.NoError(t, x.Resize(context.Background(), 1)) })
			_, err := x.Acquire(t.Context(), 2)
			require.Error(t, err)
		}, nil},
		"renewed": {func(t *testing.T, w world) {
			lease := w.held(t)
			pass(4 * second)
			require.NoError(t, lease.Renew(t.Context()))
			require.NoError(t, lease.Unlock(t.Context()))
		}, nil},
		"taken": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.lock.ForceRelease()
			pass(4 * second)
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrTaken)
		}, nil},
		"unreachable": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.client.Link.Cut()
			pass(fairlock.DefaultTTL)
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrUnreachable)
		}, nil},
		"found lost by Unlock": {func(t *testing.T, w world) {
			lease := w.held(t)
			w.lock.ForceRelease()
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrTaken)
		}, nil},
		"Unlock fails, then succeeds": {func(t *testing.T, w world) {
			lease := w.held(t)
			hook := &refuses{refusal("ERR no")}
			w.client.Redis.AddHook(hook)
			require.ErrorContains(t, lease.Unlock(t.Context()), "ERR no")
			hook.err = nil
			require.NoError(t, lease.Unlock(t.Context()))
		}, nil},
		"refused": {func(t *testing.T, w world) {
			w.client.Redis.AddHook(&refuses{refusal("NOPERM no")})
			_, err := w.m.Lock(t.Context())
			require.ErrorContains(t, err, "NOPERM")
		}, nil},
		"resumed": {func(t *testing.T, w world) {
			other := w.lock.HoldAs("other")
			lease, err := w.m.Resume(t.Context(), other.Token())
			require.NoError(t, err)
			require.NoError(t, other.Detach())
			require.NoError(t, lease.Unlock(t.Context()))
		}, nil},
		"resumed too late": {func(t *testing.T, w world) {
			other := w.lock.HoldAs("other")
			require.NoError(t, other.Unlock(t.Context()))
			_, err := w.m.Resume(t.Context(), other.Token())
			require.ErrorIs(t, err, fairlock.ErrTaken)
		}, nil},
		"detached": {func(t *testing.T, w world) {
			lease := w.held(t)
			pass(second)
			require.NoError(t, lease.Detach())
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrDetached)
		}, nil},
		"closed": {func(t *testing.T, w world) {
			lease := w.held(t)
			done := w.waiting(t.Context())
			pass(second)
			w.client.Close()
			require.ErrorIs(t, <-done, fairlock.ErrClosed)
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrClosed)
		}, nil},
		"shut down": {func(t *testing.T, w world) {
			lease := w.held(t)
			done := w.waiting(t.Context())
			time.AfterFunc(second, func() { assert.NoError(t, lease.Unlock(context.Background())) })
			require.NoError(t, w.client.Shutdown(t.Context()))
			require.ErrorIs(t, <-done, fairlock.ErrClosed)
		}, nil},
		"notification lost": {func(t *testing.T, w world) {
			other := w.lock.HoldAs("other")
			w.client.Link.DropNotifications()
			done := w.waiting(t.Context())
			pass(second / 2)
			require.NoError(t, other.Unlock(t.Context()))
			require.NoError(t, <-done)
		}, nil},
	}, func(t *testing.T, s *fairlocktest.Server, c struct {
		do   func(t *testing.T, w world)
		want []string
	},
	) {
		o := observe(t, nil)
		client := s.Client(fairlock.Config{Trace: o.trace})
		c.do(t, world{s, client, client.Mutex("x"), s.Mutex("x")})
		synctest.Wait()
		assert.Equal(t, c.want, o.values(t))
	})
}
