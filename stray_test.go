package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// wrapped is not a plain client: every call is made in another goroutine, as with a cluster client.
type wrapped struct{ *redis.Client }

// A question that is stuck on a connection arrives when its asker has long gone, one way or the other. A lock that it
// was granted then would be held by nobody.
func TestAStrayQuestionIsRefusedHoweverItsAskerWent(t *testing.T) {
	t.Parallel()
	type scene struct {
		client, other fairlock.Mutex
		rdb           *redis.Client
	}
	for name, play := range map[string]func(t *testing.T, s scene){
		"granted by a resend, and released": func(t *testing.T, s scene) { unlock(t, lock(t, s.client)) },
		"refused as busy": func(t *testing.T, s scene) {
			held := lock(t, s.other)
			_, err := s.client.TryLock(within(t, soon))
			require.ErrorIs(t, err, fairlock.ErrBusy)
			unlock(t, held)
			require.Eventually(t, func() bool { // it does not wait until its token is buried
				return s.rdb.Exists(context.Background(), "fairlock:{x}:alive").Val() == 1
			}, soon, time.Millisecond)
		},
		"left": func(t *testing.T, s scene) {
			_, err := s.client.Lock(within(t, 30*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(2 * time.Second) // go-redis gives up, and the leave goes out on a new connection
		},
	} {
		for kind, wrap := range map[string]func(*redis.Client) fairlock.Redis{
			"plain":   func(rdb *redis.Client) fairlock.Redis { return rdb },
			"wrapped": func(rdb *redis.Client) fairlock.Redis { return wrapped{rdb} },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				link := redistest.NewLink(t, s)
				rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), ReadTimeout: 200 * time.Millisecond})
				t.Cleanup(func() { _ = rdb.Close() })
				c, other := newClient(t, wrap(rdb), fairlock.Config{}), newClient(t, s.Client(), fairlock.Config{})
				unlock(t, lock(t, c.Mutex("warm")))
				link.Freeze()
				play(t, scene{c.Mutex("x"), other.Mutex("x"), s.Client()})
				link.Mend() // the question arrives
				for range 50 {
					l, err := other.Mutex("x").TryLock(within(t, soon))
					require.NoError(t, err, "the lock is held by nobody")
					unlock(t, l)
					time.Sleep(2 * time.Millisecond) // or a little later
				}
			})
		}
	}
}

func TestUnlockIsBoundedWhileGoRedisDials(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), PoolSize: 1, PoolTimeout: soon})
	t.Cleanup(func() { _ = rdb.Close() })
	c := newClient(t, rdb, fairlock.Config{TTL: 1500 * time.Millisecond, NoRenewal: true})
	lease := lock(t, c.Mutex("x"))
	conn := rdb.Conn() // takes the only connection
	require.NoError(t, conn.Ping(context.Background()).Err())
	start := time.Now()
	require.Error(t, lease.Unlock(context.Background()))
	assert.Less(t, time.Since(start), 10*time.Second)
	require.NoError(t, conn.Close())
}
