package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// assertOneOutage fails the test unless an outage has been logged when it began and when it was over, and nothing else.
func assertOneOutage(t *testing.T, lines []string, request string) {
	t.Helper()
	if assert.Len(t, lines, 2, strings.Join(lines, "")) {
		assert.Contains(t, lines[0], `level=WARN msg="outage begins: Redis does not serve this client" request=`+request)
		assert.Contains(t, lines[1], `level=INFO msg="outage is over: Redis serves this client again" lasted=`)
	}
}

// An outage is logged when it begins and when it is over, and Stats tells of it meanwhile: of a client that is idle but for
// its subscription, and of one that has leases and waiters, whose renewals and heartbeats fail.
//
//fairlock:fault Redis is down for a while: the log has one line when that begins and one when it is over, however many renewals and heartbeats fail
func TestOutage_IsLoggedOnce(t *testing.T) {
	bubbles(t, map[string]int{"idle": 0, "busy": 10}, func(t *testing.T, s *fairlocktest.Server, name string, locks int) {
		var log logged
		client := s.Client(fairlock.Config{TTL: time.Minute, Logger: log.logger()})
		listen(t, client)
		for i := range locks {
			hold(t, client.Mutex(fmt.Sprint("held", i)).Lock)
			s.Mutex(fmt.Sprint("waits", i)).HoldAs("holder")
			begin(t.Context(), client.Mutex(fmt.Sprint("waits", i)).Lock)
		}
		pass(15 * time.Second) // some seconds before the next renewals
		assert.Equal(t, fairlock.Stats{Leases: locks, Waiters: locks}, client.Stats())
		for i := range 2 {
			began := time.Now()
			s.Stop()
			pass(20 * time.Second)
			since := client.Stats().OutageSince
			assert.False(t, since.Before(began) || since.After(began.Add(interval)), since)
			s.Start()
			pass(10 * time.Second)
			assert.Zero(t, client.Stats().OutageSince)
			assertOneOutage(t, log.lines[2*i:], map[bool]string{true: "subscription", false: ""}[locks == 0])
		}
		require.NoError(t, client.Close())
		assert.Zero(t, client.Stats())
	})
}

// errCut is an error of a connection.
var errCut = errors.New("connection refused")

// While requests for one lock fail and others succeed, as when a master of a Cluster is away, there is one outage. It is also
// over if the lock is not used any more.
//
//fairlock:fault Redis is down for a while
func TestOutage_OfOneLock(t *testing.T) {
	bubbles(t, map[string]bool{"it comes back": false, "it is not used any more": true}, func(t *testing.T, s *fairlocktest.Server, _ string, lost bool) {
		var log logged
		client := s.Client(fairlock.Config{TTL: 30 * time.Second, Logger: log.logger()})
		var away atomic.Bool
		record(client).before = func(_ int, cmd redis.Cmder) error {
			if away.Load() && (lockOf(cmd) == "away" || lockOf(cmd) == "away too" && verbOf(cmd) == "heartbeat") {
				return errCut
			}
			return nil
		}
		lease := hold(t, client.Mutex("away").Lock)
		s.Mutex("well").HoldAs("holder")
		begin(t.Context(), client.Mutex("well").Lock) // with a heartbeat in each second
		s.Mutex("away too").HoldAs("holder")
		ctx, leaves := context.WithCancel(t.Context())
		begin(ctx, client.Mutex("away too").Lock)
		away.Store(true)
		pass(25 * time.Second)
		require.Len(t, log.lines, 1)
		assert.NotZero(t, client.Stats().OutageSince)
		if lost {
			leaves()
			<-lease.Done()
		} else {
			away.Store(false)
		}
		pass(5 * time.Second)
		lines := slices.DeleteFunc(slices.Clone(log.lines), func(line string) bool { return lost && strings.Contains(line, "lock lost") })
		assertOneOutage(t, lines, "heartbeat lock=\"away too\" err=\"connection refused\"")
		leaves()
		assert.Zero(t, client.Stats().OutageSince)
	})
}

// A request that hangs is no outage if one that was sent later has succeeded. Neither is a ctx of Renew that ends, or a
// heartbeat that Close ends.
func TestOutage_NoneWhileOthersSucceed(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var log logged
		client := clientWith(t, s, fairlock.Config{Logger: log.logger(), TTL: time.Minute}, sendOnce)
		over := make(chan struct{})
		var hung sync.Map
		record(client).before = func(_ int, cmd redis.Cmder) error {
			verb := verbOf(cmd)
			if _, again := hung.LoadOrStore(verb, true); again || verb != "renew" && verb != "heartbeat" {
				return nil
			}
			<-over
			return errCut
		}
		lease := hold(t, client.Mutex("x").Lock)
		s.Mutex("y").HoldAs("holder")
		begin(t.Context(), client.Mutex("y").Lock)
		pass(40 * time.Second) // the first heartbeat and the first renewal hang, the second succeed
		close(over)
		client.Link.Hang()
		ctx, cancel := context.WithTimeout(t.Context(), interval)
		defer cancel()
		require.ErrorIs(t, lease.Renew(ctx), context.DeadlineExceeded)
		end := begin(t.Context(), func(context.Context) (*fairlock.Lease, error) { return nil, client.Close() })
		client.Link.Mend()
		<-end.done
		synctest.Wait()
		assert.Empty(t, log.lines)
	})
}

