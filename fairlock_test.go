package fairlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/token"
)

func TestOneHolderAtATimeInTheOrderOfTickets(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const clients, perClient, rounds = 8, 32, 3
		var j journal
		var inside, total atomic.Int32
		var order []*fairlock.Lease // guarded by the lock under test
		var wg sync.WaitGroup
		for range clients {
			// Patient enough for a machine that is busy with something else: who is silent loses its place.
			c := b.client(t, fairlock.Config{Trace: j.trace(), WaiterTTL: time.Minute})
			for range perClient {
				wg.Go(func() {
					for range rounds {
						lease, err := c.Mutex("x").Lock(within(t, 3*soon))
						if err != nil {
							t.Error(err)
							return
						}
						assert.Equal(t, int32(1), inside.Add(1), "two are inside")
						order = append(order, lease)
						inside.Add(-1)
						total.Add(1)
						assert.NoError(t, lease.Unlock(context.Background()))
					}
				})
			}
		}
		wg.Wait()
		require.Equal(t, int32(clients*perClient*rounds), total.Load())
		slices.SortFunc(j.grants, func(a, b fairlock.GrantedInfo) int { return int(a.Fence) - int(b.Fence) })
		var lastTicket, lastFence uint64
		for i, g := range j.grants {
			assert.Equal(t, order[i].Fence(), g.Fence, "the fences do not rise with the grants")
			assert.Greater(t, g.Fence, lastFence)
			if g.Ticket != 0 {
				assert.Greater(t, g.Ticket, lastTicket, "grant %d is out of order", i)
				lastTicket = g.Ticket
			}
			lastFence = g.Fence
		}
		assert.Empty(t, j.lost)
	})
}

func TestWhoReleasesAndLocksAgainGoesBehindEveryWaiter(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c, other := b.client(t, fairlock.Config{}), b.client(t, fairlock.Config{})
		lease := lock(t, c.Mutex("x"))
		waiters := line(t, 6, func(i int) fairlock.Mutex { return []*fairlock.Client{c, other}[i%2].Mutex("x") })
		unlock(t, lease)
		again := enqueue(within(t, soon), c.Mutex("x"))
		for _, w := range waiters {
			lease := w.got(t)
			assert.True(t, again.pending(), "it overtook a waiter")
			unlock(t, lease)
		}
		unlock(t, again.got(t))
	})
}

func TestAHandoverWakesTheNextOneAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		// A beat would find it after 20 s.
		cfg := fairlock.Config{TTL: time.Minute, WaiterTTL: time.Minute}
		c, other := b.client(t, cfg), b.client(t, cfg)
		for _, next := range []*fairlock.Client{c, other} { // by the release's reply, and by its message
			lease := lock(t, c.Mutex("x"))
			w := enqueue(within(t, soon), next.Mutex("x"))
			queued(t, c.Mutex("x"), 1)
			start := time.Now()
			unlock(t, lease)
			unlock(t, w.got(t))
			assert.Less(t, w.at.Sub(start), 5*time.Second)
		}
	})
}

func TestTryLockNeverOvertakesAndLeavesNoTrace(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c, rdb := b.client(t, fairlock.Config{}), b.rdb(t)
		m := c.Mutex("x")
		lease, err := m.TryLock(context.Background())
		require.NoError(t, err)
		before := keys(t, rdb)
		_, err = b.client(t, fairlock.Config{}).Mutex("x").TryLock(context.Background())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		assert.Equal(t, before, keys(t, rdb))

		const rounds = 30
		stop := make(chan struct{})
		var barged atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if l, err := m.TryLock(context.Background()); err == nil {
						barged.Add(1)
						assert.NoError(t, l.Unlock(context.Background()))
					}
				}
			})
		}
		// Somebody waits at every moment from here on, so no TryLock may get in.
		waiters := line(t, rounds, func(int) fairlock.Mutex { return m })
		unlock(t, lease)
		for _, w := range waiters[:rounds-1] {
			unlock(t, w.got(t))
		}
		last := waiters[rounds-1].got(t)
		assert.Zero(t, barged.Load())
		close(stop)
		wg.Wait()
		unlock(t, last)
	})
}

