package fairlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// refusals are texts of a server or a proxy, by what they mean.
var refusals = map[string]string{
	"WRONGTYPE x": "for good", "ERR user_script:12: attempt to index a nil value": "for good",
	"MOVED 1 127.0.0.1:6380": "for good",

	"LOADING Redis is loading the dataset in memory": "waited for", readOnly: "waited for",
	"NOREPLICAS Not enough good replicas to write.": "waited for",
	misconf: "waited for", "ERR max number of clients reached": "waited for",
	"CLUSTERDOWN The cluster is down": "waited for",

	"NOPERM User u has no permissions": "refused", "NOAUTH Authentication required.": "refused",
	"WRONGPASS invalid username-password pair":                "refused",
	"OOM command not allowed when used memory > 'maxmemory'.": "refused", "upstream failure": "refused",
	"no upstream host":       "refused",
	"ERR Connection refused": "refused",
}

// What a reply means is the same for all: a caller with neither ticket nor lease gets a refusal at once, and all others
// go on.
//
//fairlock:fault The user lacks rights, the password was changed, the server is full, or a proxy replies by itself: a call without a ticket or a lease returns ErrRefused at once; queued waiters, renewals and releases go on once a second, while ctx or the lease lasts; Stats.RefusedSince and a line of the log tell it
func TestRefused_WhoGoesOn(t *testing.T) {
	const lasts = 5 * time.Second
	bubbles(t, refusals, func(t *testing.T, s *fairlocktest.Server, text, class string) {
		var log logged
		client := s.Client(fairlock.Config{Logger: log.logger(), TTL: 20 * time.Second})
		sent := record(client)
		listen(t, client)
		lease := hold(t, client.Mutex("lease").Lock)
		renewed := hold(t, client.Mutex("renewed").Lock)
		unlocked := hold(t, client.Mutex("unlocked").Lock)
		holder := s.Mutex("x").HoldAs("holder")
		queued := begin(t.Context(), client.Mutex("x").Lock)
		leaving, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		left := begin(leaving, client.Mutex("x").Lock)
		pass(time.Millisecond)

		start, before := time.Now(), len(sent.requests())
		s.Miniredis.SetError(text)
		first := begin(t.Context(), client.Mutex("first").Lock)
		again := begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) { return nil, renewed.Renew(ctx) })
		unlocking := begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) {
			return nil,
				unlocked.Unlock(ctx)
		})
		tried := map[string]*acquisition{}
		for name, try := range tries(client, lease) {
			tried[name] = begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) { return nil, try(ctx) })
		}
		require.Error(t, client.Ping(t.Context()))
		pass(lasts - time.Millisecond)
		asked := len(sent.requests()) - before
		stats := client.Stats()
		s.Miniredis.SetError("")
		if class == "for good" {
			pass(time.Second)
		} else {
			pass(1500 * time.Millisecond)
		}

		took := func(q *acquisition) time.Duration { return q.at.Sub(start) }
		for name, q := range tried {
			<-q.done
			require.Error(t, q.err, name)
			assert.Equal(t, class == "refused", errors.Is(q.err, fairlock.ErrRefused), "%s: %v", name, q.err)
			assert.Equal(t, class == "waited for", errors.Is(q.err, fairlock.ErrUnreachable), "%s: %v", name, q.err)
			if class == "waited for" {
				assert.GreaterOrEqual(t, took(q), requestLimit, name)
			} else {
				assert.Zero(t, took(q), name)
			}
		}
		<-left.done
		require.Error(t, left.err)
		if class == "refused" {
			require.ErrorIs(t, left.err, context.DeadlineExceeded)
			require.ErrorIs(t, left.err, fairlock.ErrRefused)
			assert.Equal(t, "refused", fairlock.ErrorType(left.err))
		}
		require.NoError(t, lease.Err())
		<-first.done
		<-again.done
		<-unlocking.done
		switch class {
		case "for good":
			for _, q := range []*acquisition{first, again, unlocking} {
				require.Error(t, q.err)
				require.NotErrorIs(t, q.err, fairlock.ErrRefused)
				assert.Equal(t, "broken", fairlock.ErrorType(q.err), q.err)
				assert.Zero(t, took(q))
			}
			<-queued.done
			require.Error(t, queued.err)
			assert.LessOrEqual(t, took(queued), interval)
			assert.Zero(t, stats.OutageSince)
			assert.Zero(t, stats.RefusedSince)
			return
		case "waited for":
			for _, q := range []*acquisition{first, again, unlocking} {
				require.NoError(t, q.err)
				assert.InDelta(t, lasts.Seconds(), took(q).Seconds(), 0.3)
			}
			assert.NotZero(t, stats.OutageSince)
			assert.Zero(t, stats.RefusedSince)
		case "refused":
			require.ErrorIs(t, first.err, fairlock.ErrRefused)
			assert.Zero(t, took(first))
			require.NoError(t, again.err)
			require.ErrorIs(t, unlocking.err, fairlock.ErrRefused)
			assert.Equal(t, requestLimit, took(unlocking))
			assert.Zero(t, stats.OutageSince)
			assert.NotZero(t, stats.RefusedSince)
			assert.LessOrEqual(t, asked, len(tried)+2+4*6, "each asks once a second")
		}
		s.Mutex("unlocked").AssertFree()
		require.True(t, queued.pending())
		assert.Len(t, s.Mutex("x").State().Waiters, 1, "the other one has left")
		unlock(t, holder)
		unlock(t, queued.granted(t))
		pass(10 * time.Second)
		assert.Zero(t, client.Stats().OutageSince)
		assert.Zero(t, client.Stats().RefusedSince)
		lines := strings.Join(log.sofar(), "")
		for line, want := range map[string]bool{
			"outage begins: ": class == "waited for", "outage is over: ": class == "waited for",
			"refusals begin: ": class == "refused", "refusals are over": class == "refused",
		} {
			assert.Equal(t, map[bool]int{true: 1}[want], strings.Count(lines, line), "%s in %s", line, lines)
		}
	})
}

