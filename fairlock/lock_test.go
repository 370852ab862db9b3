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

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/script"
)

// A loss of the lock stands in the error of Do once, and the operation is do.
//
//fairlock:promise Do
func TestDo_ReportsALossOnce(t *testing.T) {
	const lost = `fairlock: do "x": lock is lost: no longer the owner`
	ended := func(ctx context.Context) { <-ctx.Done() }
	type example struct {
		f    func(ctx context.Context) error
		want string
	}
	bubbles(t, map[string]example{
		"f returns nil":       {func(ctx context.Context) error { ended(ctx); return nil }, lost},
		"f returns the cause": {func(ctx context.Context) error { ended(ctx); return context.Cause(ctx) }, lost},
		"f returns its own error": {func(ctx context.Context) error { ended(ctx); return errors.New("mine") }, "mine\n" +
			lost},
		"f returns ctx's error": {func(ctx context.Context) error { ended(ctx); return ctx.Err() }, "context canceled\n" +
			lost},
		"f does not wait, no loss": {func(context.Context) error { return errors.New("mine") }, "mine"},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		m := s.Client(fairlock.Config{}).Mutex("x")
		err := m.Do(t.Context(), func(ctx context.Context) error {
			time.AfterFunc(time.Second, s.Mutex("x").ForceRelease)
			return c.f(ctx)
		})
		require.EqualError(t, err, c.want)
		pass(2 * time.Second)
	})
	t.Run("it is lost before f begins", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *fairlocktest.Server) {
			slow := &fairlock.Trace{Granted: func(fairlock.GrantedInfo) {
				s.Mutex("x").Expire()
				time.Sleep(bounds.DefaultTTL) // a renewal finds that
			}}
			err := s.Client(fairlock.Config{Trace: slow}).Mutex("x").Do(t.Context(), func(context.Context) error {
				t.Error("f runs without the lock")
				return nil
			})
			require.ErrorIs(t, err, fairlock.ErrLost)
		})
	})
	t.Run("the lock is not granted", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *fairlocktest.Server) {
			client := s.Client(fairlock.Config{})
			client.Link.Cut()
			var failed *fairlock.Error
			require.ErrorAs(t, client.RWMutex("x").RDo(t.Context(), nil), &failed)
			assert.Equal(t, "rdo", failed.Op)
		})
	})
}

// TryDo calls f only if the lock is free and nobody waits, and never waits. Its own ErrBusy differs from that of a lock
// that f has tried.
//
//fairlock:promise Do
func TestTryDo(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{Name: "client"})
		m, sem, rw := client.Mutex("x"), client.Semaphore("x", 5), client.RWMutex("x")
		for _, c := range []struct {
			op   string
			lock fairlocktest.Lock
			try  func(context.Context, func(context.Context) error) error
		}{
			{"trydo", s.Mutex("x"), m.TryDo}, {"trydo", s.RWMutex("x"), rw.TryDo},
			{"trydo", s.Semaphore("x", 5), func(ctx context.Context,
				f func(context.Context) error) error {
				return sem.TryDo(ctx, 5, f)
			}},
		} {
			held := c.lock.HoldAs("web-3")
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := c.try(ctx, func(context.Context) error { t.Error("f was called"); return nil })
			cancel()
			require.EqualError(t, err, `fairlock: `+c.op+` "x": lock is busy (held by web-3)`)
			require.ErrorIs(t, err, fairlock.ErrBusy)
			var failed *fairlock.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, []string{c.op, "x"}, []string{failed.Op, failed.Name})
			assert.Equal(t, start, time.Now())
			c.lock.AssertQueue()
			unlock(t, held)

			other := s.Mutex("y").HoldAs("web-3")
			err = c.try(t.Context(), func(ctx context.Context) error {
				c.lock.AssertHeldBy("client")
				assert.Equal(t, c.lock.State().Fence, leaseIn(ctx).Fence())
				return client.Mutex("y").TryDo(ctx, func(context.Context) error { return nil })
			})
			require.EqualError(t, err, `fairlock: trydo "y": lock is busy (held by web-3)`)
			c.lock.AssertFree()
			unlock(t, other)
		}
	})
}