func TestALeaseIsRenewedForAsLongAsItIsHeld(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		var j journal
		c := b.client(t, fairlock.Config{TTL: 3 * time.Second, Trace: j.trace()})
		other := b.client(t, fairlock.Config{})
		lease := lock(t, c.Mutex("x"))
		w := enqueue(within(t, soon), other.Mutex("x"))
		require.Eventually(t, func() bool { return j.count("renewed ok=true") >= 4 }, soon, time.Millisecond)
		require.NoError(t, lease.Err())
		assert.True(t, w.pending())
		assert.True(t, lease.Deadline().After(time.Now()))
		unlock(t, lease)
		unlock(t, w.got(t))
	})
}

func TestWithoutRenewalALeaseEndsBeforeItsTTL(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		const ttl = 2 * time.Second
		c := b.client(t, fairlock.Config{TTL: ttl, NoRenewal: true})
		m := c.Mutex("x")
		for _, how := range []string{"granted", "handed over"} {
			var lease *fairlock.Lease
			start := time.Now()
			if how == "granted" {
				lease = lock(t, m)
			} else {
				first := lock(t, m)
				w := enqueue(within(t, soon), m)
				queued(t, m, 1)
				start = time.Now()
				unlock(t, first)
				lease = w.got(t)
			}
			assert.Greater(t, time.Until(lease.Deadline()), ttl/2, how)
			<-lease.Done()
			assert.Less(t, time.Since(start), ttl+ttl/2, how)
			require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
			require.ErrorIs(t, lease.Err(), fairlock.ErrExpired)
			require.ErrorIs(t, lease.Unlock(context.Background()), fairlock.ErrLost)
			require.Eventually(t, func() bool {
				s, err := m.Inspect(context.Background())
				return err == nil && !s.Held
			}, soon, time.Millisecond)
		}
		lease := lock(t, m)
		deadline := lease.Deadline()
		require.NoError(t, lease.Renew(context.Background()))
		assert.True(t, lease.Deadline().After(deadline))
		unlock(t, lease)
		require.ErrorIs(t, lease.Renew(context.Background()), fairlock.ErrUnlocked)
	})
}

func TestUnlockIsIdempotentAndWorksUnderADeadContext(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		m := b.client(t, fairlock.Config{}).Mutex("x")
		lease := lock(t, m)
		dead, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, lease.Unlock(dead))
		require.NoError(t, lease.Unlock(dead))
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
		<-lease.Done()
		next := lock(t, m)
		require.NoError(t, lease.Unlock(dead), "a late Unlock")
		require.NoError(t, next.Renew(context.Background()), "touched the next owner")
		unlock(t, next)
	})
}

func TestATakenLockIsLost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		c, rdb := b.client(t, fairlock.Config{TTL: 3 * time.Second}), b.rdb(t)
		m, ctx := c.Mutex("x"), context.Background()

		lease := lock(t, m)
		require.NoError(t, rdb.Del(ctx, "fairlock:{x}:lock").Err())
		require.ErrorIs(t, lease.Unlock(ctx), fairlock.ErrLost)

		lease = lock(t, m)
		require.NoError(t, rdb.Set(ctx, "fairlock:{x}:lock", "somebody else", 0).Err())
		require.ErrorIs(t, lease.Unlock(ctx), fairlock.ErrTaken)
		assert.Equal(t, "somebody else", rdb.Get(ctx, "fairlock:{x}:lock").Val())
		require.NoError(t, rdb.Del(ctx, "fairlock:{x}:lock").Err())

		lease = lock(t, m)
		require.NoError(t, rdb.Del(ctx, "fairlock:{x}:lock").Err())
		<-lease.Done() // at the next renewal
		require.ErrorIs(t, lease.Err(), fairlock.ErrTaken)
		require.ErrorIs(t, lease.Renew(ctx), fairlock.ErrLost)
		require.ErrorIs(t, lease.Unlock(ctx), fairlock.ErrLost)
	})
}

