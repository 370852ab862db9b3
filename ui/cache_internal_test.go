package ui

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Of all locks that were ever asked for, some are known, and while Redis hangs, no more are to be read. One that was
// forgotten is read again.
func TestCache_IsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, replies := context.WithCancel(t.Context())
		l := newCache(ctx, func(ctx context.Context, key int) (int, time.Duration, error) {
			<-ctx.Done()
			return key, time.Hour, nil
		})
		defer l.close()
		defer replies()
		for key := range 10 * maxKnown {
			l.peek(key)
		}
		synctest.Wait()
		l.mu.Lock()
		known, queued := len(l.known), len(l.queue)
		l.mu.Unlock()
		require.Equal(t, maxKnown, known)
		require.LessOrEqual(t, queued, maxKnown)
		replies()
		time.Sleep(time.Minute)
		require.Equal(t, 10*maxKnown-1, l.peek(10*maxKnown-1).value)
		require.Equal(t, 1, l.get(t.Context(), 1).value)
	})
}
