package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/script"
)

const maxWait = time.Second

// waitsWithin are the ways to wait for the lock x of a client, for maxWait at most.
func waitsWithin(c *fairlocktest.Client) map[string]func(context.Context) error {
	never := func(context.Context) error { return errors.New("f was called") }
	m, s, rw := c.Mutex("x", fairlock.WithMaxWait(maxWait)), c.Semaphore("x", 5,
		fairlock.WithMaxWait(maxWait)), c.RWMutex("x", fairlock.WithMaxWait(maxWait))
	lock := func(a acquire) func(context.Context) error {
		return func(ctx context.Context) error { _, err := a(ctx); return err }
	}
	return map[string]func(context.Context) error{
		"mutex lock": lock(m.Lock), "mutex do": func(ctx context.Context) error { return m.Do(ctx, never) },
		"semaphore acquire": lock(permits(s, 5)), "semaphore do": func(ctx context.Context) error {
			return s.Do(ctx, 5,
				never)
		},
		"rwmutex lock": lock(rw.Lock), "rwmutex do": func(ctx context.Context) error { return rw.Do(ctx, never) },
		"rwmutex rlock": lock(rw.RLock), "rwmutex rdo": func(ctx context.Context) error { return rw.RDo(ctx, never) },
	}
}

// A call that has waited for MaxWait returns ErrWaitTimeout then, which names the holder, and leaves the queue. If ctx
// ends before, the error is that of ctx.
//
//fairlock:promise A limit for waiting: WithMaxWait bounds the wait, and the error says whether it or ctx has ended; the lease and f have no limit by it
func TestWithMaxWait_NamesTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		all := []fairlocktest.Lock{s.Mutex("x"), s.Semaphore("x", 5), s.RWMutex("x")}
		for _, l := range all {
			l.HoldAs("web-3")
		}
		for name, wait := range waitsWithin(s.Client(fairlock.Config{})) {
			start := time.Now()
			err := wait(t.Context())
			assert.Equal(t, maxWait, time.Since(start), name)
			require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, `"x": wait timed out (held by web-3)`, name)
			for _, l := range all {
				l.AssertQueue()
			}
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

// The first request is part of the wait, also if Redis hangs. The error has what Redis has said last.
//
//fairlock:fault ctx ends, Redis hangs
func TestWithMaxWait_WithoutRedis(t *testing.T) {
	bubbles(t, map[string]bool{"a deadline ends requests": true, "it does not": false},
		func(t *testing.T, s *fairlocktest.Server, _ string, inline bool) {
			client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) {
				o.ContextTimeoutEnabled,
					o.ReadTimeout = inline, -1
			})
			m := client.Mutex("x", fairlock.WithMaxWait(maxWait))
			soon, cancel := context.WithTimeout(t.Context(), time.Minute+2*maxWait+1) // ends 1 ns after the second wait
			defer cancel()
			for _, ctx := range []context.Context{context.Background(), soon} {
				unlock(t, hold(t, m.Lock)) // the next request is sent inline
				client.Link.Hang()
				start := time.Now()
				_, err := m.Lock(ctx)
				assert.LessOrEqual(t, time.Since(start), maxWait+25*time.Millisecond)
				require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				why := map[bool]string{true: "context deadline exceeded", false: "Redis did not reply"}[inline]
				require.EqualError(t, err, fmt.Sprintf(`fairlock: lock "x": wait timed out: tried for %v: %s`, maxWait, why))
				client.Link.Mend()
				pass(time.Minute - time.Since(start) + maxWait)
				s.Mutex("x").AssertFree()
				s.Mutex("x").AssertQueue()
			}
		})
	t.Run("Redis refuses, and no holder is known", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *fairlocktest.Server) {
			client, sent, _ := listening(t, s, fairlock.Config{})
			require.NoError(t, s.Miniredis.Set(script.KeysOf("mutex", bounds.DefaultNamespace, "x").Part("lock"),
				"of another program"))
			q := begin(t.Context(), client.Mutex("x", fairlock.WithMaxWait(6*maxWait)).Lock)
			s.Miniredis.Del(script.KeysOf("mutex", bounds.DefaultNamespace, "x").Part("queue")) // so that it sends acquire again
			sent.setAfter(func(redis.Cmder) { s.Miniredis.SetError(readOnly) })
			<-q.done
			require.ErrorIs(t, q.err, fairlock.ErrWaitTimeout)
			require.EqualError(t, q.err, `fairlock: lock "x": wait timed out: tried for 5s: `+readOnly)
			var reply redis.Error
			require.ErrorAs(t, q.err, &reply)
		})
	})
}

// WithMaxWait has no effect on a lease, on f, on Try… and on Resume.
//
//fairlock:promise A limit for waiting
func TestWithMaxWait_BoundsNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		m := client.Mutex("x", fairlock.WithMaxWait(maxWait))
		held := s.Mutex("x").HoldAs("holder")
		time.AfterFunc(maxWait-1, func() { assert.NoError(t, held.Unlock(context.Background())) })
		err := m.Do(t.Context(), func(ctx context.Context) error {
			pass(10 * maxWait)
			return ctx.Err()
		})
		require.NoError(t, err)
		lease := hold(t, m.Lock)
		pass(10 * maxWait)
		require.NoError(t, lease.Err())

		for name, call := range map[string]func(m fairlock.Mutex) error{
			"resume": func(m fairlock.Mutex) error { _, err := m.Resume(t.Context(), lease.Handle()); return err },
			"try":    func(m fairlock.Mutex) error { _, err := m.TryLock(t.Context()); return err },
		} {
			client.Link.Delay(maxWait/2, maxWait/2+time.Millisecond)
			err := call(m)
			client.Link.Mend()
			require.NotErrorIs(t, err, fairlock.ErrWaitTimeout, name)
			assert.Equal(t, name == "try", errors.Is(err, fairlock.ErrBusy), fmt.Sprint(name, err))
		}
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