// If the reply to a force-release is lost, it is sent again. By then the next waiter has the lock, and keeps it.
//
//fairlock:promise Force-release
func TestForceRelease_LostReplyTakesFromOneHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, operator := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		operator.Redis.AddHook(&recorder{before: func(n int, _ redis.Cmder) error {
			if n%2 == 1 { // it has looked at the holder, and takes the lock from it now
				operator.Link.DropReply()
			}
			return nil
		}})
		first := hold(t, client.Mutex("x").Lock)
		next := begin(t.Context(), client.Mutex("x").Lock)
		behind := begin(t.Context(), client.Mutex("x").Lock)
		released, err := admin.New(operator.Redis, "").ForceRelease(t.Context(), idX(fairlock.KindMutex))
		require.NoError(t, err)
		assert.True(t, released)
		lease := next.granted(t)
		require.NoError(t, lease.Renew(t.Context()))
		require.ErrorIs(t, first.Renew(t.Context()), fairlock.ErrRevoked)
		assert.True(t, behind.pending())
		unlock(t, lease)
		unlock(t, behind.granted(t))
	})
}

// Whichever reply is lost, each request takes effect once: no loss is reported that is none, no lock is held by nobody,
// and the fence makes one step for each grant.
//
//fairlock:fault The reply to a script is lost: it takes effect once: no false loss, no lock that nobody holds, one step of the fence
//fairlock:fault The reply to a release is lost, and another client has the lock meanwhile: released; the lock of the other client is untouched
func TestLock_LostReplyChangesNothing(t *testing.T) {
	for resent, options := range map[string]func(*redis.Options){"by go-redis": func(*redis.Options) {},
		"by the library": sendOnce} {
		for name, lost := range map[string]int{"mutex": 1, "semaphore": 5, "rwmutex": 5} { // replies to one release
			t.Run(fmt.Sprint(name, ", sent again ", resent), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *fairlocktest.Server) {
					var j journal
					client := clientWith(t, s, fairlock.Config{Name: "client", Trace: j.trace()}, options)
					listen(t, client)
					released := len(j.of("Ended"))
					l, acquire := locksOfThree(s, client)[name].lock, locksOfThree(s, client)[name].all
					drop := client.Link.DropReply

					held := l.HoldAs("holder")
					if resent == "by go-redis" { // an error of a first request is its caller's
						drop() // of "queued"
					}
					q := begin(t.Context(), acquire)
					l.AssertQueue("client")
					drop() // of a heartbeat
					pass(2 * time.Second)
					l.AssertQueue("client")
					unlock(t, held)
					lease := q.granted(t)
					assert.Equal(t, lease.Fence(), l.State().Fence)
					drop() // of a renewal
					pass(ttl)
					require.NoError(t, lease.Err())
					next := begin(t.Context(), locksOfThree(s, s.Client(fairlock.Config{Name: "next"}))[name].all)
					for range lost { // of a release
						drop()
					}
					start := time.Now()
					unlock(t, lease)
					owner := next.granted(t)
					assert.Equal(t, start, next.at)
					assert.Len(t, j.of("Ended"), released+1)
					assert.Equal(t, owner.Fence(), l.State().Fence, "a second step of the fence")
					require.NoError(t, owner.Renew(t.Context()))
					unlock(t, owner)
					l.AssertFree()

					held = l.HoldAs("holder")
					ctx, cancel := context.WithCancel(t.Context())
					q = begin(ctx, acquire)
					drop() // of a leave
					cancel()
					<-q.done
					require.ErrorIs(t, q.err, context.Canceled)
					pass(time.Second)
					l.AssertQueue()
					unlock(t, held)
					if resent == "by go-redis" {
						drop() // of "granted"
						lease = hold(t, acquire)
						assert.Equal(t, lease.Fence(), l.State().Fence)
						unlock(t, lease)
					}
					for _, ended := range j.of("Ended") {
						assert.NoError(t, ended.info.(fairlock.EndedInfo).Err)
					}
					l.AssertFree()
					s.AssertNothingLeft()
				})
			})
		}
	}
}

