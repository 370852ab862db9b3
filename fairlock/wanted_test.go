package fairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// look is the verb by which a lease looks whether somebody waits.
const look = "waiting"

// isWanted reports whether the lease knows that somebody waits.
func isWanted(l *fairlock.Lease) bool {
	select {
	case <-l.Wanted():
		return true
	default:
		return false
	}
}

// A lease learns of a waiter by the next look: the first call looks at once, and others follow each second. A try is no
// waiter. The holder that unlocks and locks again queues behind the waiter.
//
//fairlock:promise Wanted: closes at once if somebody waits already, else by the next look, a second after the last one, for each kind of lock; never because of a try
func TestWanted_NextLook(t *testing.T) {
	type locks struct{ hold, wait, try acquire }
	bubbles(t, map[string]func(c *fairlocktest.Client) locks{
		"mutex": func(c *fairlocktest.Client) locks { m := c.Mutex("x"); return locks{m.Lock, m.Lock, m.TryLock} },
		"semaphore": func(c *fairlocktest.Client) locks {
			s := c.Semaphore("x", 3)
			try := func(ctx context.Context) (*fairlock.Lease, error) { return s.TryAcquire(ctx, 2) }
			return locks{permits(s, 2), permits(s, 2), try}
		},
		"writer": func(c *fairlocktest.Client) locks { m := c.RWMutex("x"); return locks{m.Lock, m.RLock, m.TryRLock} },
		"reader": func(c *fairlocktest.Client) locks { m := c.RWMutex("x"); return locks{m.RLock, m.Lock, m.TryLock} },
	}, func(t *testing.T, s *fairlocktest.Server, _ string, of func(*fairlocktest.Client) locks) {
		a, b := of(s.Client(fairlock.Config{})), of(s.Client(fairlock.Config{}))
		lease := hold(t, a.hold)
		require.False(t, isWanted(lease))
		_, err := b.try(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		pass(1500 * time.Millisecond)
		waiter := begin(t.Context(), b.wait)
		pass(500*time.Millisecond - 1)
		require.False(t, isWanted(lease))
		pass(1)
		require.True(t, isWanted(lease))
		again := begin(t.Context(), a.hold)
		unlock(t, lease)
		lease = waiter.granted(t)
		require.True(t, again.pending())
		lease.Wanted()
		synctest.Wait()
		require.True(t, isWanted(lease), "somebody waits already")
	})
}

// Nothing is sent before the first call of Wanted, and nothing once the lease is told or has ended.
//
//fairlock:promise Wanted
func TestWanted_Costs(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T, s *fairlocktest.Server, c *fairlocktest.Client, l *fairlock.Lease){
		"told": func(t *testing.T, s *fairlocktest.Server, _ *fairlocktest.Client, l *fairlock.Lease) {
			begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
			pass(time.Second)
			require.True(t, isWanted(l))
		},
		"unlocked": func(t *testing.T, _ *fairlocktest.Server, _ *fairlocktest.Client, l *fairlock.Lease) { unlock(t, l) },
		"detached": func(t *testing.T, _ *fairlocktest.Server, _ *fairlocktest.Client, l *fairlock.Lease) {
			detach(t, l)
		},
		"lost": func(t *testing.T, s *fairlocktest.Server, _ *fairlocktest.Client, l *fairlock.Lease) {
			s.LoseData()
			require.ErrorIs(t, l.Renew(t.Context()), fairlock.ErrLost)
		},
		"closed": func(t *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client, _ *fairlock.Lease) {
			require.NoError(t, c.Close())
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, end func(*testing.T, *fairlocktest.Server,
		*fairlocktest.Client, *fairlock.Lease)) {
		client := s.Client(fairlock.Config{TTL: time.Hour})
		sent, start := record(client), time.Now()
		lease, other := hold(t, client.Mutex("x").Lock), hold(t, client.Mutex("y").Lock)
		over := hold(t, client.Mutex("z").Lock)
		unlock(t, over)
		require.False(t, isWanted(over))
		pass(time.Minute)
		require.Empty(t, sent.times(look, start))
		start = time.Now()
		wanted := lease.Wanted()
		for range 2 {
			require.Equal(t, wanted, lease.Wanted())
			pass(2500 * time.Millisecond)
		}
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second},
			sent.times(look, start))
		end(t, s, client, lease)
		told := isWanted(lease)
		sent.reset()
		begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
		pass(time.Minute)
		assert.Empty(t, sent.times(look, start))
		assert.Equal(t, isWanted(lease), told, "the end of a lease, and what follows, closes nothing")
		require.NoError(t, client.Close())
		assert.False(t, isWanted(other), "it was called after Close")
		pass(time.Minute)
		assert.Empty(t, sent.times(look, start))
	})
}

// While a look hangs, no other one is sent. Another one follows a second after its reply, or after an error. Close
// waits for it.
//
//fairlock:fault Redis hangs, or fails, while a holder looks whether somebody waits: one request at a time, and the next one a second after the reply or the error
func TestWanted_Unserved(t *testing.T) {
	const hangs = time.Minute
	bubbles(t, map[string]error{"hangs": nil, "cannot serve": refusal(readOnly),
		"refuses": refusal("NOPERM no permissions")}, func(t *testing.T, s *fairlocktest.Server, name string, err error) {
		var log logged
		client := s.Client(fairlock.Config{TTL: time.Hour, Logger: log.logger()})
		sent, start := record(client), time.Now()
		sent.before = func(_ int, cmd redis.Cmder) error {
			if verbOf(cmd) == look && time.Since(start) < hangs {
				if err != nil {
					return err
				}
				time.Sleep(hangs)
			}
			return nil
		}
		lease := hold(t, client.Mutex("x").Lock)
		lease.Wanted()
		begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
		pass(hangs - 1)
		require.False(t, isWanted(lease))
		assert.Len(t, sent.times(look, start), map[bool]int{true: 1, false: 60}[err == nil])
		require.Len(t, log.sofar(), 1)
		assert.Contains(t, log.sofar()[0], map[bool]string{true: "Redis does not tell",
			false: "outage begins"}[name == "refuses"])
		pass(1)
		assert.True(t, isWanted(lease))
	})
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var log logged
		client, start := s.Client(fairlock.Config{TTL: time.Hour, Logger: log.logger()}), time.Now()
		sent := record(client)
		sent.before = func(_ int, cmd redis.Cmder) error {
			if verbOf(cmd) == look {
				time.Sleep(hangs)
			}
			return nil
		}
		lease := hold(t, client.Mutex("x").Lock)
		lease.Wanted()
		unlock(t, lease)
		require.Equal(t, start, time.Now(), "Unlock waits for no look")
		pass(hangs / 2)
		assert.Len(t, sent.times(look, start), 1)
		assert.Empty(t, log.lines)
		require.NoError(t, client.Shutdown(t.Context()))
		require.Equal(t, hangs, time.Since(start))
	})
}