// What is refused is asked once a second for each lock, also for a thousand waiters, and all of them go on.
//
//fairlock:fault The user lacks rights, the password was changed, the server is full, or a proxy replies by itself
func TestRefused_OnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const n, lasts = 1000, 8 * time.Second // the holder keeps its lease
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

// Once a heartbeat had a reply, no waiter of the lock gives a refusal as the reason why it was not granted the lock,
// also one that the heartbeat did not list.
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

// A half-open connection costs a Lock about a second, and nothing is granted to nobody later: go-redis resends what
// hangs after its ReadTimeout of 3 s.
//
//fairlock:fault The connection of a request is half-open, and its reply never comes: an acquire, a try, a release, a leave, Resume or ForceRelease is sent again on another connection after a second
func TestRepeat_HalfOpenLink(t *testing.T) {
	for name, taken := range map[string]bool{"free": false, "taken": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) { o.Protocol = 2 })
				m := client.Mutex("x")
				unlock(t, hold(t, m.Lock)) // one connection is idle
				pass(2 * time.Second)
				var holder *fairlock.Lease
				if taken {
					holder = s.Mutex("x").HoldAs("holder")
				}
				sent, over := record(client), make(chan struct{})
				sent.before = func(n int, _ redis.Cmder) error {
					if n == 0 { // the copy that hangs arrives after 5 s
						<-over
					}
					return nil
				}
				time.AfterFunc(5*time.Second, func() { close(over) })
				start := time.Now()
				if taken {
					_, err := m.TryLock(t.Context())
					require.ErrorIs(t, err, fairlock.ErrBusy)
					assert.LessOrEqual(t, time.Since(start), 1500*time.Millisecond)
					unlock(t, holder)
				} else {
					lease := hold(t, m.Lock)
					assert.LessOrEqual(t, time.Since(start), 1500*time.Millisecond)
					unlock(t, lease)
				}
				for _, seconds := range []int{6, 11, 16} {
					pass(time.Until(start.Add(time.Duration(seconds) * time.Second)))
					s.Mutex("x").AssertFree()
					s.Mutex("x").AssertQueue()
				}
			})
		})
	}
}

// Of two copies of an acquire, one was answered that the queue is full, or was refused, and the other one arrives when
// the lock is free: the caller has left with a tombstone, so it is granted to nobody.
//
//fairlock:fault The connection of a request is half-open, and its reply never comes
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

// A try of 3 s outlives two connections that somebody on the way has forgotten.
//
//fairlock:fault The connection of a request is half-open, and its reply never comes
func TestRepeat_TwoForgottenConnections(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := clientWith(t, s, fairlock.Config{}, sendOnce)
		unlock(t, hold(t, client.Mutex("x").Lock))
		pass(2 * time.Second)
		over := make(chan struct{})
		defer close(over)
		record(client).before = func(n int, _ redis.Cmder) error {
			if n < 2 {
				<-over
				return errCut
			}
			return nil
		}
		start := time.Now()
		unlock(t, hold(t, client.Mutex("x").TryLock))
		assert.LessOrEqual(t, time.Since(start), 2500*time.Millisecond)
	})
}