// Tickets of one microsecond differ, so a ticket can be later than the clock. The waiter's age is 0 then. The TTL of
// one that has crashed is negative in the end.
func TestInspect_Waiters(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		s.Mutex("x").HoldAs("holder")
		for range 3 {
			s.Mutex("x").CrashQueued("waiter", ttl)
		}
		for _, w := range s.Mutex("x").State().Waiters {
			assert.Zero(t, w.Age)
		}
		pass(time.Second)
		assert.Equal(t, time.Second, s.Mutex("x").State().Waiters[0].Age.Round(time.Millisecond))
		pass(time.Minute)
		assert.Equal(t, ttl-61*time.Second, s.Mutex("x").State().Waiters[0].TTL, "it is not shown as one that lives")
	})
}

// Inspect shows whether a holder is alive, long before its lease ends: by the renewals that should have followed. Each
// is due when a third of what was left has passed. A lease that was handed over begins shorter than its TTL, and is to
// be renewed half a second later.
//
//fairlock:promise Inspect and Trace
func TestInspect_RenewalsOfAHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := s.Client(fairlock.Config{})
		lease := hold(t, c.RWMutex("x").Lock)
		holder := func(l fairlocktest.Lock) admin.Holder { return l.State().Holders[0] }
		pass(ttl - ttl/20)
		h := holder(s.RWMutex("x"))
		assert.Equal(t, []any{ttl - h.TTL, 0, ttl - ttl/20}, []any{h.Renewed, h.Missed, h.Age})
		assert.Less(t, h.Renewed, ttl/3)

		next := begin(t.Context(), c.RWMutex("x").RLock)
		unlock(t, lease)
		next.granted(t)
		h = holder(s.RWMutex("x"))
		assert.Less(t, h.TTL, ttl*2/3)
		assert.Equal(t, []any{h.Age, 0}, []any{h.Renewed, h.Missed}, "it was granted the lock just now")

		handed := s.Mutex("handed")
		lease = hold(t, c.Mutex("handed").Lock)
		handed.CrashQueued("gone", 6*time.Second)
		unlock(t, lease)
		began := time.Now()
		for _, c := range []struct {
			after  time.Duration
			missed int
		}{{0, 0}, {600 * time.Millisecond, 0}, {800 * time.Millisecond, 1}, {2400 * time.Millisecond,
			1}, {2600 * time.Millisecond, 2}} {
			pass(time.Until(began.Add(c.after)))
			h := holder(handed)
			assert.Equal(t, []any{c.after, c.missed, 6*time.Second - c.after},
				[]any{h.Renewed.Round(time.Millisecond), h.Missed, h.TTL})
		}

		for _, l := range []fairlocktest.Lock{s.Mutex("y"), s.Semaphore("y", 3)} {
			l.CrashHolding("gone", ttl)
			began := time.Now()
			for _, c := range []struct {
				after  time.Duration
				missed int
			}{{ttl / 3, 0}, {ttl * 2 / 5, 1}, {ttl * 5 / 9, 1}, {ttl * 3 / 5, 2}, {ttl * 3 / 4, 3}, {ttl * 9 / 10, 4}} {
				pass(time.Until(began.Add(c.after.Truncate(time.Millisecond))))
				h := holder(l)
				assert.Equal(t, []any{c.after.Truncate(time.Millisecond), c.missed}, []any{h.Renewed, h.Missed})
			}
		}
		require.NoError(t, s.Miniredis.Set(script.KeysOf("mutex", bounds.DefaultNamespace, "z").Part("lock"), "theirs"))
		h = holder(s.Mutex("z"))
		assert.Equal(t, []any{time.Duration(0), time.Duration(-1), 0}, []any{h.Age, h.Renewed, h.Missed},
			"nothing is known of it")
	})
}