// A subscription that Redis refuses is requested again once a second, and logged once. It is no outage.
func TestOutage_SubscriptionIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var log logged
		var j journal
		rdb := s.Link().Redis()
		client, err := fairlock.New(refusing{rdb}, fairlock.Config{Logger: log.logger(), Trace: j.trace()})
		require.NoError(t, err)
		defer client.Close()
		listen(t, &fairlocktest.Client{Client: client})
		pass(time.Minute)
		require.Len(t, log.lines, 1)
		assert.Len(t, j.of("subscription broke"), 1+60)
		assert.Contains(t, log.lines[0], "Redis refuses the subscription; heartbeats replace notifications")
		assert.Zero(t, client.Stats().OutageSince)
		s.Stop()
		pass(time.Minute)
		s.Start()
		pass(5 * time.Second)
		_, err = client.Mutex("x").TryLock(t.Context())
		require.NoError(t, err)
		assertOneOutage(t, log.lines[1:], "subscription")
	})
}

// refusing is a client whose subscriptions Redis refuses: they need a user that it does not know.
type refusing struct{ *redis.Client }

func (r refusing) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	o := *r.Options()
	o.Username, o.Password = "nobody", "wrong"
	return redis.NewClient(&o).Subscribe(ctx, channels...)
}

// If all connections of the pool are in use, the log says so before the lease is lost, and so does the reason of its loss:
// when go-redis has not given up yet, and when it has. A hook does what the pool does: in a bubble nobody can wait for that.
//
//fairlock:fault The connection pool is full: a warning says so before the lease is lost, and the reason of the loss
func TestOutage_FullPool(t *testing.T) {
	bubbles(t, map[string]bool{"it waits": true, "it has given up": false}, func(t *testing.T, s *fairlocktest.Server, _ string, waits bool) {
		var log logged
		client := clientWith(t, s, fairlock.Config{Logger: log.logger()}, func(o *redis.Options) { o.PoolSize = 2 })
		over := make(chan struct{})
		record(client).before = func(_ int, cmd redis.Cmder) error {
			if verbOf(cmd) != "renew" {
				return nil
			}
			if waits {
				<-over
			}
			return errors.New("redis: connection pool timeout")
		}
		lease := hold(t, client.Mutex("x").Lock)
		for range 2 {
			conn := client.Redis.Conn()
			require.NoError(t, conn.Ping(t.Context()).Err())
			defer func() { assert.NoError(t, conn.Close()) }()
		}
		deadline := lease.Deadline()
		<-lease.Done()
		synctest.Wait()
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnreachable)
		require.ErrorContains(t, lease.Err(), "the connection pool of the Redis client is full: ")
		require.Len(t, log.lines, 2)
		assert.True(t, log.at[0].Before(deadline))
		assert.Contains(t, log.lines[0], `level=WARN msg="outage begins: Redis does not serve this client" request=renewal lock=x err="the connection pool of the Redis client is full: `)
		assert.Contains(t, log.lines[1], "lock lost")
		close(over)
	})
}

// A loss is blamed on Redis only if a renewal was sent while a sixth of the lease was left, and the process found the end of the
// lease within the safety margin. Else the process had no CPU: renewals that it sent too late have no reply either.
//
//fairlock:fault A process without CPU loses a lease: the reason is ErrExpired, and not ErrUnreachable
func TestLease_ReasonOfALoss(t *testing.T) {
	const length = ttl - ttl/100 - 2*time.Millisecond // that is trusted
	type example struct {
		from, to time.Duration // the process is paused, since the grant
		want     error
	}
	cases := map[string]example{
		"renewed with a sixth left":    {0, length - length/6, fairlock.ErrUnreachable},
		"renewed later":                {0, length - length/6 + 1, fairlock.ErrExpired},
		"found within the margin":      {length / 2, length + ttl/100 + 2*time.Millisecond, fairlock.ErrUnreachable},
		"found later":                  {length / 2, length + ttl/100 + 2*time.Millisecond + 1, fairlock.ErrExpired},
		"no renewal was sent":          {0, 2 * length, fairlock.ErrExpired},
		"the process was never paused": {0, 0, fairlock.ErrUnreachable},
	}
	for name, renewed := range map[string]bool{"of the first lease": false, "of a renewed lease": true} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, cases, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
				clock := s.LocalClock()
				client := s.Client(fairlock.Config{Clock: clock})
				lease := hold(t, client.Mutex("x").Lock)
				if renewed {
					pass(length/3 + 1)
				}
				began := lease.Deadline().Add(-length)
				client.Link.Hang()
				time.Sleep(time.Until(began.Add(c.from)))
				clock.Pause()
				time.Sleep(time.Until(began.Add(c.to)))
				clock.Resume()
				pass(ttl)
				require.ErrorIs(t, lease.Err(), c.want)
				require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
				for _, other := range []error{fairlock.ErrExpired, fairlock.ErrUnreachable} {
					assert.Equal(t, other == c.want, errors.Is(lease.Err(), other)) //nolint:errorlint // it is that value
				}
			})
		})
	}
}

// Stats counts requests that are in flight and those that wait for one that hangs, and no lease that is lost, though it is
// still to be released.
func TestClient_Stats(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := clientWith(t, s, fairlock.Config{}, sendOnce)
		lease := hold(t, client.Mutex("x").Lock)
		assert.Equal(t, fairlock.Stats{Leases: 1}, client.Stats())
		client.Link.Delay(0, ttl)
		tries := []*acquisition{}
		for i := range 3 { // two are sent at once
			tries = append(tries, begin(t.Context(), client.Mutex(fmt.Sprint(i)).TryLock))
		}
		assert.Equal(t, fairlock.Stats{Leases: 1, Requests: 3}, client.Stats())
		<-lease.Done()
		synctest.Wait()
		assert.Zero(t, client.Stats().Leases)
		client.Link.Mend()
		for _, q := range tries {
			<-q.done
		}
		pass(ttl)
		assert.Zero(t, client.Stats())
	})
}
