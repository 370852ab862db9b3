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
