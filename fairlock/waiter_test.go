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
	"github.com/fairlock/fairlock-go/internal/bounds"
)

// A handoff is used without a further request if at least min(TTL, WaiterTTL)/6 of trusted time remains. That time
// counts from when the request was sent that found the waiter queued.
//
//fairlock:promise A handoff is prompt: the release notifies the next waiter, no heartbeat has to find it; a waiter with too little trusted time sends acquire
func TestWaiter_UsesAHandoffWhileItIsTrusted(t *testing.T) {
	const ttl, waiterTTL = 90 * time.Second, 3 * time.Second
	bubbles(t, map[time.Duration]bool{0: true, 799 * time.Millisecond: true, 800 * time.Millisecond: false},
		func(t *testing.T, s *fairlocktest.Server, waits time.Duration, used bool) {
			client, _, j := listening(t, s, fairlock.Config{TTL: ttl, WaiterTTL: waiterTTL})
			first := s.Mutex("x").HoldAs("holder")
			next, asked := begin(t.Context(), client.Mutex("x").Lock), time.Now()
			pass(waits)
			released := time.Now()
			unlock(t, first)
			want := released.Add(ttl - safetyMargin(ttl))
			if used {
				want = asked.Add(waiterTTL - waits - safetyMargin(ttl))
			}
			assert.Equal(t, want, next.granted(t).Deadline())
			assert.Equal(t, released, next.at)
			grants := j.of("Granted")
			assert.Equal(t, used, grants[len(grants)-1].info.(fairlock.GrantedInfo).Handoff)
		})
}

// A release by a waiter's own client, or the leave of another waiter, needs no notification.
//
//fairlock:promise A handoff is prompt
func TestWaiter_HandoffWithinAClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		client.Link.DropNotifications()
		first := hold(t, client.Mutex("x").Lock)
		next := begin(t.Context(), client.Mutex("x").Lock)
		start := time.Now()
		unlock(t, first)
		next.granted(t)
		assert.Equal(t, start, next.at)

		s.Semaphore("s", 3).HoldAs("holder")
		ctx, cancel := context.WithCancel(t.Context())
		begin(ctx, permits(client.Semaphore("s", 3), 3))
		next = begin(t.Context(), permits(client.Semaphore("s", 3), 1))
		cancel()
		next.granted(t)
		assert.Equal(t, start, next.at)
	})
}

// More readers than one call of a script admits get in together at the release of a writer, and send nothing for it.
//
//fairlock:promise Readers and writers
func TestWaiter_AdmittedReadersSendNothingMore(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, sent, _ := listening(t, s, fairlock.Config{})
		writer, start := s.RWMutex("x").HoldAs("writer"), time.Now()
		var readers []*acquisition
		for range 140 {
			readers = append(readers, begin(t.Context(), client.RWMutex("x").RLock))
		}
		late := begin(t.Context(), client.RWMutex("x").Lock)
		sent.reset()
		unlock(t, writer)
		for _, q := range readers {
			q.granted(t)
			assert.Equal(t, start, q.at)
		}
		assert.Empty(t, sent.requests())
		assert.True(t, late.pending())
	})
}

// A waiter whose notification is lost finds its grant at its next heartbeat, and sends acquire 10 ms later, because the
// notification might still come. The first waiter of a client has a heartbeat each second, the others at least each
// third of WaiterTTL.
//
//fairlock:fault A notification is lost: the next waiter, or all who were admitted, are in within one heartbeat; the order holds; the subscription is replaced
func TestWaiter_LostNotificationIsFoundByTheHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, _, j := listening(t, s, fairlock.Config{})
		client.Link.DropNotifications()
		x := client.RWMutex("x")
		held, start := s.RWMutex("x").HoldAs("holder"), time.Now()
		readers := []*acquisition{begin(t.Context(), x.RLock), begin(t.Context(), x.RLock), begin(t.Context(), x.RLock)}
		writer := begin(t.Context(), x.Lock)
		unlock(t, held)
		assert.True(t, readers[0].pending())
		for i, q := range readers {
			q.granted(t)
			assert.Equal(t, time.Duration(min(i, 1)+1)*interval+10*time.Millisecond, q.at.Sub(start))
		}
		assert.Len(t, j.of("NotificationLost"), 1, "the subscription is down when the others are found")
		assert.True(t, writer.pending())
		client.Link.Mend()
		for _, q := range readers {
			unlock(t, q.lease)
		}
		unlock(t, writer.granted(t))
	})
}

