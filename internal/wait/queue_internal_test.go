package wait

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/script"
)

// The interval is a second, or a third of the smallest TTL of the waiters if that is shorter, because the lease of a
// waiter whose notification is lost lasts no longer. A heartbeat lists the client's first waiter, and those whose time
// has come. One that needs it has an earlier heartbeat.
func TestQueue_Heartbeats(t *testing.T) {
	for want, ttls := range map[string]map[int]time.Duration{ // of waiters, by the ms at which they are queued
		"1000: 1, 2000: 3, 3000: 1, 4000: 3": {0: time.Minute, 1: time.Minute, 2: time.Minute},
		"333: 1, 666: 1, 999: 1, 1333: 1":    {0: time.Second},
		// the next but one would be too late for the second
		"333: 2, 666: 2, 999: 2, 1333: 2":    {0: time.Second, 200: time.Second},
		"501: 2, 1001: 2, 1501: 2, 2001: 3":  {0: time.Minute, 1: 1500 * time.Millisecond, 2: time.Minute},
		"1000: 1, 1600: 2, 1700: 2, 1800: 2": {0: time.Minute, 1500: 300 * time.Millisecond},
	} {
		f := newFake(t)
		clients := "abc"
		for ms, ttl := range ttls {
			f.AfterFunc(at(ms).Sub(begin), func() {
				w := f.join(t, clients[:1], Request{TTL: ttl})
				clients = clients[1:]
				w.queue.add(w.localWaiter, script.Ticket(ms+1), f.Now(), 1)
			})
		}
		f.pass(at(4000))
		got := strings.ReplaceAll(strings.Join(f.log[:4], ", "), " heartbeat of", ":")
		assert.Equal(t, want, got)
	}
}

// While one request removes waiters, others leave. They share the next requests, and the queue is forgotten at the end.
//
//fairlock:promise Waiters that leave together: 10,000 of one client share 205 requests at most, and are out of the queue within a second
func TestQueue_LeaveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		var waiters []*Waiter
		for i := range 10_000 {
			w := f.join(t, "client", Request{TTL: time.Second})
			if w.known = i == 0; !w.known {
				w.queue.enter() // as Leave does
			}
			waiters = append(waiters, w)
		}
		f.leaves = func() {
			f.leaves = nil
			for _, w := range waiters[1:] {
				w.queue.leave(w.task, script.Leaving{Token: w.token})
			}
		}
		for _, w := range waiters[1:] {
			w.Close()
		}
		waiters[0].Leave()
		waiters[0].Close()
		synctest.Wait()
		assert.Len(t, f.log, 201)
		assert.Equal(t, []string{"0 leave of 1", "0 leave of 50", "0 leave of 49"}, []string{f.log[0], f.log[1], f.log[200]})
		assert.Empty(t, f.byLock)
	})
}
