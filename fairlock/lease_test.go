package fairlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// fmt and log/slog print a lease, and a copy of one, without the secret of its token.
func TestLease_PrintedRedacted(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		text := lease.Token().Text()
		secret := text[len(text)-12:]
		var log logged
		log.logger().Info("x", "lease", lease)
		log.logger().Info("x", "lease", *lease)
		for _, line := range log.lines {
			assert.Contains(t, line, fmt.Sprintf("lease.lock=x lease.fence=%d lease.client=%s", lease.Fence(), lease.Token().Client()))
		}
		printed := log.lines[0] + log.lines[1]
		for _, verb := range []string{"%s", "%q", "%v", "%+v", "%#v", "%d", "%t"} {
			printed += fmt.Sprintf(verb, lease) + fmt.Sprintf(verb, *lease) + fmt.Sprintf(verb,
				struct{ l *fairlock.Lease }{lease})
		}
		assert.NotContains(t, printed, secret)
		assert.Contains(t, printed, lease.Token().String())
	})
}

// The ctx of a lease ends when the lease does, not when the ctx of the wait does.
//
//fairlock:promise A lease's context: ends with the lease, not with the wait
func TestLease_Context(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		wait, cancelWait := context.WithCancel(t.Context())
		lease, err := s.Client(fairlock.Config{}).Mutex("x").Lock(wait)
		require.NoError(t, err)
		cancelWait()
		value := new([64]byte)
		kept := weak.Make(value)
		_, cancel := lease.Context(context.WithValue(t.Context(), callers{}, value))
		cancel()
		runtime.GC()
		assert.Nil(t, kept.Value(), "the lease keeps a ctx that was cancelled")
		ctx, cancel := lease.Context(context.WithValue(t.Context(), callers{}, "v"))
		defer cancel()
		pass(time.Minute)
		require.NoError(t, ctx.Err())
		require.NoError(t, lease.Err())
		assert.Equal(t, "v", ctx.Value(callers{}))
		assert.Same(t, lease, leaseIn(ctx))
		assert.Nil(t, leaseIn(t.Context()))
		unlock(t, lease)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), fairlock.ErrUnlocked)
		late, cancel := lease.Context(t.Context())
		defer cancel()
		require.ErrorIs(t, context.Cause(late), fairlock.ErrUnlocked)
	})
}
