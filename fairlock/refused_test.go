package fairlock_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Refused requests are retried once a second for each lock, even for a hundred waiters, and all of them go on.
//
//fairlock:fault The user lacks rights, the password was changed, the server is full, or a proxy replies by itself
func TestRefused_OnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const n, lasts = 100, 8 * time.Second // the holder keeps its lease
		client := s.Client(fairlock.Config{})
		sent := record(client)
		holder := s.Mutex("x").HoldAs("holder")
		var all []*acquisition
		for range n {
			all = append(all, begin(t.Context(), client.Mutex("x").Lock))
		}
		pass(time.Second)
		before := len(sent.requests())
		s.Miniredis.SetError("NOAUTH Authentication required.")
		pass(lasts)
		assert.LessOrEqual(t, len(sent.requests())-before, 2*int(lasts/time.Second),
			"a heartbeat, and a subscription that is not confirmed")
		s.Miniredis.SetError("")
		pass(2 * time.Second)
		for _, q := range all {
			require.True(t, q.pending())
		}
		unlock(t, holder)
		unlock(t, all[0].granted(t))
		client.Close()
	})
}

// After a heartbeat with a reply, no waiter of the lock names a refusal as the reason why it was not granted the lock.
// That includes waiters that the heartbeat did not list.
//
//fairlock:fault The user lacks rights, the password was changed, the server is full, or a proxy replies by itself
func TestRefused_IsNoReasonLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		s.Mutex("x").HoldAs("holder")
		ctx, cancel := context.WithCancel(t.Context())
		hold := func() *acquisition { return begin(ctx, client.Mutex("x").Lock) }
		early := hold()
		pass(700 * time.Millisecond)
		late := hold()
		leaving, leave := context.WithCancel(t.Context())
		during := begin(leaving, client.Mutex("x").Lock)
		pass(time.Millisecond)
		s.Miniredis.SetError("NOAUTH Authentication required.")
		pass(400 * time.Millisecond)
		leave()
		<-during.done
		require.ErrorIs(t, during.err, fairlock.ErrRefused)
		s.Miniredis.SetError("")
		pass(time.Second)
		cancel()
		for _, q := range []*acquisition{early, late} {
			<-q.done
			require.ErrorIs(t, q.err, context.Canceled)
			require.NotErrorIs(t, q.err, fairlock.ErrRefused)
		}
	})
}

// The reply to one of two copies of an acquire is that the queue is full, or a refusal. The other copy arrives when the
// lock is free. The caller has left with a tombstone, so no copy is granted the lock.
//
//fairlock:fault The connection of a request is half-open, and its reply never comes: an acquire, a try, a release, a leave, Resume or ForceRelease is sent again on another connection after a second
func TestRepeat_LateCopyOfAFailedAcquire(t *testing.T) {
	bubbles(t, map[string]error{"full": fairlock.ErrQueueFull, "refused": fairlock.ErrRefused},
		func(t *testing.T, s *fairlocktest.Server, name string, want error) {
			client := clientWith(t, s, fairlock.Config{}, sendOnce)
			unlock(t, hold(t, client.Mutex("before").Lock)) // the server has the scripts
			pass(2 * time.Second)
			holder := s.Mutex("x").HoldAs("holder")
			waiter := begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
			sent, over := record(client), make(chan struct{})
			sent.before = func(n int, _ redis.Cmder) error {
				switch {
				case n == 0:
					<-over
				case n == 1 && name == "refused":
					return refusal("NOPERM")
				}
				return nil
			}
			q := begin(t.Context(), client.Mutex("x", fairlock.WithMaxWaiters(1)).Lock)
			pass(1500 * time.Millisecond)
			require.False(t, q.pending())
			require.ErrorIs(t, q.err, want)
			unlock(t, holder)
			unlock(t, waiter.granted(t))
			close(over)
			pass(time.Millisecond)
			s.Mutex("x").AssertFree()
			s.Mutex("x").AssertQueue()
			verbs := []string{}
			for _, r := range sent.requests() {
				verbs = append(verbs, r.verb)
			}
			require.Equal(t, []string{"acquire", "acquire", "leave"}, verbs)
		})
}

