package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

const fenceKey = "fairlock:{x}:fence"

// heldUntil is when the lock ends in Redis by itself, in this process's time; it errs on the late side.
func heldUntil(t testing.TB, rdb *redis.Client) time.Time {
	t.Helper()
	left, err := rdb.PTTL(context.Background(), "fairlock:{x}:lock").Result()
	require.NoError(t, err)
	require.Positive(t, left)
	return time.Now().Add(left)
}

func TestTheHolderKnowsBeforeTheServersTTLEnds(t *testing.T) {
	const ttl = 3 * time.Second // its margin, 32 ms, is more than a busy machine mostly keeps a timer waiting
	for name, fail := range map[string]func(*redistest.Server, *redistest.Link){
		"redis hangs":   func(s *redistest.Server, _ *redistest.Link) { s.Pause() },
		"link hangs":    func(_ *redistest.Server, l *redistest.Link) { l.Hang() },
		"link is cut":   func(_ *redistest.Server, l *redistest.Link) { l.Cut() },
		"redis crashes": func(s *redistest.Server, _ *redistest.Link) { s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			thrice(t, func(t *testing.T) bool {
				s := redistest.Start(t)
				c, link := linked(t, s, fairlock.Config{TTL: ttl})
				lease := lock(t, c.Mutex("x"))
				require.NoError(t, lease.Renew(context.Background()))
				until := heldUntil(t, s.Client())
				fail(s, link)
				select {
				case <-lease.Done():
				case <-time.After(soon):
					t.Fatal("never told")
				}
				late := time.Since(until)
				t.Logf("told %v late", late)
				require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
				require.ErrorIs(t, lease.Err(), fairlock.ErrUnreachable)
				require.ErrorIs(t, lease.Unlock(context.Background()), fairlock.ErrLost)
				if s.Running() {
					s.Continue()
				}
				link.Mend()
				return late < 0
			})
		})
	}
}

func TestALostReplyChangesNothing(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client()
	ctx := context.Background()
	fence := func() uint64 {
		f, err := rdb.Get(ctx, fenceKey).Uint64()
		require.NoError(t, err)
		return f
	}
	setup := func(t *testing.T) (fairlock.Mutex, fairlock.Mutex, *redistest.Link, *journal) {
		require.NoError(t, rdb.FlushAll(ctx).Err())
		var j journal
		c, link := linked(t, s, fairlock.Config{Trace: j.trace()})
		unlock(t, lock(t, c.Mutex("warm"))) // connections and scripts are there
		return c.Mutex("x"), newClient(t, rdb, fairlock.Config{}).Mutex("x"), link, &j
	}
	t.Run("acquire", func(t *testing.T) {
		m, _, link, j := setup(t)
		link.LoseReplies(1)
		lease := lock(t, m)
		require.Equal(t, 1, link.Lost())
		assert.Equal(t, lease.Fence(), fence(), "one fence step")
		unlock(t, lease)
		assert.Equal(t, 1, j.count("granted handoff=false")-1)
		assert.Zero(t, rdb.Exists(ctx, "fairlock:{x}:lock").Val())
	})
	t.Run("acquire, queued", func(t *testing.T) {
		m, other, link, _ := setup(t)
		first := lock(t, other)
		link.LoseReplies(1)
		w := enqueue(within(t, soon), m)
		queued(t, other, 1)
		require.Eventually(t, func() bool { return link.Lost() == 1 }, soon, time.Millisecond)
		before := fence()
		unlock(t, first)
		lease := w.got(t)
		assert.Equal(t, lease.Fence(), fence())
		assert.Greater(t, lease.Fence(), before)
		unlock(t, lease)
		queued(t, other, 0)
	})
	t.Run("renew", func(t *testing.T) {
		m, _, link, j := setup(t)
		lease := lock(t, m)
		link.LoseReplies(1)
		require.NoError(t, lease.Renew(ctx))
		require.Equal(t, 1, link.Lost())
		require.NoError(t, lease.Err())
		assert.Zero(t, j.count("lost"))
		unlock(t, lease)
	})
	t.Run("release", func(t *testing.T) {
		m, other, link, j := setup(t)
		lease := lock(t, m)
		w := enqueue(within(t, soon), other)
		queued(t, other, 1)
		link.LoseReplies(1)
		require.NoError(t, lease.Unlock(ctx), "released is released")
		require.Equal(t, 1, link.Lost())
		assert.Zero(t, j.count("lost"))
		assert.Equal(t, 2, j.count("released"))
		next := w.got(t)
		assert.Equal(t, next.Fence(), fence(), "one fence step")
		unlock(t, next)
	})
	t.Run("every reply to release", func(t *testing.T) {
		m, other, link, _ := setup(t)
		lease := lock(t, m)
		link.LoseReplies(1000)
		unlocked := make(chan error, 1)
		go func() { unlocked <- lease.Unlock(ctx) }()
		require.Eventually(t, func() bool { return link.Lost() > 8 }, soon, time.Millisecond) // more than go-redis sends by itself
		link.Mend()
		require.NoError(t, <-unlocked)
		unlock(t, lock(t, other))
	})
	t.Run("leave", func(t *testing.T) {
		m, other, link, _ := setup(t)
		first := lock(t, other)
		wait, cancel := context.WithCancel(ctx)
		w := enqueue(wait, m)
		queued(t, other, 1)
		link.LoseReplies(1)
		cancel()
		_, err := w.result(t)
		require.ErrorIs(t, err, context.Canceled)
		queued(t, other, 0)
		unlock(t, first)
		assert.Zero(t, rdb.Exists(ctx, "fairlock:{x}:lock").Val())
	})
}