// Redis does not undo what a script has written before one of its commands is refused.
//
//fairlock:fault A script fails half-way: Lock returns the error, and what the script had granted or queued is removed at once; while Redis refuses that, it is tried each second for TTL + WaiterTTL
func TestLock_LeavesAfterAScriptThatFailed(t *testing.T) {
	const failed = "ERR The user executing the script can't run this command or subcommand script: 0123, on @user_script:3."
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		requests := 0
		record(client).after = func(cmd redis.Cmder) {
			if requests++; requests%2 == 1 {
				cmd.SetErr(refusal(failed))
			}
		}
		_, err := client.Mutex("x").Lock(t.Context()) // granted in Redis
		require.ErrorContains(t, err, "can't run this command")
		synctest.Wait()
		_, err = client.Semaphore("x", 2).TryAcquire(t.Context(), 1)
		require.ErrorContains(t, err, "can't run this command")
		synctest.Wait()
		s.Mutex("y").TakeAs("other")
		_, err = client.Mutex("y").Lock(t.Context()) // queued in Redis
		require.ErrorContains(t, err, "can't run this command")
		synctest.Wait()
		s.Mutex("y").AssertQueue()
		assert.Equal(t, 6, requests, "acquire and leave of each")
		for _, key := range s.Miniredis.Keys() {
			assert.True(t, strings.HasSuffix(key, ":number") || strings.HasSuffix(key, ":heartbeats") ||
				key == "fairlock:{y}:lock", "%s is left", key)
		}
	})
}

// The time of the request to leave begins when the abandoned acquire has ended, which can be after TTL and WaiterTTL.
//
//fairlock:fault Redis hangs for longer than TTL and WaiterTTL, and ctx ends: the lock is free as soon as Redis answers
func TestLock_LeavesAfterALongHang(t *testing.T) {
	bubbles(t, map[time.Duration]time.Duration{
		bounds.MinWaiterTTL: bounds.MinWaiterTTL, 10 * time.Second: bounds.DefaultWaiterTTL,
	}, func(t *testing.T, s *fairlocktest.Server, ttl, waiterTTL time.Duration) {
		client := s.Client(fairlock.Config{TTL: ttl, WaiterTTL: waiterTTL})
		unlock(t, hold(t, client.Mutex("x").Lock))
		client.Link.Hang()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := client.Mutex("x").Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		time.Sleep(ttl + 500*time.Millisecond)
		client.Link.Mend()
		time.Sleep(250 * time.Millisecond) // the longest back-off
		s.Mutex("x").AssertFree()
	})
}

// A waiter leaves as soon as Redis can be reached, for as long as Redis may keep its ticket. Those that have left
// meanwhile, one after the other, share a request.
func TestLock_LeavesWhenRedisIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) { o.MaxRetries = -1 })
		sent := record(client)
		s.Mutex("x").CrashHolding("holder", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		begin(ctx, client.Mutex("x").Lock)
		client.Link.Cut()
		cancel()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			<-begin(ctx, client.Mutex("x").Lock).done
		}
		require.True(t, s.Miniredis.Exists(script.KeysOf("mutex", bounds.DefaultNamespace, "x").Part("queue")))
		client.Link.Mend()
		sent.reset()
		start := time.Now()
		pass(250 * time.Millisecond) // the longest back-off
		assert.False(t, s.Miniredis.Exists(script.KeysOf("mutex", bounds.DefaultNamespace, "x").Part("queue")))
		tombstones, err := s.Miniredis.SortedSet(script.KeysOf("mutex", bounds.DefaultNamespace, "x").Part("tombstones"))
		require.NoError(t, err)
		assert.Len(t, tombstones, 10)
		assert.Len(t, sent.times("leave", start), 2)
	})
}

