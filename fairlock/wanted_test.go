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

// third is when a lease is renewed, counted from its grant or the last renewal.
const third = (ttl - ttl/100 - 2*time.Millisecond) / 3

// isWanted reports whether the lease knows that somebody waits.
func isWanted(l *fairlock.Lease) bool {
	select {
	case <-l.Wanted():
		return true
	default:
		return false
	}
}

// The holder learns of the first waiter as fast as a message arrives, and of no try. Who yields to it and locks again stands
// behind it. The end of the lease closes nothing.
//
//fairlock:promise Wanted: closes within 100 ms after the first waiter has queued, at the grant if somebody waits then, and never because of a try; within a third of TTL if the message is lost
func TestWanted_TheFirstWaiterHasQueued(t *testing.T) {
	bubbles(t, map[string]fairlock.Config{"renewed": {}, "not renewed": {NoRenewal: true}}, func(t *testing.T, s *fairlocktest.Server, _ string, cfg fairlock.Config) {
		const delay = 40 * time.Millisecond
		cfg.TTL = time.Hour // nothing but the message tells
		a, b := s.Client(cfg), s.Client(fairlock.Config{})
		x, y := a.Mutex("x").WithWanted(), b.Mutex("x")
		lease := hold(t, x.Lock)
		a.Link.Delay(0, delay)
		_, err := y.TryLock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		require.ErrorIs(t, y.TryDo(t.Context(), nil), fairlock.ErrBusy)
		pass(time.Minute)
		require.False(t, isWanted(lease))

		ctx, cancel := context.WithCancel(t.Context())
		first := begin(ctx, y.Lock)
		pass(delay - 1)
		require.False(t, isWanted(lease))
		pass(1)
		require.True(t, isWanted(lease))
		cancel()
		<-first.done
		waiter := begin(t.Context(), y.Lock) // of whom another message tells
		pass(delay)
		a.Link.Mend()
		unlock(t, lease)
		again := begin(t.Context(), x.Lock)
		s.Mutex("x").AssertQueue(a.Name())
		unlock(t, waiter.granted(t))
		second := again.granted(t)
		unlock(t, second)
		assert.False(t, isWanted(second))
	})
}

// A waiter that is granted the lock while others wait knows it at once.
func TestWanted_AtTheGrant(t *testing.T) {
	bubbles(t, map[string]bool{"by another client": false, "by the same client": true}, func(t *testing.T, s *fairlocktest.Server, _ string, same bool) {
		client := s.Client(fairlock.Config{TTL: time.Hour})
		lease := hold(t, client.Mutex("x").Lock)
		var queue []*acquisition
		for range 3 {
			if !same {
				client = s.Client(fairlock.Config{TTL: time.Hour})
			}
			queue = append(queue, begin(t.Context(), client.Mutex("x").WithWanted().Lock))
		}
		for i, q := range queue {
			granted := time.Now()
			unlock(t, lease)
			lease = q.granted(t)
			assert.Equal(t, isWanted(lease), i < 2)
			assert.Equal(t, granted, time.Now())
		}
	})
}

// If the message is lost, the request after the next renewal tells. So it does for a lease that another client has resumed: the
// messages go to the client that has locked.
//
//fairlock:fault The message that somebody waits is lost, or the lease was resumed elsewhere: Lease.Wanted closes after the next renewal
func TestWanted_LostMessage(t *testing.T) {
	bubbles(t, map[string]func(*testing.T, *fairlocktest.Server, *fairlocktest.Client) *fairlock.Lease{
		"granted": func(t *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) *fairlock.Lease {
			return hold(t, c.Mutex("x").WithWanted().Lock)
		},
		"resumed": func(t *testing.T, s *fairlocktest.Server, c *fairlocktest.Client) *fairlock.Lease {
			other := hold(t, s.Client(fairlock.Config{}).Mutex("x").WithWanted().Lock)
			return hold(t, func(ctx context.Context) (*fairlock.Lease, error) {
				return c.Mutex("x").WithWanted().Resume(ctx, other.Token())
			})
		},
		"resumed, and nobody wanted to know before": func(t *testing.T, s *fairlocktest.Server, c *fairlocktest.Client) *fairlock.Lease {
			other := s.Mutex("x").HoldAs("other")
			return hold(t, func(ctx context.Context) (*fairlock.Lease, error) {
				return c.Mutex("x").WithWanted().Resume(ctx, other.Token())
			})
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, start func(*testing.T, *fairlocktest.Server, *fairlocktest.Client) *fairlock.Lease) {
		client := s.Client(fairlock.Config{})
		lease := start(t, s, client)
		synctest.Wait()
		client.Link.DropNotifications()
		begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
		pass(third - 1)
		require.False(t, isWanted(lease))
		pass(1)
		assert.True(t, isWanted(lease))
	})
}

// In the client that has locked, a lease that was resumed gets the messages. A lease that is resumed while somebody waits knows it
// at once.
func TestWanted_Resumed(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		a, b := s.Client(fairlock.Config{NoRenewal: true}), s.Client(fairlock.Config{NoRenewal: true})
		x := a.Mutex("x").WithTTL(time.Hour).WithWanted()
		lease := hold(t, x.Lock)
		for range 2 {
			next, err := x.Resume(t.Context(), lease.Token())
			require.NoError(t, err)
			require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrLost)
			lease = next
		}
		require.False(t, isWanted(lease))
		begin(t.Context(), b.Mutex("x").Lock)
		require.True(t, isWanted(lease))
		lease, err := b.Mutex("x").WithWanted().Resume(t.Context(), lease.Token())
		require.NoError(t, err)
		require.True(t, isWanted(lease))
	})
}