// The copy of a release that a server which loads its data refuses does not say whether the other one has released the
// lock.
//
//fairlock:fault Unlock cannot reach Redis
func TestRepeat_RefusedCopyOfARelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		loading := false
		record(client).setAfterLost(t, s, &loading)
		require.NoError(t, lease.Unlock(t.Context()))
		s.Mutex("x").AssertFree()
	})
}

// setAfterLost has the first release run, and its copy be refused with LOADING.
func (r *recorder) setAfterLost(t *testing.T, s *fairlocktest.Server, done *bool) {
	t.Helper()
	r.setAfter(func(cmd redis.Cmder) {
		if *done || cmd.Err() != nil {
			return
		}
		*done = true
		s.Miniredis.SetError("LOADING Redis is loading the dataset in memory")
		time.AfterFunc(100*time.Millisecond, func() { s.Miniredis.SetError("") })
		cmd.SetErr(errSentAgain)
	})
}

// A callback that panics in its caller's goroutine leaves nothing behind: the panic reaches the caller, the lease is
// given back, a waiter leaves, and Shutdown does not wait for it.
//
//fairlock:fault A Trace callback or the Logger panics in the goroutine of a caller: the panic reaches the caller, the lease is given back, and a waiter leaves
func TestTrace_Panics(t *testing.T) {
	boom := func() { panic("boom") }
	bubbles(t, map[string]fairlock.Trace{
		"Queued": {Queued: func(fairlock.QueuedInfo) { boom() }}, "Granted": {Granted: func(fairlock.GrantedInfo) { boom() }},
		"Abandoned": {Abandoned: func(fairlock.AbandonedInfo) { boom() }}, "Ended": {Ended: func(fairlock.EndedInfo) { boom() }},
	}, func(t *testing.T, s *fairlocktest.Server, name string, trace fairlock.Trace) {
		client := s.Client(fairlock.Config{Trace: &trace})
		m := client.Mutex("x")
		if name == "Queued" || name == "Abandoned" {
			s.Mutex("x").HoldAs("holder")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.PanicsWithValue(t, "boom", func() { _ = m.Do(ctx, func(context.Context) error { return nil }) })
		pass(time.Second)
		s.Mutex("x").AssertQueue()
		if name == "Granted" || name == "Ended" {
			s.Mutex("x").AssertFree()
		}
		assert.Zero(t, client.Stats())
		require.NoError(t, client.Shutdown(t.Context()))
	})
}

// So does a slog.Handler that panics when an acquire has just queued its waiter.
//
//fairlock:fault A Trace callback or the Logger panics in the goroutine of a caller
func TestLogger_Panics(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{Logger: slog.New(panicking{slog.DiscardHandler})})
		held := s.Mutex("x").HoldAs("holder")
		client.Link.Delay(0, time.Second)
		time.AfterFunc(time.Second/2, client.Link.Cut) // the waiter is queued, and will send acquire again
		require.PanicsWithValue(t, "boom", func() { _, _ = client.Mutex("x").Lock(t.Context()) })
		client.Link.Mend()
		pass(time.Second)
		s.Mutex("x").AssertQueue()
		unlock(t, held)
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

// A holder that was handed the lock with a lease shorter than its minimum hold extends it at once: a crash does not
// shorten it.
//
//fairlock:promise A minimum hold
func TestMinHold_HolderIsKilledAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const d = 8 * time.Second
		client := s.Client(fairlock.Config{TTL: 3 * time.Second})
		holder := s.Mutex("x").HoldAs("holder")
		next := begin(t.Context(), client.Mutex("x", fairlock.WithMinHold(d)).Lock)
		pass(time.Second)
		unlock(t, holder)
		start := time.Now()
		next.granted(t)
		pass(10 * time.Millisecond)
		client.Crash()
		pass(time.Until(start.Add(d - time.Millisecond)))
		s.Mutex("x").AssertHeldBy(client.Name())
		pass(time.Second)
		s.Mutex("x").AssertFree()
	})
}

// After Redis has lost all data, the waiters of a client come back in the order of their tickets.
//
//fairlock:fault Redis loses its data
func TestQueue_OrderAfterLostData(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, _, _ := listening(t, s, fairlock.Config{})
		for range 5 {
			s.Mutex("x").HoldAs("holder")
			var all []*acquisition
			for range 16 {
				all = append(all, begin(t.Context(), client.Mutex("x").Lock))
			}
			pass(3 * time.Second)
			s.LoseData()
			for _, q := range all {
				lease := q.granted(t)
				synctest.Wait()
				pass(50 * time.Millisecond)
				unlock(t, lease)
			}
		}
	})
}
