package fairlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
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
	"github.com/fairlock/fairlock-go/internal/script"
)

// Hooks of the user's client, and so its instrumentation, see every request once. One that is alone has its caller's
// ctx.
//
//fairlock:promise All requests are sent by the user's client: its hooks see every command once, and so each copy of a request that has no reply for a second; a pair over a long link takes two commands and no further connection, while a round trip takes less than a second
func TestClient_HooksSeeEveryRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const pairs = 30
		for name, ctx := range map[string]context.Context{"can end": t.Context(), "cannot end": context.Background()} {
			client := s.Client(fairlock.Config{})
			sent := record(client)
			ctx = context.WithValue(ctx, callers{}, 1)
			pair := func(name string) {
				lease, err := client.Mutex(name).Lock(ctx)
				if assert.NoError(t, err) {
					assert.NoError(t, lease.Unlock(ctx))
				}
			}
			for range pairs {
				pair("x")
			}
			all := sent.requests()
			require.Len(t, all, 2*pairs, name)
			for i, r := range all {
				assert.Equal(t, []string{"acquire", "release"}[i%2], r.verb)
				assert.True(t, r.caller)
			}
			sent.reset()
			var wg sync.WaitGroup
			for i := range pairs {
				wg.Go(func() { pair(fmt.Sprint(i)) }) // in pipelines
			}
			wg.Wait()
			assert.Len(t, sent.requests(), 2*pairs, name)
		}
	})
}

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

// wrapped hides all but the methods that the library needs, so the library sends each request alone.
type wrapped struct{ fairlock.Redis }

// If Redis does not answer, Close takes as long as go-redis takes to give up on one request, not on one of each waiter.
// If Redis cannot be reached, Close does not try again.
//
//fairlock:fault Close, Redis hangs: it takes one go-redis timeout, not one for each waiter
func TestClient_CloseWithoutRedis(t *testing.T) {
	type example struct {
		fault func(*fairlocktest.Link)
		takes time.Duration
	}
	bubbles(t, map[string]example{
		// A request waits for another connection for 50 ms, and that one for the reply to HELLO.
		"Redis hangs":     {func(l *fairlocktest.Link) { l.Delay(0, time.Hour) }, 50*time.Millisecond + 2*time.Second},
		"the link is cut": {func(l *fairlocktest.Link) { l.Cut() }, 0},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		plain := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Second, -1 })
		client, err := fairlock.New(wrapped{plain.Redis}, fairlock.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		s.Mutex("x").HoldAs("holder")
		var queue []*acquisition
		for range 300 { // more than one request to leave removes
			queue = append(queue, begin(t.Context(), client.Mutex("x").Lock))
		}
		c.fault(plain.Link)
		start := time.Now()
		require.NoError(t, client.Close())
		assert.LessOrEqual(t, time.Since(start), c.takes)
		for _, q := range queue {
			<-q.done
			require.ErrorIs(t, q.err, fairlock.ErrClosed)
			assert.LessOrEqual(t, q.at.Sub(start), 25*time.Millisecond)
		}
	})
}

// The reply by which Redis refuses a connection reaches all callers with requests for that connection.
//
//fairlock:fault Redis refuses a connection: all calls without a ticket or a lease that should have gone over it return its reply, an ErrRefused
func TestClient_RefusedConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		s.Miniredis.RequireUserAuth("user", "right")
		client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) { o.Username, o.Password = "user", "wrong" })
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				_, err := client.Mutex(fmt.Sprint(i)).TryLock(t.Context())
				assert.ErrorContains(t, err, "WRONGPASS")
				assert.ErrorIs(t, err, fairlock.ErrRefused)
				assert.NotErrorIs(t, err, script.ErrReply)
			})
		}
		all.Wait()
	})
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
