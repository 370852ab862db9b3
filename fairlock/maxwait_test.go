package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

const maxWait = time.Second

// A call that has waited for MaxWait returns ErrWaitTimeout then, which names the holder, and leaves the queue. If ctx
// ends before, the error is that of ctx.
//
//fairlock:promise A limit for waiting: WithMaxWait bounds the wait, and the error says whether it or ctx has ended; the lease and f have no limit by it
func TestWithMaxWait_NamesTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		l := s.Semaphore("x", 5)
		l.HoldAs("web-3")
		sem := s.Client(fairlock.Config{}).Semaphore("x", 5, fairlock.WithMaxWait(maxWait))
		for name, wait := range map[string]func(context.Context) error{
			"acquire": func(ctx context.Context) error { _, err := sem.Acquire(ctx, 5); return err },
			"do": func(ctx context.Context) error {
				return sem.Do(ctx, 5, func(context.Context) error { t.Error("f was called"); return nil })
			},
		} {
			start := time.Now()
			err := wait(t.Context())
			assert.Equal(t, maxWait, time.Since(start), name)
			require.EqualError(t, err, `fairlock: `+name+` "x": wait timed out (held by web-3)`)
			require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
			l.AssertQueue()
			for end, first := range map[time.Duration]error{maxWait - 1: context.DeadlineExceeded,
				maxWait + 1: fairlock.ErrWaitTimeout} {
				ctx, cancel := context.WithTimeout(t.Context(), end)
				err := wait(ctx)
				cancel()
				require.ErrorIs(t, err, first, name)
				assert.NotEqual(t, errors.Is(err, fairlock.ErrWaitTimeout), errors.Is(err, context.DeadlineExceeded), name)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(maxWait/2, cancel)
			err = wait(ctx)
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, fairlock.ErrWaitTimeout, name)
		}
	})
}

// The first request is part of the wait, even if Redis hangs. The error has what Redis has said last.
//
//fairlock:fault ctx ends, Redis hangs
func TestWithMaxWait_WithoutRedis(t *testing.T) {
	bubbles(t, map[string]bool{"context deadline exceeded": true, "Redis did not reply": false},
		func(t *testing.T, s *fairlocktest.Server, why string, inline bool) {
			client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) {
				o.ContextTimeoutEnabled, o.ReadTimeout = inline, -1
			})
			m := client.Mutex("x", fairlock.WithMaxWait(maxWait))
			unlock(t, hold(t, m.Lock)) // the next request is sent inline
			client.Link.Hang()
			ctx, cancel := context.WithTimeout(t.Context(), maxWait+1)
			defer cancel()
			start := time.Now()
			_, err := m.Lock(ctx)
			assert.LessOrEqual(t, time.Since(start), maxWait+25*time.Millisecond)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err, fmt.Sprintf(`fairlock: lock "x": wait timed out: tried for %v: %s`, maxWait, why))
			client.Link.Mend()
			pass(time.Minute)
			s.Mutex("x").AssertFree()
			s.Mutex("x").AssertQueue()
		})
}

// WithMaxWait has no effect on a lease, on f, on Try… and on Resume.
//
//fairlock:promise A limit for waiting
func TestWithMaxWait_BoundsNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		m := client.Mutex("x", fairlock.WithMaxWait(maxWait))
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			pass(10 * maxWait)
			return ctx.Err()
		}))
		lease := hold(t, m.Lock)
		client.Link.Delay(maxWait/2, maxWait/2+time.Millisecond)
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		_, err = m.Resume(t.Context(), lease.Handle())
		require.NoError(t, err)
	})
}

// If Redis goes away, the error of a queued waiter says since when, and tells the holder as what was last known.
//
//fairlock:promise A limit for waiting
func TestWithMaxWait_QueuedInAnOutage(t *testing.T) {
	bubbles(t, map[string]func(*fairlocktest.Link){
		"connection refused": (*fairlocktest.Link).Cut, "Redis did not reply": (*fairlocktest.Link).Hang,
	}, func(t *testing.T, s *fairlocktest.Server, _ string, fault func(*fairlocktest.Link)) {
		client := s.Client(fairlock.Config{})
		s.Mutex("x").HoldAs("web-3")
		ctx, cancel := context.WithTimeout(t.Context(), 50*interval)
		defer cancel()
		waits := map[error]*acquisition{
			fairlock.ErrWaitTimeout:  begin(t.Context(), client.Mutex("x", fairlock.WithMaxWait(50*interval)).Lock),
			context.DeadlineExceeded: begin(ctx, client.Mutex("x").Lock),
		}
		fault(client.Link)
		for first, q := range waits {
			<-q.done
			require.ErrorIs(t, q.err, first)
			require.NotErrorIs(t, q.err, fairlock.ErrUnreachable)
			var held *fairlock.HeldError
			require.ErrorAs(t, q.err, &held)
			require.Equal(t, "web-3", held.Holder)
			require.Regexp(t, `^fairlock: lock "x": `+first.Error()+
				`: Redis has not answered for 50s: .+; held by web-3 until then$`,
				q.err.Error())
		}
	})
}