func TestLockReturnsWithItsContextThoughRedisHangs(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client()
	holder := newClient(t, s.Client(), fairlock.Config{})
	for _, how := range []string{"free", "held", "waiting"} {
		attempt := func(t *testing.T) time.Duration {
			c, _ := linked(t, s, fairlock.Config{WaiterTTL: time.Second})
			m := c.Mutex("x")
			var lease *fairlock.Lease
			if how != "free" {
				lease = lock(t, holder.Mutex("x"))
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var w *waiting
			if how == "waiting" {
				w = enqueue(ctx, m)
				queued(t, holder.Mutex("x"), 1)
				s.Pause()
			} else {
				unlock(t, lock(t, c.Mutex("warm")))
				s.Pause()
				w = enqueue(ctx, m)
			}
			time.Sleep(250 * time.Millisecond) // it is under way, whatever it does
			start := time.Now()
			cancel()
			_, err := w.result(t)
			require.ErrorIs(t, err, context.Canceled)
			s.Continue()
			if lease != nil {
				unlock(t, lease)
			}
			require.Eventually(t, func() bool {
				n, err := rdb.Exists(context.Background(), "fairlock:{x}:lock", "fairlock:{x}:queue", "fairlock:{x}:alive").Result()
				return err == nil && n == 0
			}, soon, time.Millisecond, "something was left behind")
			again := lock(t, holder.Mutex("x"))
			unlock(t, again)
			return w.at.Sub(start)
		}
		t.Run(how, func(t *testing.T) { promptly(t, attempt) })
	}
}

func TestTryLockGivesBackWhatItDidNotHearOf(t *testing.T) {
	promptly(t, func(t *testing.T) time.Duration {
		s := redistest.Start(t)
		c, _ := linked(t, s, fairlock.Config{})
		unlock(t, lock(t, c.Mutex("warm")))
		s.Pause()
		ctx := within(t, 200*time.Millisecond)
		_, err := c.Mutex("x").TryLock(ctx)
		end, _ := ctx.Deadline()
		late := time.Since(end)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.Continue()
		rdb := s.Client()
		require.Eventually(t, func() bool {
			n, err := rdb.Exists(context.Background(), fenceKey, "fairlock:{x}:lock").Result()
			return err == nil && n == 1 // it was granted, and given back
		}, soon, time.Millisecond)
		return late
	})
}

func TestAnAcquireThatArrivesAfterItsReleaseIsRefused(t *testing.T) {
	// The first acquire is stuck on a connection that hangs, the second gets through; the first arrives at last.
	s := redistest.Start(t)
	c, link := linked(t, s, fairlock.Config{})
	unlock(t, lock(t, c.Mutex("warm")))
	link.Freeze()
	lease := lock(t, c.Mutex("x"))
	unlock(t, lease)
	link.Mend() // what was sent on the hung connection arrives now
	rdb := s.Client()
	other := newClient(t, rdb, fairlock.Config{})
	for range 50 {
		l, err := other.Mutex("x").TryLock(within(t, soon))
		require.NoError(t, err, "the lock is held by nobody")
		unlock(t, l)
		time.Sleep(time.Millisecond)
	}
}

// Unlock tries until the lease would have ended, and no longer.
func TestUnlock_TriesUntilTheLeaseWouldHaveEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, link := linkedFor(t, s, soon, fairlock.Config{TTL: time.Second}) // for longer than the lease
	lease := lock(t, c.Mutex("x"))
	s.Pause()
	err := lease.Unlock(context.Background())
	require.ErrorIs(t, err, fairlock.ErrUnreachable)
	require.NotErrorIs(t, err, fairlock.ErrLost, "nobody knows")
	assert.True(t, time.Now().Before(lease.Deadline().Add(1500*time.Millisecond)))
	s.Continue()

	lease = lock(t, c.Mutex("y").WithTTL(time.Minute))
	link.Cut()
	unlocked := make(chan error, 1)
	go func() { unlocked <- lease.Unlock(context.Background()) }()
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
	link.Mend()
	require.NoError(t, <-unlocked)
	assert.Zero(t, s.Client().Exists(context.Background(), "fairlock:{y}:lock").Val())
}

