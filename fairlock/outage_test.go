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

// Every request that is sent again counts: the log has one line when an outage begins and one when it is over, also of
// a client that sends only one kind of request. Stats tells of it meanwhile.
//
//fairlock:fault Redis is down for a while
func TestOutage_EveryRequestCounts(t *testing.T) {
	requests := map[string]func(t *testing.T, s *fairlocktest.Server, c *fairlocktest.Client) (later func()){
		"a first Lock": func(t *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) func() {
			unlock(t, hold(t, c.Mutex("before").Lock))
			return func() { begin(t.Context(), c.Mutex("x").Lock) }
		},
		"a renewal": func(t *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) func() {
			hold(t, c.Mutex("x").Lock)
			return func() {}
		},
		"a heartbeat": func(t *testing.T, s *fairlocktest.Server, c *fairlocktest.Client) func() {
			s.Mutex("x").HoldAs("holder")
			begin(t.Context(), c.Mutex("x").Lock)
			return func() {}
		},
		"a release": func(t *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) func() {
			lease := hold(t, c.Mutex("x").Lock)
			return func() { go func() { _ = lease.Unlock(context.WithoutCancel(t.Context())) }() }
		},
	}
	for request, prepare := range requests {
		t.Run(request, func(t *testing.T) {
			bubbles(t, unserved, func(t *testing.T, s *fairlocktest.Server, _ string,
				fault func(*fairlocktest.Server, *fairlocktest.Client) func()) {
				var log logged
				client := s.Client(fairlock.Config{Logger: log.logger()})
				later := prepare(t, s, client)
				pass(interval / 2)
				began := time.Now()
				end := fault(s, client)
				later()
				pass(15 * time.Second)
				since := client.Stats().OutageSince
				assert.False(t, since.Before(began) || since.After(began.Add(6*time.Second)), since)
				pass(15 * time.Second)
				end()
				pass(time.Minute)
				assert.Zero(t, client.Stats().OutageSince)
				_, err := client.Mutex("other").TryLock(t.Context())
				require.NoError(t, err)
				lines := slices.DeleteFunc(log.lines, func(line string) bool { return !strings.Contains(line, "outage") })
				require.Len(t, lines, 2, strings.Join(log.lines, ""))
				assert.Contains(t, lines[0], `level=WARN msg="outage begins: Redis does not serve this client" lock=x err=`)
				assert.Contains(t, lines[1], `level=INFO msg="outage is over: `)
			})
		})
	}
}

// A Redis that goes away after a use without contention is told of, though nobody has a lease or a ticket: by a Lock
// without deadline, which waits for Redis as long as it is away.
//
//fairlock:fault Redis is down for a while
func TestOutage_AfterAnEarlierUse(t *testing.T) {
	bubbles(t, unserved, func(t *testing.T, s *fairlocktest.Server, _ string,
		fault func(*fairlocktest.Server, *fairlocktest.Client) func()) {
		var log logged
		client := s.Client(fairlock.Config{Logger: log.logger()})
		unlock(t, hold(t, client.Mutex("x").Lock))
		pass(time.Hour)
		end := fault(s, client)
		pass(time.Hour)
		assert.Empty(t, log.sofar(), "nobody has asked")
		began, over := time.Now(), make(chan struct{})
		go func() {
			defer close(over)
			lease, err := client.Mutex("x").Lock(context.Background())
			if assert.NoError(t, err) {
				assert.NoError(t, lease.Unlock(context.Background()))
			}
		}()
		pass(15 * time.Second)
		since := client.Stats().OutageSince
		assert.False(t, since.Before(began) || since.After(began.Add(6*time.Second)), since)
		pass(30 * time.Second)
		require.Len(t, log.sofar(), 1, log.sofar())
		assert.Contains(t, log.sofar()[0], `level=WARN msg="outage begins: Redis does not serve this client" lock=x err=`)
		assert.Equal(t, since, client.Stats().OutageSince)
		end()
		<-over
		pass(time.Minute)
		assert.Zero(t, client.Stats().OutageSince)
		unlock(t, hold(t, client.Mutex("x").Lock))
		require.Len(t, log.sofar(), 2, log.sofar())
		assert.Contains(t, log.sofar()[1], `level=INFO msg="outage is over: Redis serves this client again"`)
	})
}

