package fairlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Leases need timers, and no goroutines.
//
//fairlock:promise Waiting is cheap
func TestClient_LeasesNeedNoGoroutines(t *testing.T) {
	bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		leases := []*fairlock.Lease{hold(t, client.Mutex("first").Lock)}
		before := runtime.NumGoroutine()
		for i := range 30 {
			leases = append(leases, hold(t, client.Mutex(fmt.Sprint(i)).Lock))
		}
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+2, "but for its senders")
		pass(2 * ttl)
		for _, lease := range leases {
			unlock(t, lease)
		}
		s.AssertNothingLeft()
	})
}

// Close returns every waiter and ends every lease at once. Waiters leave their queues, locks stay held until their TTL
// ends, and no goroutine or connection is left.
//
//fairlock:promise Close: waiters return ErrClosed at once; goroutines and connections are gone
func TestClient_Close(t *testing.T) {
	bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
		x, sem := s.Mutex("x"), s.Semaphore("s", 3)
		x.AssertFree() // the connection of these is there
		connections, goroutines := s.Miniredis.CurrentConnectionCount(), goleak.IgnoreCurrent()
		rdb := s.Link().Redis()
		client, err := fairlock.New(rdb, fairlock.Config{Name: "client"})
		require.NoError(t, err)
		m, c := client.Mutex("x"), client.Semaphore("s", 3)
		leases := []*fairlock.Lease{hold(t, m.Lock), hold(t, permits(c, 2))}
		// the second fits when the first has left
		queue := []*acquisition{begin(t.Context(), permits(c, 3)), begin(t.Context(), permits(c, 1))}
		for range 20 {
			queue = append(queue, begin(t.Context(), m.Lock))
		}
		start := time.Now()
		require.NoError(t, client.Close())
		assert.Equal(t, start, time.Now())
		for _, q := range queue {
			<-q.done
			require.ErrorIs(t, q.err, fairlock.ErrClosed)
			assert.Equal(t, start, q.at)
		}
		for _, lease := range leases {
			<-lease.Done()
			require.ErrorIs(t, lease.Err(), fairlock.ErrClosed)
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrClosed)
			require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrClosed)
		}
		_, err = m.Lock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrClosed)
		require.NoError(t, client.Close())
		x.AssertHeldBy("client")
		x.AssertQueue()
		sem.AssertHeldBy("client")
		sem.AssertQueue()
		require.NoError(t, rdb.Close())
		goleak.VerifyNone(t, goroutines)
		assert.Equal(t, connections, s.Miniredis.CurrentConnectionCount())
	})
}

// counting is a clock that counts its timers.
type counting struct{ timers atomic.Int64 }

type countedTimer struct {
	*time.Timer
	clock *counting
}

func (c *counting) Now() time.Time { return time.Now() }

func (c *counting) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.timers.Add(1)
	return countedTimer{time.AfterFunc(d, func() {
		c.timers.Add(-1)
		f()
	}), c}
}

func (t countedTimer) Stop() bool {
	stopped := t.Timer.Stop()
	if stopped {
		t.clock.timers.Add(-1)
	}
	return stopped
}

// stuck is a client whose state is being reloaded until that is cancelled.
type stuck struct {
	*redis.Client
	begun, over atomic.Bool
}

func (s *stuck) ReloadState(ctx context.Context) {
	s.begun.Store(true)
	<-ctx.Done()
	s.over.Store(true)
}

// Close leaves no goroutine and no timer. Under way are a heartbeat that hangs, a Shutdown that waits for a lease and
// for a second lock under it, or the reload of a Cluster's state.
//
//fairlock:promise Close
func TestClient_CloseInTheMiddle(t *testing.T) {
	for name, begins := range map[string]func(*testing.T, *fairlocktest.Link, *fairlock.Client, *stuck){
		"a heartbeat": func(_ *testing.T, link *fairlocktest.Link, _ *fairlock.Client, _ *stuck) {
			link.Hang()
			pass(2 * interval)
		},
		"a Shutdown": func(t *testing.T, _ *fairlocktest.Link, client *fairlock.Client, _ *stuck) {
			ctx, cancel := hold(t, client.Mutex("y").Lock).Context(t.Context())
			t.Cleanup(cancel)
			begin(ctx, client.Mutex("x").Lock)
			end := begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) { return nil, client.Shutdown(ctx) })
			pass(interval)
			assert.True(t, end.pending())
			go func() {
				<-end.done
				assert.ErrorIs(t, end.err, fairlock.ErrClosed)
			}()
		},
		"a reload": func(t *testing.T, link *fairlocktest.Link, client *fairlock.Client, rdb *stuck) {
			link.Hang()
			begin(t.Context(), client.Mutex("y").Lock)
			pass(interval)
			assert.True(t, rdb.begun.Load())
			assert.False(t, rdb.over.Load())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
				held := s.Mutex("x").HoldAs("holder")
				goroutines, clock, link := goleak.IgnoreCurrent(), &counting{}, s.Link()
				rdb := &stuck{Client: link.Redis()}
				client, err := fairlock.New(rdb, fairlock.Config{Clock: clock, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				begin(t.Context(), client.Mutex("x").Lock)
				begins(t, link, client, rdb)
				require.NoError(t, client.Close())
				assert.Zero(t, clock.timers.Load())
				assert.Equal(t, rdb.begun.Load(), rdb.over.Load())
				link.Mend()
				require.NoError(t, rdb.Close())
				synctest.Wait()
				goleak.VerifyNone(t, goroutines)
				require.NoError(t, held.Unlock(t.Context()))
			})
		})
	}
}

// A loss is logged to the default logger, unless Config says otherwise. The log does not have the token's secret.
func TestClient_LogsALoss(t *testing.T) {
	bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
		var log logged
		before := slog.Default()
		slog.SetDefault(log.logger())
		defer slog.SetDefault(before)
		for _, logger := range []*slog.Logger{nil, slog.New(slog.DiscardHandler)} {
			client, err := fairlock.New(s.Link().Redis(), fairlock.Config{Logger: logger})
			require.NoError(t, err)
			lease := hold(t, client.Mutex("x").Lock)
			s.Mutex("x").Expire()
			require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrLost)
			require.NoError(t, client.Close())
			require.Len(t, log.lines, 1)
			assert.Contains(t, log.lines[0], `level=WARN msg="lock lost" lock=x`)
			assert.False(t, logger == nil && strings.Contains(log.lines[0], lease.Token().Text()))
		}
	})
}