func TestAWaiterDroppedWronglyComesBackToItsPlace(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const patience = 3 * time.Second
	holder := newClient(t, s.Client(), fairlock.Config{WaiterTTL: patience})
	c, link := linked(t, s, fairlock.Config{WaiterTTL: patience})
	m := holder.Mutex("x")
	first := lock(t, m)
	var order []string
	cut := enqueue(within(t, soon), c.Mutex("x"))
	queued(t, m, 1)
	second := enqueue(within(t, soon), m)
	queued(t, m, 2)
	third := enqueue(within(t, soon), m)
	queued(t, m, 3)
	link.Cut()
	require.Eventually(t, func() bool {
		st, err := m.Inspect(context.Background())
		return err == nil && st.Waiting == 3 && st.Waiters[0].TTL < 0
	}, soon, time.Millisecond)
	unlock(t, first) // drops the one that is cut off, and hands over to the second
	lease := second.got(t)
	order = append(order, "second")
	assert.True(t, cut.pending(), "a waiter whose ctx has time got an error")
	link.Mend()
	require.Eventually(t, func() bool {
		st, err := m.Inspect(context.Background())
		return err == nil && st.Waiting == 2 && st.Waiters[0].Client == c.Name()
	}, soon, time.Millisecond, "it did not come back to its place")
	unlock(t, lease)
	lease = cut.got(t)
	order = append(order, "cut")
	assert.True(t, third.pending())
	unlock(t, lease)
	unlock(t, third.got(t))
	assert.Equal(t, []string{"second", "cut"}, order)
}

func TestLostDataBreaksNeitherOrderNorExclusion(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redistest.Server){
		"flushed":   func(s *redistest.Server) { s.Client().FlushAll(context.Background()) },
		"restarted": func(s *redistest.Server) { s.Kill(); s.Run() },
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			t.Parallel()
			const ttl = 3 * time.Second // see TestNoErrorReachesAWaiterWhoseContextHasTime
			var j journal
			cfg := fairlock.Config{TTL: ttl, WaiterTTL: ttl, Trace: j.trace()}
			a, b := newClient(t, s.Client(), cfg), newClient(t, s.Client(), cfg)
			lease := lock(t, a.Mutex("x"))
			waiters := line(t, 6, func(i int) fairlock.Mutex { return []*fairlock.Client{a, b}[i%2].Mutex("x") })
			rested := make(chan time.Time, 1) // until when
			go func() {
				for {
					asked := time.Now()
					st, err := b.Mutex("x").Inspect(context.Background())
					if err == nil && st.Quarantined {
						rested <- asked.Add(st.Holder.TTL - time.Millisecond)
						return
					}
					if errors.Is(err, fairlock.ErrClosed) {
						return
					}
				}
			}()
			lose(s)
			<-lease.Done()
			require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
			told := time.Now()
			for i, w := range waiters {
				next := w.got(t)
				assert.True(t, w.at.After(told), "the next one was in before the old holder was told")
				assert.Greater(t, next.Fence(), lease.Fence())
				for _, later := range waiters[i+1:] {
					assert.True(t, later.pending(), "the order changed")
				}
				unlock(t, next)
			}
			assert.True(t, waiters[0].at.After(<-rested), "the lock rests for one TTL")
		})
	}
}

func TestALostMessageCostsOneBeatAndNotTheOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const patience = 3 * time.Second
	var j journal
	holder := newClient(t, s.Client(), fairlock.Config{})
	c, link := linked(t, s, fairlock.Config{WaiterTTL: patience, Trace: j.trace()})
	m := holder.Mutex("x")
	first := lock(t, m)
	waiters := line(t, 3, func(int) fairlock.Mutex { return c.Mutex("x") })
	require.Eventually(t, func() bool { return j.count("subscription ok=true") == 1 }, soon, time.Millisecond)
	time.Sleep(1100 * time.Millisecond) // the subscription is beyond doubt
	link.DropNotifications()
	start := time.Now()
	unlock(t, first)
	lease := waiters[0].got(t)
	assert.Less(t, time.Since(start), patience/3+900*time.Millisecond)
	assert.Equal(t, 1, j.count("notification lost"))
	assert.True(t, waiters[1].pending() && waiters[2].pending())
	// The deaf connection was given up; once the network is well the next message arrives.
	require.Eventually(t, func() bool { return j.count("subscription ok=false") >= 1 }, soon, time.Millisecond)
	link.Mend()
	link.Break()
	require.Eventually(t, func() bool { return j.count("subscription ok=true") >= 2 }, soon, time.Millisecond)
	unlock(t, lease)
	for _, w := range waiters[1:] {
		unlock(t, w.got(t))
	}
}