// When the subscription comes up, leases learn what they have missed; also one whose acquire was in flight meanwhile.
//
//fairlock:fault The subscription breaks while a holder wants to know that somebody waits: it learns of it when the subscription is up again
func TestWanted_TheSubscriptionComesUp(t *testing.T) {
	bubbles(t, map[string]func(*testing.T, *fairlocktest.Client, func()) *fairlock.Lease{
		"again": func(t *testing.T, c *fairlocktest.Client, join func()) *fairlock.Lease {
			lease := hold(t, c.Mutex("x").WithWanted().Lock)
			synctest.Wait()
			c.Link.Cut()
			join()
			pass(10 * time.Second)
			require.False(t, isWanted(lease))
			c.Link.Mend()
			pass(250 * time.Millisecond) // the longest back-off
			return lease
		},
		"before the reply": func(t *testing.T, c *fairlocktest.Client, join func()) *fairlock.Lease {
			record(c).after = func(cmd redis.Cmder) {
				if verbOf(cmd) == "acquire" && lockOf(cmd) == "x" {
					time.Sleep(time.Second)
				}
			}
			q := begin(t.Context(), c.Mutex("x").WithWanted().Lock)
			join()
			listen(t, c)
			require.True(t, q.pending())
			return q.granted(t)
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, start func(*testing.T, *fairlocktest.Client, func()) *fairlock.Lease) {
		client, other := s.Client(fairlock.Config{NoRenewal: true, TTL: time.Hour}), s.Client(fairlock.Config{})
		lease := start(t, client, func() { begin(t.Context(), other.Mutex("x").Lock) })
		synctest.Wait()
		assert.True(t, isWanted(lease))
	})
}

// A lease that need not know sends its renewals and nothing else, and no channel is subscribed. One that knows does not ask
// any more. Nothing is kept of a lease that has ended, or of a try that has failed.
func TestWanted_Costs(t *testing.T) {
	bubbles(t, map[string]bool{"without": false, "with": true}, func(t *testing.T, s *fairlocktest.Server, _ string, with bool) {
		a, b := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		sent := record(a)
		x := a.Mutex("x")
		if with {
			x = x.WithWanted()
		}
		lease := hold(t, x.Lock)
		assert.Equal(t, with, lease.Wanted() != nil)
		count := func() (renewals, heartbeats, others int) {
			sent.reset()
			pass(3*third + third/2)
			renewals, heartbeats = len(sent.times("renew", time.Now())), len(sent.times("heartbeat", time.Now()))
			return renewals, heartbeats, len(sent.requests()) - renewals - heartbeats
		}
		each := map[bool]int{true: 1}[with]
		synctest.Wait()
		assert.Equal(t, 1+each, sent.dials, "connections")
		renewals, heartbeats, others := count()
		assert.Equal(t, []int{3, 3 * each, 0}, []int{renewals, heartbeats, others})
		waiter := begin(t.Context(), b.Mutex("x").Lock)
		renewals, heartbeats, others = count()
		assert.Equal(t, []int{3, 0, 0}, []int{renewals, heartbeats, others})
		assert.Equal(t, isWanted(lease), with)
		_, err := x.TryLock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		assert.Equal(t, each, fairlock.Watched(a.Client))
		unlock(t, lease)
		unlock(t, waiter.granted(t))
		assert.Zero(t, fairlock.Watched(a.Client))
	})
	var none *fairlock.Lease
	assert.Nil(t, none.Wanted())
}