// A callback or a slog.Handler panics in its caller's goroutine, and leaves nothing behind. The panic reaches the
// caller, the lease is released, a waiter leaves, and Shutdown does not wait for it.
//
//fairlock:fault A Trace callback or the Logger panics in the goroutine of a caller: the panic reaches the caller, the lease is given back, and a waiter leaves
func TestTrace_Panics(t *testing.T) {
	boom := func() { panic("boom") }
	bubbles(t, map[string]fairlock.Trace{
		"Queued": {Queued: func(fairlock.QueuedInfo) { boom() }}, "Granted": {Granted: func(fairlock.GrantedInfo) { boom() }},
		"Abandoned": {Abandoned: func(fairlock.AbandonedInfo) { boom() }},
		"Ended":     {Ended: func(fairlock.EndedInfo) { boom() }}, "the log": {},
	}, func(t *testing.T, s *fairlocktest.Server, name string, trace fairlock.Trace) {
		cfg := fairlock.Config{Trace: &trace}
		if name == "the log" {
			cfg.Logger = slog.New(panicking{slog.DiscardHandler})
		}
		client := s.Client(cfg)
		if name == "the log" { // the waiter is queued, and will send acquire again
			client.Link.Delay(0, time.Second)
			time.AfterFunc(time.Second/2, client.Link.Cut)
		}
		free := name == "Granted" || name == "Ended"
		if !free {
			s.Mutex("x").HoldAs("holder")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.PanicsWithValue(t, "boom", func() { _ = client.Mutex("x").Do(ctx, func(context.Context) error { return nil }) })
		client.Link.Mend()
		pass(time.Second)
		s.Mutex("x").AssertQueue()
		if free {
			s.Mutex("x").AssertFree()
		}
		assert.Zero(t, client.Stats())
		require.NoError(t, client.Shutdown(t.Context()))
	})
}

// panicking is a handler that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("boom") }

// A notification that was published before the first subscription came up is not lost.
//
//fairlock:fault A fresh client queues, and is granted the lock before its subscription is up: no event and no line of the log
func TestSubscriber_FreshClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		for range 20 {
			var log logged
			var j journal
			client := s.Client(fairlock.Config{Logger: log.logger(), Trace: j.trace()})
			client.Link.Delay(0, time.Millisecond)
			holder := s.Mutex("x").HoldAs("holder")
			next := begin(t.Context(), client.Mutex("x").Lock)
			pass(1100 * time.Microsecond)
			unlock(t, holder)
			unlock(t, next.granted(t))
			pass(time.Second)
			assert.Empty(t, j.of("NotificationLost"))
			assert.Empty(t, log.sofar())
			client.Close()
		}
	})
}

// A proxy that swallows subscriptions is no outage: requests succeed.
//
//fairlock:fault A proxy swallows or cuts subscriptions: the log says that the subscription is down, and there is no outage
func TestSubscriber_Swallowed(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var log logged
		client := s.Client(fairlock.Config{Logger: log.logger()})
		client.Link.DropNotifications()
		for range 20 {
			holder := s.Mutex("x").HoldAs("holder")
			next := begin(t.Context(), client.Mutex("x").Lock)
			pass(time.Second)
			unlock(t, holder)
			unlock(t, next.granted(t))
		}
		assert.Zero(t, client.Stats().OutageSince)
		lines := log.sofar()
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "the subscription is down; heartbeats replace notifications")
	})
}

// After a pause of the process, the ctx of Do has ended at the first look, as the lease has.
//
//fairlock:promise Do
func TestDo_ContextLooksAtTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		clock := s.LocalClock()
		client := s.Client(fairlock.Config{Clock: clock})
		err := client.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			clock.Pause()
			pass(ttl)
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.ErrorIs(t, context.Cause(ctx), fairlock.ErrExpired)
			select {
			case <-ctx.Done():
			default:
				t.Error("ctx is not done")
			}
			clock.Resume()
			return nil
		})
		require.ErrorIs(t, err, fairlock.ErrLost)
	})
}