// errCut is an error of a connection.
var errCut = errors.New("connection refused")

// On a Cluster, one master may be away while the others reply: the outage is over when a request for the lock has
// succeeded whose request failed last.
//
//fairlock:fault Redis is down for a while
func TestOutage_OfACluster(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		rdb := &reloading{Client: s.Link().Redis()}
		inner, err := fairlock.New(rdb, fairlock.Config{})
		require.NoError(t, err)
		defer inner.Close()
		client := &fairlocktest.Client{Client: inner, Redis: rdb.Client}
		var away atomic.Bool
		record(client).before = func(_ int, cmd redis.Cmder) error {
			if away.Load() && lockOf(cmd) == "away" {
				return errCut
			}
			return nil
		}
		s.Mutex("well").HoldAs("holder")
		begin(t.Context(), client.Mutex("well").Lock) // with a heartbeat in each second
		lease := hold(t, client.Mutex("away", fairlock.WithTTL(time.Hour)).Lock)
		away.Store(true)
		_, err = lease.Waiting(t.Context()) // for 3 s
		require.ErrorIs(t, err, fairlock.ErrUnreachable)
		away.Store(false)
		pass(20 * interval)
		assert.NotZero(t, client.Stats().OutageSince)
		_, err = lease.Waiting(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		assert.Zero(t, client.Stats().OutageSince)
	})
}

// A request that hangs is no outage while others succeed. Neither is a ctx of Renew that ends, or a heartbeat that
// Close ends.
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

// If all connections of the pool are in use, the log says so before the lease is lost, and so does the reason of its
// loss: when go-redis has not given up yet, and when it has. A hook does what the pool does: in a bubble nobody can
// wait for that.
//
//fairlock:fault The connection pool is full: a warning says so before the lease is lost, and the reason of the loss
func TestOutage_FullPool(t *testing.T) {
	bubbles(t, map[string]bool{"it waits": true, "it has given up": false},
		func(t *testing.T, s *fairlocktest.Server, _ string, waits bool) {
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
			assert.Contains(t, log.lines[0],
				`level=WARN msg="outage begins: Redis does not serve this client" lock=x err="the connection pool of the Redis client is full: `)
			assert.Contains(t, log.lines[1], "lock lost")
			close(over)
		})
}

// A lease that expires during an outage, or whose latest renewal has failed, names that as the reason of its loss. If
// its latest renewal was refused, that is the reason, also during an outage of other requests: Redis was reached.
//
//fairlock:fault Redis refuses the renewals of a lease: the reason of its loss is ErrExpired with ErrRefused, and not ErrUnreachable
func TestLease_ReasonOfALoss(t *testing.T) {
	const refused = `lease expired: keys "fairlock:{x}:*": redis refuses: NOPERM`
	type example struct {
		renewals, others string // what Redis replies to them
		reason           string
	}
	bubbles(t, map[string]example{
		"renewals fail":                         {renewals: readOnly, reason: "redis is unreachable: " + readOnly},
		"renewals are refused":                  {renewals: "NOPERM", reason: refused},
		"renewals are refused, and others fail": {renewals: "NOPERM", others: readOnly, reason: refused},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		record(client).before = func(_ int, cmd redis.Cmder) error {
			switch {
			case verbOf(cmd) == "renew":
				return refusal(c.renewals)
			case c.others != "":
				return refusal(c.others)
			default:
				return nil
			}
		}
		if c.others != "" {
			begin(t.Context(), client.Mutex("y").Lock)
		}
		<-lease.Done()
		require.EqualError(t, lease.Err(), "lock is lost: "+c.reason)
		assert.Equal(t, c.reason == refused, errors.Is(lease.Err(), fairlock.ErrRefused))
		assert.NotEqual(t, c.reason == refused, errors.Is(lease.Err(), fairlock.ErrUnreachable))
	})
	bubble(t, func(t *testing.T, s *fairlocktest.Server) { // the process is paused, and nothing fails
		clock := s.LocalClock()
		lease := hold(t, s.Client(fairlock.Config{Clock: clock}).Mutex("x").Lock)
		clock.Pause()
		pass(ttl)
		require.EqualError(t, lease.Err(), "lock is lost: lease expired")
		clock.Resume()
	})
}

// Stats counts requests that are in flight and those that wait for one that hangs, and no lease that is lost, though it
// is still to be released.
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
