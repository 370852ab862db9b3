package fairlock_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// errCut is an error of a connection.
var errCut = errors.New("connection refused")

// If all connections of the pool are in use, the log says so before the lease is lost. The reason of the loss says so
// as well, whether go-redis has given up already or not. A hook stands for the pool, because a bubble cannot wait for
// that.
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
// its latest renewal was refused, that is the reason, even during an outage of other requests: Redis was reached.
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
}
