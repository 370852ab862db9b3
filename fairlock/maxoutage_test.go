package fairlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/leader"
)

const maxOutage = 5 * time.Second

// outages are the faults in which a server answers, or none does, and which end by themselves.
func outages() map[string]fault {
	all := faults()
	return map[string]fault{
		"cut": all["the link is cut"], "hangs": all["Redis hangs"], "replica": all[readOnly], "misconf": all[misconf],
	}
}

// A call that Redis does not serve for MaxOutage returns then, whether it is queued or not. It leaves the queue. Calls
// without the option, and candidates of package leader, keep their tickets.
//
//fairlock:promise A limit for outages: with WithMaxOutage, a call returns ErrUnreachable once Redis has not served the lock for that long, also if it is queued; it leaves the queue
func TestWithMaxOutage_EndsTheWait(t *testing.T) {
	bubbles(t, outages(), func(t *testing.T, s *fairlocktest.Server, _ string,
		fault func(*fairlocktest.Server, *fairlocktest.Client) func()) {
		client := s.Client(fairlock.Config{MaxOutage: maxOutage})
		hold(t, s.Client(fairlock.Config{TTL: time.Hour}).Mutex("x").Lock)
		m, patient := client.Mutex("x"), client.Mutex("x", fairlock.WithMaxOutage(0))
		queued := begin(t.Context(), m.Lock)
		others := []*acquisition{
			begin(t.Context(), patient.Lock),
			begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) {
				return nil, leader.New(client.Client, "x", leader.Config{}).Run(ctx, func(context.Context) error { return nil })
			}),
		}
		pass(10*interval + interval/2)
		before := s.Mutex("x").State().Waiters[1:]
		start := time.Now()
		end := fault(s, client)
		first := begin(t.Context(), m.Lock)
		try := begin(t.Context(), m.TryLock)
		do := begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) {
			return nil, client.Semaphore("y", 1, fairlock.WithMaxOutage(2*maxOutage)).Do(ctx, 1, nil)
		})
		pass(3 * maxOutage)
		for q, after := range map[*acquisition]time.Duration{
			queued: maxOutage - interval/2, // since its heartbeat
			first:  maxOutage, try: maxOutage, do: 2 * maxOutage,
		} {
			require.False(t, q.pending())
			require.ErrorIs(t, q.err, fairlock.ErrUnreachable)
			require.NotErrorIs(t, q.err, fairlock.ErrLost)
			require.NotErrorIs(t, q.err, context.DeadlineExceeded)
			require.Regexp(t, `: redis is unreachable: tried for (5s|10s): `, q.err.Error())
			took := q.at.Sub(start)
			assert.True(t, took >= after && took <= after+25*time.Millisecond, "%v, want %v", took, after)
		}
		end()
		pass(2 * interval)
		for _, q := range others {
			require.True(t, q.pending())
		}
		after := s.Mutex("x").State().Waiters
		require.Len(t, after, len(others))
		for i := range after {
			assert.Equal(t, before[i].Token, after[i].Token)
		}
		s.Semaphore("y", 1).AssertFree()
		client.Close()
	})
}

// A shorter outage ends nothing. A lost request ends nothing while Redis serves others of the lock: an acquire that
// hangs is sent again.
//
//fairlock:promise A limit for outages
func TestWithMaxOutage_ShorterOutages(t *testing.T) {
	bubbles(t, outages(), func(t *testing.T, s *fairlocktest.Server, _ string,
		fault func(*fairlocktest.Server, *fairlocktest.Client) func()) {
		client := s.Client(fairlock.Config{TTL: time.Hour})
		m := client.Mutex("x", fairlock.WithMaxOutage(maxOutage))
		lease := hold(t, m.Lock)
		queued := begin(t.Context(), m.Lock)
		for range 5 {
			end := fault(s, client)
			first := begin(t.Context(), m.Lock)
			pass(maxOutage - interval - interval/2) // the latest reply is up to a heartbeat old
			end()
			pass(2 * interval)
			require.True(t, queued.pending())
			require.True(t, first.pending())
		}
		unlock(t, lease)
		unlock(t, queued.granted(t))
		client.Close()
	})
	t.Run("acquires alone hang", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *fairlocktest.Server) {
			client := clientWith(t, s, fairlock.Config{}, sendOnce)
			m := client.Mutex("x", fairlock.WithMaxOutage(maxOutage))
			holder := s.Mutex("x").HoldAs("holder")
			first := begin(t.Context(), m.Lock)
			var over atomic.Bool
			record(client).before = func(_ int, cmd redis.Cmder) error {
				if verbOf(cmd) == "acquire" && !over.Load() {
					time.Sleep(maxOutage + interval)
					return errCut
				}
				return nil
			}
			second := begin(t.Context(), m.Lock)
			pass(4 * maxOutage)
			assert.True(t, first.pending())
			assert.True(t, second.pending())
			over.Store(true)
			unlock(t, holder)
			unlock(t, first.granted(t))
			unlock(t, second.granted(t))
		})
	})
}

// A queued call that Redis refuses for MaxOutage returns ErrRefused then, and a new one at once.
//
//fairlock:promise A limit for outages
func TestWithMaxOutage_Refused(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		m := client.Mutex("x", fairlock.WithMaxOutage(maxOutage))
		s.Mutex("x").HoldAs("holder")
		queued, start := begin(t.Context(), m.Lock), time.Now()
		s.Miniredis.SetError("NOPERM User u has no permissions")
		_, err := m.Lock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrRefused)
		require.Zero(t, time.Since(start))
		<-queued.done
		require.ErrorIs(t, queued.err, fairlock.ErrRefused)
		require.NotErrorIs(t, queued.err, fairlock.ErrUnreachable)
		assert.Equal(t, maxOutage, queued.at.Sub(start))
		s.Miniredis.SetError("")
		pass(2 * interval)
		s.Mutex("x").AssertQueue()
	})
}

// The cause of a caller's ctx may be an error of another lock. It does not count as the end of MaxOutage.
func TestWithMaxOutage_CauseOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{MaxOutage: maxOutage})
		s.Mutex("x").HoldAs("holder")
		ctx, cancel := context.WithCancelCause(t.Context())
		queued := begin(ctx, client.Mutex("x").Lock)
		cancel(fairlock.ErrUnreachable)
		<-queued.done
		require.ErrorIs(t, queued.err, context.Canceled)
		require.ErrorIs(t, queued.err, fairlock.ErrUnreachable)
	})
}

// New warns of a MaxOutage within which go-redis may wait for one reply and a heartbeat be missed.
func TestNew_WarnsOfAShortMaxOutage(t *testing.T) {
	for lines, d := range []time.Duration{maxOutage, maxOutage - 1} {
		bubble := func(t *testing.T, s *fairlocktest.Server) {
			var log logged
			clientWith(t, s, fairlock.Config{MaxOutage: d, Logger: log.logger()},
				func(o *redis.Options) { o.ReadTimeout = maxOutage - 2*time.Second })
			require.Len(t, log.sofar(), lines)
		}
		bubbleAlone(t, bubble)
	}
}