// Redis goes away just after it has granted a waiter the lock, and the notification is lost. If Redis is back while
// that grant lasts, the waiter has the lock by it. Otherwise waiters that are granted the lock before this one is back
// pass it, and no other position changes.
//
//fairlock:fault Redis is away just after a grant whose notification is lost: the waiter has the lock if Redis is back within what is left of its WaiterTTL, which is at least half, and within TTL; if not, the next one passes it
func TestWaiter_OutageAfterItsGrant(t *testing.T) {
	// The release comes half an interval after a heartbeat.
	const given = bounds.DefaultWaiterTTL - interval/2
	bubbles(t, map[time.Duration][]int{ // the order of grants after outages
		given - interval: {0, 1, 2}, // the first heartbeat afterwards finds the grant
		given:            {1, 0, 2},
	}, func(t *testing.T, s *fairlocktest.Server, outage time.Duration, order []int) {
		held := s.Mutex("x").HoldAs("holder")
		var queue []*acquisition
		for range 3 {
			client := s.Client(fairlock.Config{})
			queue = append(queue, begin(t.Context(), client.Mutex("x").Lock))
			client.Link.DropNotifications()
			defer client.Link.Mend()
		}
		pass(interval + interval/2)
		unlock(t, held)
		s.Stop()
		pass(outage)
		s.Start()
		for i, next := range order {
			lease := queue[next].granted(t)
			synctest.Wait()
			for _, later := range order[i+1:] {
				assert.True(t, queue[later].pending())
			}
			unlock(t, lease)
		}
	})
}

// Whatever happens to the connections and to the server, a queued waiter gets no error, and the order holds unless data
// are lost.
//
//fairlock:fault CLIENT KILL, SCRIPT FLUSH, a pause, a restart with or without persistence: no error for a waiter whose ctx has time
func TestWaiter_NoErrorWhileItsContextHasTime(t *testing.T) {
	type clients = [2]*fairlocktest.Client
	flush := func(t *testing.T, c clients) { require.NoError(t, c[0].Redis.ScriptFlush(t.Context()).Err()) }
	bubbles(t, map[string]func(t *testing.T, s *fairlocktest.Server, c clients){
		"CLIENT KILL":  func(_ *testing.T, _ *fairlocktest.Server, c clients) { c[0].Link.Break(); c[1].Link.Break() },
		"SCRIPT FLUSH": func(t *testing.T, _ *fairlocktest.Server, c clients) { flush(t, c) },
		"restart": func(t *testing.T, s *fairlocktest.Server, c clients) {
			flush(t, c)
			s.Stop()
			pass(ttl + 2*time.Second) // the first waiters send acquire meanwhile, because the lease has ended
			s.Start()
		},
		"restart without persistence": func(t *testing.T, s *fairlocktest.Server, c clients) {
			flush(t, c)
			s.LoseData()
			s.Stop()
			pass(time.Second)
			s.Start()
		},
	}, func(t *testing.T, s *fairlocktest.Server, name string, fault func(t *testing.T, s *fairlocktest.Server,
		c clients)) {
		cfg := fairlock.Config{WaiterTTL: time.Minute}
		c := clients{s.Client(cfg), s.Client(cfg)}
		lease := hold(t, c[0].Mutex("x").Lock)
		var queue []*acquisition
		for i := range 5 {
			queue = append(queue, begin(t.Context(), c[i%2].Mutex("x").Lock))
		}
		fault(t, s, c)
		_ = lease.Unlock(t.Context()) // ErrLost, if it took long or there are no data
		if name == "restart without persistence" {
			for _, q := range queue {
				go func() {
					<-q.done
					assert.NoError(t, q.lease.Unlock(t.Context()))
				}()
			}
			for _, q := range queue {
				q.granted(t)
			}
			synctest.Wait()
			return
		}
		for i, q := range queue {
			lease := q.granted(t)
			synctest.Wait()
			for _, later := range queue[i+1:] {
				assert.True(t, later.pending(), "the order changed")
			}
			unlock(t, lease)
		}
	})
}