// An acquire that was never sent needs no request to leave.
func TestLock_LeavesNothingThatWasNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const inFlight = 10 // pipelines
		client := s.Client(fairlock.Config{})
		sent := record(client)
		client.Link.Hang()
		var all sync.WaitGroup
		lock := func(name string, timeout time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := client.Mutex(name).Lock(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}
		for range inFlight {
			all.Go(func() { lock("sent", 2*time.Second) })
			time.Sleep(60 * time.Millisecond) // the sender before is overdue
		}
		all.Go(func() { lock("waiting", 300*time.Millisecond) })
		all.Wait()
		client.Link.Mend()
		time.Sleep(time.Minute)
		for _, r := range sent.requests() {
			assert.Equal(t, "sent", r.lock)
		}
	})
}

// The cause of the caller's ctx says nothing about the request that was in flight, also if it is an error of Redis: an
// errgroup's ctx ends with whatever one of its functions has returned.
//
//fairlock:fault ctx ends with an error of Redis as its cause: as any other end of ctx; the lock is not held afterwards
func TestLock_CauseThatIsAnErrorOfRedis(t *testing.T) {
	bubbles(t, map[string]error{
		"of another command": refusal("WRONGTYPE x"), "of another script": refusal(
			"NOSCRIPT x"), "of another server": refusal("READONLY x"),
		"nil": redis.Nil, "closed": redis.ErrClosed, "plain": errors.New("x"),
	}, func(t *testing.T, s *fairlocktest.Server, _ string, cause error) {
		client := s.Client(fairlock.Config{})
		sent := record(client)
		client.Link.Hang()
		ends := func() context.Context {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second/2, func() { cancel(cause) }) // before a copy is sent
			return ctx
		}
		_, err := client.Mutex("x").TryLock(ends())
		require.ErrorIs(t, err, context.Canceled, cause)
		require.ErrorIs(t, err, cause)
		_, err = client.Mutex("x").Lock(ends())
		require.ErrorIs(t, err, context.Canceled, cause)
		require.ErrorIs(t, err, cause)
		client.Link.Mend()
		synctest.Wait()
		s.AssertNothingLeft()
		var verbs []string
		for _, r := range sent.requests() {
			verbs = append(verbs, r.verb)
		}
		assert.ElementsMatch(t, []string{"acquire", "acquire", "leave", "leave"}, verbs) // of two senders
	})
}

// A cause that wraps the error of ctx is returned, and not that error in its place.
func TestLock_CauseThatWrapsTheErrorOfItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("stopped by the operator: %w", context.Canceled))
		_, err := client.Mutex("x").Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, `fairlock: lock "x": stopped by the operator: context canceled`)
	})
}

// A ctx that ends because another Client was closed is a ctx that has ended.
func TestClose_EndsNothingOfAnotherClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		a, b := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		held := hold(t, b.Mutex("y").Lock)
		lease := hold(t, a.Mutex("x").Lock)
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		time.AfterFunc(time.Second, func() { _ = a.Close() })
		_, err := b.Mutex("y").Lock(ctx)
		require.EqualError(t, err, `fairlock: lock "y": context canceled: client is closed`)
		require.ErrorIs(t, err, context.Canceled)
		unlock(t, held)
	})
}

