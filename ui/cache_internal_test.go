package ui

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// While Redis hangs, what is to be read is no more than what is known, however many locks are asked for.
func TestCache_QueueIsBounded(t *testing.T) {
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
		queued := len(l.queue)
		l.mu.Unlock()
		require.LessOrEqual(t, queued, maxKnown)
		replies()
		time.Sleep(time.Minute)
		require.Equal(t, 10*maxKnown-1, l.peek(10*maxKnown-1).value)
	})
}