func TestForceReleaseHandsOverAndRaisesTheFence(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		c, operator := b.client(t, fairlock.Config{TTL: 3 * time.Second}), b.client(t, fairlock.Config{})
		m := c.Mutex("x")
		held, err := operator.Mutex("x").ForceRelease(context.Background())
		require.NoError(t, err)
		assert.False(t, held)
		lease := lock(t, m)
		w := enqueue(within(t, soon), m)
		queued(t, m, 1)
		held, err = operator.Mutex("x").ForceRelease(context.Background())
		require.NoError(t, err)
		assert.True(t, held)
		next := w.got(t)
		assert.Greater(t, next.Fence(), lease.Fence())
		<-lease.Done()
		require.ErrorIs(t, lease.Err(), fairlock.ErrTaken)
		require.ErrorIs(t, lease.Unlock(context.Background()), fairlock.ErrLost)
		require.NoError(t, next.Renew(context.Background()))
		unlock(t, next)
	})
}

func TestResumeGoesOnWithALeaseBegunElsewhere(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c, other := b.client(t, fairlock.Config{NoRenewal: true}), b.client(t, fairlock.Config{TTL: 3 * time.Second})
		lease := lock(t, c.Mutex("x"))
		parsed, err := token.Parse(lease.Token().Text())
		require.NoError(t, err)
		resumed, err := other.Mutex("x").Resume(context.Background(), parsed)
		require.NoError(t, err)
		assert.Equal(t, lease.Fence(), resumed.Fence())
		assert.Equal(t, lease.Token(), resumed.Token())
		unlock(t, resumed)
		_, err = other.Mutex("x").Resume(context.Background(), parsed)
		require.ErrorIs(t, err, fairlock.ErrLost)
		_, err = other.Mutex("x").Resume(context.Background(), token.Token{})
		require.ErrorIs(t, err, fairlock.ErrInvalid)
	})
}

func TestInspectTellsWhoHoldsAndWhoWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		a, z := b.client(t, fairlock.Config{Name: "a"}), b.client(t, fairlock.Config{Name: "z"})
		m := a.Mutex("x")
		s, err := m.Inspect(context.Background())
		require.NoError(t, err)
		assert.False(t, s.Held)
		assert.Zero(t, s.Fence)
		lease := lock(t, m)
		waiters := line(t, 3, func(i int) fairlock.Mutex { return []*fairlock.Client{a, z}[i%2].Mutex("x") })
		s, err = m.Inspect(context.Background())
		require.NoError(t, err)
		assert.True(t, s.Held)
		assert.False(t, s.Quarantined)
		assert.Equal(t, lease.Token(), s.Holder.Token)
		assert.Equal(t, "a", s.Holder.Client)
		assert.Equal(t, lease.Fence(), s.Holder.Fence)
		assert.Equal(t, lease.Fence(), s.Fence)
		assert.InDelta(t, 10*time.Second, s.Holder.TTL, float64(9*time.Second))
		assert.Equal(t, 3, s.Waiting)
		require.Len(t, s.Waiters, 3)
		for i, w := range s.Waiters {
			assert.Equal(t, []string{"a", "z"}[i%2], w.Client)
			assert.NotZero(t, w.Token)
			assert.Positive(t, w.Age)
			assert.Positive(t, w.TTL)
			assert.LessOrEqual(t, w.TTL, 6*time.Second)
			assert.True(t, i == 0 || w.Ticket > s.Waiters[i-1].Ticket)
		}
		unlock(t, lease)
		for _, w := range waiters {
			unlock(t, w.got(t))
		}
	})
}