// A call that would wait for a lease that its ctx carries is refused at once, and sends nothing. It does not matter how
// many leases the ctx carries, and which was acquired last.
//
//fairlock:promise Nested locking: a call whose ctx carries a lease for which it would wait gets ErrReentrant, or ErrBusy if it is a Try…; nothing is sent. Others are not refused
func TestLock_Reentrant(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{Name: "client"})
		sent := record(client)
		m, rw, sem := client.Mutex("x"), client.RWMutex("x"), client.Semaphore("x", 5)
		nothing := func(context.Context) error { return nil }
		// within calls f with a ctx that carries leases of all the locks, in this order.
		var within func(ctx context.Context, locks []acquire, f func(ctx context.Context, leases []*fairlock.Lease))
		within = func(ctx context.Context, locks []acquire, f func(context.Context, []*fairlock.Lease)) {
			if len(locks) == 0 {
				f(ctx, nil)
				return
			}
			lease := hold(t, locks[0])
			inner, cancel := lease.Context(ctx)
			defer cancel()
			within(inner, locks[1:], func(ctx context.Context, leases []*fairlock.Lease) { f(ctx, append(leases, lease)) })
			unlock(t, lease)
		}
		others := []acquire{client.Mutex("y").Lock, client.RWMutex("y").RLock, permits(sem, 1)}
		type call struct {
			name string
			try  bool
			call func(context.Context) error
		}
		of := func(a acquire) func(context.Context) error {
			return func(ctx context.Context) error { _, err := a(ctx); return err }
		}
		read := []call{
			{"RLock", false, of(rw.RLock)}, {"RDo", false, func(ctx context.Context) error { return rw.RDo(ctx, nothing) }},
			{"TryRLock", true, of(rw.TryRLock)},
		}
		write := []call{
			{"Lock", false, of(rw.Lock)}, {"Do", false, func(ctx context.Context) error { return rw.Do(ctx, nothing) }},
			{"TryLock", true, of(rw.TryLock)}, {"TryDo", true,
				func(ctx context.Context) error { return rw.TryDo(ctx, nothing) }},
		}
		for _, c := range []struct {
			name    string
			outer   acquire
			refused []call
		}{
			{"mutex", client.Mutex("x", fairlock.WithTTL(ttl/2)).Lock, []call{
				{"Lock", false, of(m.Lock)}, {"Do", false, func(ctx context.Context) error { return m.Do(ctx, nothing) }},
				{"TryLock", true, of(m.TryLock)}, {"TryDo", true, func(ctx context.Context) error { return m.TryDo(ctx, nothing) }},
			}},
			{"reader", rw.RLock, write},
			{"writer", rw.Lock, append(read, write...)},
		} {
			for _, locks := range [][]acquire{{c.outer}, append(others[:3:3], c.outer), append([]acquire{c.outer}, others...)} {
				within(t.Context(), locks, func(ctx context.Context, leases []*fairlock.Lease) {
					for _, ctx := range []context.Context{ctx, context.WithoutCancel(ctx)} {
						for _, call := range c.refused {
							sent.reset()
							start, want := time.Now(), fairlock.ErrReentrant
							if call.try {
								want = fairlock.ErrBusy
							}
							short, cancel := context.WithTimeout(ctx, time.Second)
							err := call.call(short)
							cancel()
							require.ErrorIs(t, err, want, "%s in %s", call.name, c.name)
							assert.Equal(t, call.try, errors.As(err, new(*fairlock.HeldError)))
							assert.Empty(t, sent.requests())
							assert.Equal(t, start, time.Now())
						}
					}
					// A lease that has ended is no reason.
					for _, l := range leases {
						unlock(t, l)
					}
					again := hold(t, func(context.Context) (*fairlock.Lease, error) { return c.outer(context.WithoutCancel(ctx)) })
					unlock(t, again)
				})
			}
		}

		within(t.Context(), []acquire{m.Lock, rw.RLock, permits(sem, 2)}, func(ctx context.Context, _ []*fairlock.Lease) {
			for _, a := range []acquire{rw.RLock, rw.TryRLock, permits(sem, 2), client.Mutex("z").Lock,
				client.RWMutex("z").Lock} {
				lease, err := a(ctx)
				require.NoError(t, err)
				unlock(t, lease)
			}
			// A client does not know the leases of another one.
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := s.Client(fairlock.Config{}).Mutex("x").Lock(short)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	})
}