func TestAReleaserWakesAWaiterOfItsOwnClientThoughItHearsNothing(t *testing.T) {
	s := redistest.Start(t)
	c, link := linked(t, s, fairlock.Config{TTL: time.Minute, WaiterTTL: time.Minute})
	link.DropNotifications()
	lease := lock(t, c.Mutex("x"))
	w := enqueue(within(t, soon), c.Mutex("x"))
	queued(t, c.Mutex("x"), 1)
	start := time.Now()
	unlock(t, lease)
	unlock(t, w.got(t))
	assert.Less(t, w.at.Sub(start), 5*time.Second, "a beat found it")
}

func TestNoErrorReachesAWaiterWhoseContextHasTime(t *testing.T) {
	t.Parallel()
	aof := []string{"--appendonly", "yes", "--appendfsync", "always"}
	for name, f := range map[string]struct {
		args []string
		fail func(t *testing.T, s *redistest.Server)
	}{
		"client kill": {nil, func(t *testing.T, s *redistest.Server) {
			ctx, rdb := context.Background(), s.Client()
			for _, kind := range []string{"normal", "pubsub"} {
				require.NoError(t, rdb.ClientKillByFilter(ctx, "type", kind, "skipme", "yes").Err())
			}
		}},
		"script flush": {nil, func(t *testing.T, s *redistest.Server) {
			require.NoError(t, s.Client().ScriptFlush(context.Background()).Err())
		}},
		"restart, empty":      {nil, func(_ *testing.T, s *redistest.Server) { s.Kill(); s.Run() }},
		"restart, persistent": {aof, func(_ *testing.T, s *redistest.Server) { s.Shutdown(); s.Run() }},
		"pause":               {nil, func(_ *testing.T, s *redistest.Server) { s.Pause(); time.Sleep(400 * time.Millisecond); s.Continue() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, f.args...)
			// A lock whose data were lost rests for one TTL: long enough for all to come back, on a busy machine too,
			// where go-redis takes a second to believe in a server again.
			cfg := fairlock.Config{TTL: 4 * time.Second, WaiterTTL: 4 * time.Second}
			a, b := newClient(t, s.Client(), cfg), newClient(t, s.Client(), cfg)
			lease := lock(t, a.Mutex("x"))
			waiters := line(t, 5, func(i int) fairlock.Mutex { return []*fairlock.Client{a, b}[i%2].Mutex("x") })
			f.fail(t, s)
			_ = lease.Unlock(context.Background()) // lost where the data were
			for i, w := range waiters {
				next := w.got(t)
				for _, later := range waiters[i+1:] {
					assert.True(t, later.pending(), "the order changed")
				}
				unlock(t, next)
			}
		})
	}
}

func TestAnUnansweredReleaseIsNotARobbery(t *testing.T) {
	// Between the lost reply and the resend another one takes the lock: ours is released, his is untouched.
	s := redistest.Start(t)
	c, link := linked(t, s, fairlock.Config{})
	other := newClient(t, s.Client(), fairlock.Config{})
	unlock(t, lock(t, c.Mutex("warm")))
	lease := lock(t, c.Mutex("x"))
	w := enqueue(within(t, soon), other.Mutex("x"))
	queued(t, other.Mutex("x"), 1)
	link.LoseReplies(2)
	require.NoError(t, lease.Unlock(context.Background()))
	next := w.got(t)
	require.NoError(t, next.Renew(context.Background()))
	unlock(t, next)
}

