package fairlock_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// stall holds up the first two scripts or pipelines of them that a go-redis client sends, and counts.
type stall struct {
	free chan struct{} // closed to let them go

	mu      sync.Mutex
	stuck   int // guarded by mu: held up so far
	deepest int // guarded by mu: the most commands in one pipeline
}

func (s *stall) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.pass(cmd)
		return next(ctx, cmd)
	}
}

func (s *stall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.pass(cmds...)
		return next(ctx, cmds)
	}
}

func (s *stall) pass(cmds ...redis.Cmder) {
	if cmds[0].Name() != "evalsha" {
		return
	}
	s.mu.Lock()
	s.deepest = max(s.deepest, len(cmds))
	hold := s.stuck < 2
	if hold {
		s.stuck++
	}
	s.mu.Unlock()
	if hold {
		<-s.free
	}
}

func (s *stall) count() (stuck, deepest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck, s.deepest
}

// Calls that come while others are under way go together. If those others do not come back, the rest does not wait
// for them: here they come back only after all others are done.
func TestCallsGoTogetherAndNotBehindOnesThatHang(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		rdb := b.rdb(t)
		c := newClient(t, rdb, fairlock.Config{})
		unlock(t, lock(t, c.Mutex("warm")))
		s := &stall{free: make(chan struct{})}
		rdb.AddHook(s)
		ctx := within(t, 3*soon)
		var name atomic.Int64
		pair := func() {
			lease, err := c.Mutex(strconv.FormatInt(name.Add(1), 10)).Lock(ctx)
			if assert.NoError(t, err) {
				assert.NoError(t, lease.Unlock(context.Background()))
			}
		}
		var held, others sync.WaitGroup
		for stuck := range 2 { // until so many are held up, and with them any number of callers
			for range 20 {
				held.Go(func() {
					for n := stuck; n == stuck && ctx.Err() == nil; n, _ = s.count() {
						pair()
					}
				})
			}
			require.Eventually(t, func() bool { n, _ := s.count(); return n > stuck }, soon, time.Millisecond)
		}
		for range 40 {
			others.Go(pair)
		}
		others.Wait()
		close(s.free)
		held.Wait()
		_, deepest := s.count()
		assert.Greater(t, deepest, 1)
		assert.LessOrEqual(t, deepest, 256)
		left, err := rdb.Keys(context.Background(), "*:lock").Result()
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

// What Redis says when it refuses a connection reaches all whose calls should have gone over it.
func TestARefusedConnectionIsNoStrangeReply(t *testing.T) {
	options := redistest.Start(t).Options()
	options.CredentialsProvider = func() (string, string) { return "nobody", "wrong" }
	options.MaxRetries = -1
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	c := newClient(t, rdb, fairlock.Config{})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			_, err := c.Mutex(strconv.Itoa(i)).TryLock(within(t, soon))
			assert.True(t, err != nil && strings.Contains(err.Error(), "WRONGPASS") && !errors.Is(err, lua.ErrReply), err)
		})
	}
	all.Wait()
}

func TestCloseDoesNotTryForEachWaiterIfRedisHangs(t *testing.T) {
	const waiters, timeout = 40, time.Second
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), ReadTimeout: timeout, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	c, other := newClient(t, rdb, fairlock.Config{}), newClient(t, s.Client(), fairlock.Config{})
	lock(t, other.Mutex("x"))
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			_, err := c.Mutex("x").Lock(within(t, 3*soon))
			assert.ErrorIs(t, err, fairlock.ErrClosed)
		})
	}
	queued(t, other.Mutex("x"), waiters)
	link.Hang()
	start := time.Now()
	require.NoError(t, c.Close())
	assert.Less(t, time.Since(start), waiters*timeout/2)
	all.Wait()
	link.Mend()
}

// slow is a connection on which every answer takes a while, but no longer than its deadline.
type slow struct {
	net.Conn
	by  time.Duration
	end atomic.Int64 // Unix ns; 0: none
}

func (s *slow) Read(b []byte) (int, error) {
	d := s.by
	if end := s.end.Load(); end != 0 {
		d = min(d, time.Until(time.Unix(0, end)))
	}
	time.Sleep(d) // that is how slow it is
	return s.Conn.Read(b)
}

func (s *slow) SetReadDeadline(t time.Time) error {
	s.end.Store(0)
	if !t.IsZero() {
		s.end.Store(t.UnixNano())
	}
	return s.Conn.SetReadDeadline(t)
}

func (s *slow) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

func slowly(t *testing.T, s *redistest.Server, by time.Duration, cfg fairlock.Config) *fairlock.Client {
	t.Helper()
	options := s.Options()
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, s.Network(), s.Addr())
		return &slow{Conn: conn, by: by}, err
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return newClient(t, rdb, cfg)
}

// A new connection takes several round trips before the first command.
func TestLockReturnsWithItsContextThoughConnectingIsSlow(t *testing.T) {
	s := redistest.Start(t)
	best := time.Hour // of some, for the machine may be slow, too
	for range 5 {
		ctx := within(t, 5*time.Millisecond)
		_, err := slowly(t, s, 40*time.Millisecond, fairlock.Config{}).Mutex("x").Lock(ctx)
		end, _ := ctx.Deadline()
		best = min(best, time.Since(end))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	assert.Less(t, best, 100*time.Millisecond)
}

// A notification is not lost if its waiter has received it and its request is under way.
func TestAWaiterThatAsksHasNotLostItsNotification(t *testing.T) {
	const readers = 200
	thrice(t, func(t *testing.T) bool { // a message may really be late
		s := redistest.Start(t)
		var events journal
		c := slowly(t, s, 20*time.Millisecond, fairlock.Config{
			NoRenewal: true, TTL: soon, WaiterTTL: 300 * time.Millisecond, Trace: events.trace(),
		})
		other := newClient(t, s.Client(), fairlock.Config{})
		write, err := other.RWMutex("x").Lock(within(t, soon))
		require.NoError(t, err)
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				lease, err := c.RWMutex("x").RLock(within(t, 3*soon))
				if assert.NoError(t, err) {
					assert.NoError(t, lease.Unlock(context.Background()))
				}
			})
		}
		require.Eventually(t, func() bool {
			s, err := other.RWMutex("x").Inspect(context.Background())
			return err == nil && s.Waiting == readers
		}, soon, time.Millisecond)
		time.Sleep(1200 * time.Millisecond) // a subscription that is younger is not blamed
		require.NoError(t, write.Unlock(context.Background()))
		all.Wait()
		lost, broken := events.count("notification lost"), events.count("subscription ok=false")
		t.Logf("%d notifications lost, %d subscriptions given up", lost, broken)
		return lost == 0 && broken == 0
	})
}
