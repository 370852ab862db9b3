package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// recorder is a hook that records commands, and can change the reply to one.
type recorder struct {
	change func(redis.Cmder) // nil: none

	mu   sync.Mutex
	cmds []redis.Cmder // guarded by mu
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.note(cmd)
		if r.change != nil {
			r.change(cmd)
			return cmd.Err()
		}
		return err
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		r.note(cmds...)
		return err
	}
}

func (r *recorder) note(cmds ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			r.cmds = append(r.cmds, cmd)
		}
	}
}

// names returns the names of the commands that have ended.
func (r *recorder) names() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range r.cmds {
		names = append(names, cmd.Name())
	}
	return names
}

// locks returns the names of the locks in the commands that have ended.
func (r *recorder) locks() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range r.cmds {
		_, rest, _ := strings.Cut(fmt.Sprint(cmd.Args()...), "{")
		name, _, _ := strings.Cut(rest, "}")
		names = append(names, name)
	}
	return names
}

// refusal is an error that Redis has replied.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// The cause of the caller's ctx says nothing about the request that was in flight, also if it is an error of Redis: an
// errgroup's ctx ends with whatever one of its functions has returned.
//
//fairlock:fault ctx ends with an error of Redis as its cause: as any other end of ctx; the lock is not held afterwards
func TestLock_CauseThatIsAnErrorOfRedis(t *testing.T) {
	for _, cause := range []error{
		refusal("WRONGTYPE of another command"), refusal("NOSCRIPT of another script"), refusal("READONLY of another server"),
		redis.Nil, redis.ErrClosed, errors.New("plain"),
	} {
		synctest.Test(t, func(t *testing.T) {
			server := fairlocktest.NewServer(t)
			client := server.Client(fairlock.Config{})
			var seen recorder
			client.Redis.AddHook(&seen)
			client.Link.Hang()
			ends := func() context.Context {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				return ctx
			}
			_, err := client.Mutex("x").Inspect(ends())
			require.ErrorIs(t, err, context.Canceled, cause)
			require.ErrorIs(t, err, cause)
			_, err = client.Mutex("x").Lock(ends())
			require.ErrorIs(t, err, context.Canceled, cause)
			require.ErrorIs(t, err, cause)
			client.Link.Mend()
			synctest.Wait()
			server.AssertNothingLeft()
			assert.Equal(t, []string{"evalsha", "evalsha", "evalsha"}, seen.names(), "inspect, acquire, leave: %v", cause)
		})
	}
}

// A cause that wraps the error of ctx is returned, and not that error in its place.
func TestLock_CauseThatWrapsTheErrorOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fairlocktest.NewServer(t).Client(fairlock.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("stopped by the operator: %w", context.Canceled))
		_, err := client.Mutex("x").Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, "fairlock: lock x: stopped by the operator: context canceled")
	})
}

// A ctx that ends because another Client was closed is a ctx that has ended.
func TestClose_EndsNothingOfAnotherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		a, b := server.Client(fairlock.Config{}), server.Client(fairlock.Config{})
		held, err := b.Mutex("y").Lock(t.Context())
		require.NoError(t, err)
		lease, err := a.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		time.AfterFunc(time.Second, func() { _ = a.Close() })
		_, err = b.Mutex("y").Lock(ctx)
		require.EqualError(t, err, "fairlock: lock y: context canceled: client is closed")
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, held.Unlock(t.Context()))
	})
}