func TestCloseReturnsEverybodyAndEverything(t *testing.T) {
	for _, how := range []string{"healthy", "hung"} {
		t.Run(how, func(t *testing.T) {
			s := redistest.Start(t)
			observer := s.Client()
			require.NoError(t, observer.Ping(context.Background()).Err())
			before := redistest.Info(t, observer, "clients", "connected_clients")
			none := goleak.IgnoreCurrent()
			rdb := redis.NewClient(&redis.Options{Network: s.Network(), Addr: s.Addr(), ReadTimeout: 10 * time.Second})
			c, err := fairlock.New(rdb, fairlock.Config{})
			require.NoError(t, err)
			m := c.Mutex("x")
			lease := lock(t, m)
			waiters := line(t, 20, func(int) fairlock.Mutex { return m })
			if how == "hung" {
				s.Pause()
			}
			start := time.Now()
			closed := make(chan error, 1)
			go func() { closed <- c.Close() }()
			for _, w := range waiters {
				_, err := w.result(t)
				require.ErrorIs(t, err, fairlock.ErrClosed)
				assert.Less(t, w.at.Sub(start), 5*time.Second)
			}
			<-lease.Done()
			require.ErrorIs(t, lease.Err(), fairlock.ErrClosed)
			if how == "hung" {
				s.Continue()
			}
			require.NoError(t, <-closed)
			require.NoError(t, c.Close())
			_, err = m.Lock(within(t, soon))
			require.ErrorIs(t, err, fairlock.ErrClosed)
			_, err = m.Inspect(context.Background())
			require.ErrorIs(t, err, fairlock.ErrClosed)
			require.Error(t, lease.Unlock(context.Background()))
			require.NoError(t, rdb.Close())
			goleak.VerifyNone(t, none)
			require.Eventually(t, func() bool {
				return redistest.Info(t, observer, "clients", "connected_clients") == before
			}, soon, time.Millisecond)
			if how == "healthy" {
				n, err := observer.ZCard(context.Background(), "fairlock:{x}:queue").Result()
				require.NoError(t, err)
				assert.Zero(t, n, "waiters left places behind")
			}
		})
	}
}

func TestALongQueueKeepsItsPlacesByBeats(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const patience = 1500 * time.Millisecond
	cfg := fairlock.Config{WaiterTTL: patience}
	c := newClient(t, s.Client(), cfg)
	m := c.Mutex("x")
	lease := lock(t, m)
	waiters := line(t, 30, func(int) fairlock.Mutex { return m })
	rdb := s.Client()
	before := calls(t, rdb, "evalsha")
	start := time.Now()
	time.Sleep(2 * patience) // silence would have cost them their places twice over
	beats := calls(t, rdb, "evalsha") - before
	assert.LessOrEqual(t, beats, int(time.Since(start)/(patience/3))+2, "one beat for all waiters of a client")
	st, err := m.Inspect(context.Background())
	require.NoError(t, err)
	for _, w := range st.Waiters {
		assert.Positive(t, w.TTL)
	}
	unlock(t, lease)
	for i, w := range waiters {
		next := w.got(t)
		for _, later := range waiters[i+1:] {
			require.True(t, later.pending())
		}
		unlock(t, next)
	}
}

// calls is how often the server was sent a command.
func calls(t testing.TB, rdb *redis.Client, command string) int {
	t.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	_, rest, ok := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !ok {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(digits)
	require.NoError(t, err)
	return n
}

func TestAHungConnectionCostsNeitherTheLeaseNorThePlace(t *testing.T) {
	// Only what is in flight hangs; new connections work. A renewal and a beat that hang are overtaken by the next.
	t.Parallel()
	const ttl = 2100 * time.Millisecond
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	// Two connections are idle when all hang, for a renewal and a beat; go-redis gives them up too late.
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), ReadTimeout: soon, MaxIdleConns: 2})
	t.Cleanup(func() { _ = rdb.Close() })
	c, j := attentive(t, rdb, fairlock.Config{TTL: ttl, WaiterTTL: ttl})
	lease := lock(t, c.Mutex("x"))
	w := enqueue(within(t, soon), c.Mutex("x"))
	// It has heard that it waits, as attentive's waiter did.
	require.Eventually(t, func() bool { return j.count("queued 1") == 2 }, soon, time.Millisecond)
	link.Freeze()
	time.Sleep(2*ttl + ttl/7)
	require.NoError(t, lease.Err())
	st, err := newClient(t, s.Client(), fairlock.Config{}).Mutex("x").Inspect(context.Background())
	require.NoError(t, err)
	require.Equal(t, 1, st.Waiting)
	assert.Positive(t, st.Waiters[0].TTL)
	unlock(t, lease)
	unlock(t, w.got(t))
	link.Mend()
}

func TestManyLeasesManyNames(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := newClient(t, s.Client(), fairlock.Config{TTL: 4 * time.Second})
	var leases []*fairlock.Lease
	for i := range 300 {
		leases = append(leases, lock(t, c.Mutex(fmt.Sprint(i))))
	}
	time.Sleep(5 * time.Second) // longer than a TTL
	for _, l := range leases {
		require.NoError(t, l.Err())
		unlock(t, l)
	}
}