func TestDoRunsOnlyUnderTheLockAndTellsOfItsLoss(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		c, rdb := b.client(t, fairlock.Config{TTL: 3 * time.Second}), b.rdb(t)
		m, ctx := c.Mutex("x"), context.Background()
		free := func() bool {
			s, err := m.Inspect(ctx)
			return err == nil && !s.Held
		}
		assert.Nil(t, fairlock.LeaseFromContext(ctx))
		require.NoError(t, m.Do(ctx, func(ctx context.Context) error {
			assert.False(t, free())
			outer := fairlock.LeaseFromContext(ctx)
			assert.Equal(t, state(t, m).Fence, outer.Fence())
			assert.NoError(t, c.Mutex("y").Do(ctx, func(ctx context.Context) error {
				assert.NotSame(t, outer, fairlock.LeaseFromContext(ctx), "it is y's")
				return nil
			}))
			return ctx.Err()
		}))
		assert.True(t, free())

		boom := errors.New("boom")
		require.ErrorIs(t, m.Do(ctx, func(context.Context) error { return boom }), boom)
		assert.True(t, free())

		assert.PanicsWithValue(t, "boom", func() { _ = m.Do(ctx, func(context.Context) error { panic("boom") }) })
		assert.True(t, free(), "a panic must release the lock")

		err := m.Do(ctx, func(ctx context.Context) error {
			require.NoError(t, rdb.Del(ctx, "fairlock:{x}:lock").Err())
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), fairlock.ErrLost)
			return nil
		})
		require.ErrorIs(t, err, fairlock.ErrLost)

		dead, cancel := context.WithCancel(ctx)
		cancel()
		err = m.Do(dead, func(context.Context) error { t.Error("ran without the lock"); return nil })
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestALeasesContextEndsWithTheLeaseAndNotWithTheWait(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		m := b.client(t, fairlock.Config{}).Mutex("x")
		wait, cancelWait := context.WithCancel(context.Background())
		lease, err := m.Lock(wait)
		require.NoError(t, err)
		cancelWait()
		type key struct{}
		ctx, cancel := lease.Context(context.WithValue(context.Background(), key{}, "v"))
		defer cancel()
		require.NoError(t, ctx.Err())
		require.NoError(t, lease.Err())
		assert.Equal(t, "v", ctx.Value(key{}))
		unlock(t, lease)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), fairlock.ErrUnlocked)
		late, cancel := lease.Context(context.Background())
		defer cancel()
		require.ErrorIs(t, context.Cause(late), fairlock.ErrUnlocked)
	})
}

func TestMaxWaitersRefusesOneMore(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		m := b.client(t, fairlock.Config{MaxWaiters: 2}).Mutex("x")
		lease := lock(t, m)
		waiters := line(t, 2, func(int) fairlock.Mutex { return m })
		_, err := m.Lock(within(t, soon))
		require.ErrorIs(t, err, fairlock.ErrQueueFull)
		more := enqueue(within(t, soon), m.WithMaxWaiters(3))
		queued(t, m, 3)
		unlock(t, lease)
		for _, w := range append(waiters, more) {
			unlock(t, w.got(t))
		}
	})
}

func TestACancelledWaiterLeavesTheQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		promptly(t, func(t *testing.T) time.Duration {
			var j journal
			c := b.client(t, fairlock.Config{Trace: j.trace()})
			m := c.Mutex("x")
			lease := lock(t, m)
			ctx, cancel := context.WithCancel(context.Background())
			gone := enqueue(ctx, m)
			queued(t, m, 1)
			stays := enqueue(within(t, soon), m)
			queued(t, m, 2)
			start := time.Now()
			cancel()
			_, err := gone.result(t)
			require.ErrorIs(t, err, context.Canceled)
			var e *fairlock.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, "fairlock: lock x: context canceled", err.Error())
			queued(t, m, 1)
			assert.Equal(t, 1, j.count("left"))
			unlock(t, lease)
			unlock(t, stays.got(t))
			return gone.at.Sub(start)
		})
	})
}

func TestAWaitersCancelNeverSwallowsAGrant(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c := b.client(t, fairlock.Config{})
		m := c.Mutex("x")
		for range 100 { // the cancel meets the hand-over at another moment each time
			lease := lock(t, m)
			ctx, cancel := context.WithCancel(context.Background())
			w := enqueue(ctx, m)
			queued(t, m, 1)
			go cancel()
			unlock(t, lease)
			if l, err := w.result(t); err == nil {
				unlock(t, l)
			}
			cancel()
			start := time.Now()
			unlock(t, lock(t, m))
			require.Less(t, time.Since(start), 5*time.Second, "the lock was held by nobody")
		}
	})
}

