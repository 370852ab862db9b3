package fairlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A subscription that has been up for more than a second is replaced when it loses a notification: it may be half open.
// The next notification arrives.
//
//fairlock:fault A notification is lost
func TestSubscriber_ReplacedAfterALostNotification(t *testing.T) {
	for up, replaced := range map[time.Duration]int{time.Second: 0, time.Second + time.Millisecond: 1} {
		t.Run(up.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				var j journal
				client := s.Client(fairlock.Config{WaiterTTL: 300 * time.Millisecond, Trace: j.trace()})
				listen(t, client)
				found := up - 110*time.Millisecond // the heartbeat finds the grant after 100 ms, and 10 ms later it is lost
				pass(found)
				x := client.Mutex("x")
				held := s.Mutex("x").HoldAs("holder")
				next := begin(t.Context(), x.Lock)
				client.Link.DropNotifications()
				unlock(t, held)
				lease := next.granted(t)
				require.Len(t, j.of("notification lost"), 1)
				client.Link.Mend()
				pass(time.Second)
				assert.Len(t, j.of("subscription broke"), replaced)
				assert.Len(t, j.of("subscribed"), 1+replaced)

				next = begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
				last := begin(t.Context(), x.Lock)
				unlock(t, lease)
				start := time.Now()
				unlock(t, next.granted(t))
				last.granted(t)
				assert.Equal(t, start, last.at)
			})
		})
	}
}

// A client subscribes at its first contention, and once for all its locks.
func TestSubscriber_StartsAtTheFirstContention(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		channel := "fairlock:wake:" + client.Name()
		subscribers := func() int { return s.Miniredis.PubSubNumSub(channel)[channel] }
		unlock(t, hold(t, client.Mutex("x").Lock))
		assert.Zero(t, subscribers())
		for _, name := range []string{"x", "y", "z"} {
			s.Mutex(name).HoldAs("holder")
			begin(t.Context(), client.Mutex(name).Lock)
			assert.Equal(t, 1, subscribers())
		}
	})
}

// A message on the channel that is no notification is logged, and has no effect.
func TestSubscriber_ForeignMessage(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var log logged
		client := s.Client(fairlock.Config{Logger: log.logger()})
		listen(t, client)
		s.Mutex("x").HoldAs("holder")
		q := begin(t.Context(), client.Mutex("x").Lock)
		require.Equal(t, 1, s.Miniredis.Publish("fairlock:wake:"+client.Name(), "hello"))
		synctest.Wait()
		assert.True(t, q.pending())
		require.Len(t, log.lines, 1)
		assert.Contains(t, log.lines[0], "message on the notification channel is none")
	})
}