// A waiter whose ctx ends while a request is under way returns ctx's error at once. Nothing is left of it once Redis
// answers.
//
//fairlock:fault ctx ends, Redis hangs: Lock returns within 100 ms; nothing is left once Redis answers
//fairlock:fault ctx ends while the first connection is being made: the same
func TestWaiter_ContextEndsWhileRedisHangs(t *testing.T) {
	hang := func(l *fairlocktest.Link) { l.Hang() }
	try := func(m fairlock.Mutex) acquire { return m.TryLock }
	wait := func(m fairlock.Mutex) acquire { return m.Lock }
	type example struct {
		held, queued, cold bool // the lock, the waiter, its connections
		acquire            func(fairlock.Mutex) acquire
		fault              func(*fairlocktest.Link)
	}
	bubbles(t, map[string]example{
		"the lock is free": {acquire: wait, fault: hang},
		"the lock is held": {held: true, acquire: wait, fault: hang},
		"it is queued":     {held: true, queued: true, acquire: wait, fault: hang},
		"it tries":         {acquire: try, fault: hang},
		"it dials":         {cold: true, acquire: wait, fault: hang},
		"connecting is slow": {cold: true, acquire: wait, fault: func(l *fairlocktest.Link) {
			l.Delay(30*time.Millisecond,
				30*time.Millisecond)
		}},
		"the request is stuck": {acquire: wait, fault: func(l *fairlocktest.Link) { l.Delay(4*time.Second, 0) }},
		"the reply is stuck":   {acquire: wait, fault: func(l *fairlocktest.Link) { l.Delay(0, 4*time.Second) }},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		client := s.Client(fairlock.Config{})
		if !c.cold {
			unlock(t, hold(t, client.Mutex("warm").Lock))
		}
		var held *fairlock.Lease
		if c.held {
			held = s.Mutex("x").HoldAs("holder")
		}
		if !c.queued {
			c.fault(client.Link)
		}
		ctx, cancel := context.WithCancel(t.Context())
		q := begin(ctx, c.acquire(client.Mutex("x")))
		if c.queued {
			c.fault(client.Link)
		}
		pass(5 * time.Millisecond)
		cancel()
		ended := time.Now()
		<-q.done
		require.ErrorIs(t, q.err, context.Canceled)
		assert.Equal(t, ended, q.at)
		client.Link.Mend()
		if c.held {
			s.Mutex("x").AssertHeldBy("holder")
			unlock(t, held)
		}
		pass(4 * time.Second) // when what was stuck has arrived
		s.AssertNothingLeft()
	})
}

// A request that arrives when its waiter has left is refused. Redis refuses the token for one WaiterTTL, and at least
// for a second.
//
//fairlock:fault A request arrives after its waiter has left: it is refused, or given back
func TestWaiter_LateRequestIsRefused(t *testing.T) {
	const (
		timeout   = 200 * time.Millisecond // then go-redis sends the request again
		tombstone = 11 * time.Minute
	)
	type leaves = func(t *testing.T, s *fairlocktest.Server, x fairlock.Mutex)
	bubbles(t, map[string]leaves{
		"granted by a second request, and released": func(t *testing.T, _ *fairlocktest.Server, x fairlock.Mutex) {
			unlock(t, hold(t, x.Lock))
		},
		"refused as busy": func(t *testing.T, s *fairlocktest.Server, x fairlock.Mutex) {
			held := s.Mutex("x").HoldAs("holder")
			_, err := x.TryLock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrBusy)
			unlock(t, held)
		},
		"ctx ended": func(t *testing.T, _ *fairlocktest.Server, x fairlock.Mutex) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout/2)
			defer cancel()
			_, err := x.Lock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			pass(timeout)
		},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, leave leaves) {
		client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) { o.ReadTimeout = timeout })
		unlock(t, hold(t, client.Mutex("warm").Lock))
		start, late := time.Now(), timeout+tombstone-time.Millisecond
		client.Link.Delay(late, 0)
		time.AfterFunc(1, client.Link.Mend) // only the first request is late
		leave(t, s, client.Mutex("x"))
		s.Mutex("x").AssertFree()
		pass(time.Until(start.Add(late)))
		s.AssertNothingLeft()
	})
}

// The subscription comes up after the grant, while the reply "queued" is on its way. The waiter finds the grant as soon
// as the reply arrives, not at the next heartbeat.
//
//fairlock:fault The lock is granted before the client's subscription has come up: found as soon as the reply to its request arrives: the waiter sends acquire again
func TestWaiter_GrantBeforeTheSubscription(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const delay = time.Second
		client := s.Client(fairlock.Config{})
		held, other := s.Mutex("x").HoldAs("holder"), s.Mutex("y").HoldAs("holder")
		unlock(t, hold(t, client.Mutex("warm").Lock)) // so that the connection is there

		client.Link.Delay(0, delay)
		first, start := begin(t.Context(), client.Mutex("x").Lock), time.Now()
		client.Link.Mend()
		unlock(t, held)                                      // nobody receives the notification
		second := begin(t.Context(), client.Mutex("y").Lock) // its contention starts the subscription
		s.Mutex("y").AssertQueue(client.Name())
		unlock(t, first.granted(t))
		assert.Equal(t, delay, first.at.Sub(start))
		unlock(t, other)
		unlock(t, second.granted(t))
	})
}
