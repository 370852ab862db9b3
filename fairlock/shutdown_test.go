package fairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// shutdown calls Shutdown, and returns when it has returned or waits.
func shutdown(ctx context.Context, c interface{ Shutdown(context.Context) error }) *acquisition {
	return begin(ctx, func(ctx context.Context) (*fairlock.Lease, error) { return nil, c.Shutdown(ctx) })
}

// Of a lock with a holder and a hundred waiters, Shutdown returns the waiters at once. The holder may take a second
// lock, for which it waits, and Shutdown returns when it has unlocked both. Nothing is left in Redis, and no goroutine,
// also if Redis is down for some seconds meanwhile.
//
//fairlock:promise Shutdown: waiters return ErrClosed at once, holders finish, and may take a further lock under the ctx of their lease; nothing is left in Redis, and no goroutine
//fairlock:fault Redis is down during Shutdown: it returns when Redis is back and everything is released
func TestClient_Shutdown(t *testing.T) {
	for name, down := range map[string]time.Duration{"calm": 0, "a failover": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
				s.Mutex("a").AssertFree()
				other := s.Mutex("b").HoldAs("other")
				goroutines := goleak.IgnoreCurrent()
				client := s.Client(fairlock.Config{})
				a, b := client.Mutex("a"), client.Mutex("b")
				proceed := make(chan struct{})
				work := begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) {
					return nil, a.Do(ctx, func(ctx context.Context) error {
						<-proceed
						return b.Do(ctx, func(context.Context) error { return nil })
					})
				})
				var queue []*acquisition
				for range 100 {
					queue = append(queue, begin(t.Context(), a.Lock))
				}
				start := time.Now()
				end := shutdown(t.Context(), client)
				for _, q := range queue {
					<-q.done
					require.ErrorIs(t, q.err, fairlock.ErrClosed)
					require.Equal(t, start, q.at)
				}
				s.Mutex("a").AssertQueue()
				for _, refused := range []acquire{a.Lock, a.TryLock, permits(client.Semaphore("s", 1), 1),
					func(ctx context.Context) (*fairlock.Lease, error) {
						return a.Resume(ctx, handleOf(s.Mutex("a").State().Holders[0]))
					}} {
					_, err := refused(t.Context())
					require.ErrorIs(t, err, fairlock.ErrClosed)
				}
				close(proceed)
				pass(ttl) // the lease is renewed
				s.Mutex("b").AssertQueue(client.Name())
				if down > 0 {
					s.Stop()
					pass(down)
					s.Start()
				}
				assert.True(t, work.pending() && end.pending())
				start = time.Now()
				require.NoError(t, other.Unlock(t.Context()))
				<-work.done
				require.NoError(t, work.err)
				<-end.done
				require.NoError(t, end.err)
				assert.LessOrEqual(t, end.at.Sub(start), time.Second+down/2)
				require.NoError(t, client.Shutdown(t.Context()))
				s.AssertNothingLeft()
				require.NoError(t, client.Redis.Close())
				synctest.Wait()
				goleak.VerifyNone(t, goroutines)
			})
		})
	}
}