func TestNothingIsLeftButTheFence(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const patience = 500 * time.Millisecond
		c, rdb := b.client(t, fairlock.Config{WaiterTTL: patience}), b.rdb(t)
		m := c.Mutex("x")
		lease := lock(t, m)
		waiters := line(t, 3, func(int) fairlock.Mutex { return m })
		ctx, cancel := context.WithCancel(context.Background())
		gone := enqueue(ctx, m)
		queued(t, m, 4)
		cancel()
		_, _ = gone.result(t)
		unlock(t, lease)
		for _, w := range waiters {
			unlock(t, w.got(t))
		}
		require.Eventually(t, func() bool { return len(keys(t, rdb)) == 1 }, patience+time.Second, time.Millisecond)
		assert.Equal(t, []string{"fairlock:{x}:fence"}, keys(t, rdb))
		assert.LessOrEqual(t, rdb.PTTL(context.Background(), "fairlock:{x}:fence").Val(), 24*time.Hour)
	})
}

func TestTraceTellsTheLifeOfALock(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		var j journal
		var log bytes.Buffer
		c := b.client(t, fairlock.Config{TTL: 3 * time.Second, Trace: j.trace(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		m, rdb := c.Mutex("x"), b.rdb(t)
		lease := lock(t, m)
		w := enqueue(within(t, soon), m)
		require.Eventually(t, func() bool { return j.count("subscription ok=true") == 1 }, soon, time.Millisecond)
		queued(t, m, 1)
		unlock(t, lease)
		second := w.got(t)
		require.Eventually(t, func() bool { return j.count("renewed ok=true") > 0 }, soon, time.Millisecond)
		require.NoError(t, rdb.Del(context.Background(), "fairlock:{x}:lock").Err())
		<-second.Done()
		require.NoError(t, c.Close())
		all := j.all()
		assert.Equal(t, "granted handoff=false", all[0])
		for _, e := range []string{"queued 1", "released", "granted handoff=true", "lost"} {
			assert.Contains(t, all, e)
		}
		require.Len(t, j.grants, 2)
		assert.Equal(t, "x", j.grants[1].Name)
		assert.Equal(t, j.queued[0].Ticket, j.grants[1].Ticket)
		assert.Positive(t, j.grants[1].Wait)
		assert.Equal(t, second.Fence(), j.grants[1].Fence)
		assert.Positive(t, j.lost[0].Held)
		assert.Contains(t, log.String(), "lock lost")
		assert.NotContains(t, log.String(), second.Token().Text(), "the log has the secret")
	})
}

func TestLocksOfOtherNamesAndNamespacesAreOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c, other := b.client(t, fairlock.Config{}), b.client(t, fairlock.Config{Namespace: "other"})
		var leases []*fairlock.Lease
		for i := range 3 {
			leases = append(leases, lock(t, c.Mutex(fmt.Sprint("x", i))))
		}
		leases = append(leases, lock(t, other.Mutex("x0")))
		for _, l := range leases {
			unlock(t, l)
		}
	})
}

func TestUnlockOfARobbedLeaseSaysSoToEverybody(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c, operator := b.client(t, fairlock.Config{}), b.client(t, fairlock.Config{})
		for range 20 {
			lease := lock(t, c.Mutex("x"))
			held, err := operator.Mutex("x").ForceRelease(context.Background())
			require.NoError(t, err)
			require.True(t, held)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := lease.Unlock(context.Background()); !errors.Is(err, fairlock.ErrTaken) {
						t.Errorf("robbed, and Unlock says %v", err)
					}
				})
			}
			wg.Wait()
		}
	})
}

func TestTheZeroMutexIsNoLock(t *testing.T) {
	_, err := fairlock.Mutex{}.Lock(context.Background())
	require.ErrorIs(t, err, fairlock.ErrInvalid)
	_, err = fairlock.Mutex{}.Inspect(context.Background())
	require.ErrorIs(t, err, fairlock.ErrInvalid)
}
