package fairlock_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
)

// A loss of the lock stands in the error of Do once, and the operation is do.
//
//fairlock:promise Do
func TestDo_ReportsALossOnce(t *testing.T) {
	const lost = `fairlock: do "x": lock is lost: no longer the owner`
	ended := func(ctx context.Context) { <-ctx.Done() }
	type example struct {
		f    func(ctx context.Context) error
		want string
	}
	bubbles(t, map[string]example{
		"f returns nil":       {func(ctx context.Context) error { ended(ctx); return nil }, lost},
		"f returns the cause": {func(ctx context.Context) error { ended(ctx); return context.Cause(ctx) }, lost},
		"f returns its own error": {func(ctx context.Context) error { ended(ctx); return errors.New("mine") }, "mine\n" +
			lost},
		"f returns ctx's error": {func(ctx context.Context) error { ended(ctx); return ctx.Err() }, "context canceled\n" +
			lost},
		"f does not wait, no loss": {func(context.Context) error { return errors.New("mine") }, "mine"},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		m := s.Client(fairlock.Config{}).Mutex("x")
		err := m.Do(t.Context(), func(ctx context.Context) error {
			time.AfterFunc(time.Second, s.Mutex("x").ForceRelease)
			return c.f(ctx)
		})
		require.EqualError(t, err, c.want)
		pass(2 * time.Second)
	})
	t.Run("it is lost before f begins", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *fairlocktest.Server) {
			slow := &fairlock.Trace{Granted: func(fairlock.GrantedInfo) {
				s.Mutex("x").Expire()
				time.Sleep(bounds.DefaultTTL) // a renewal finds that
			}}
			err := s.Client(fairlock.Config{Trace: slow}).Mutex("x").Do(t.Context(), func(context.Context) error {
				t.Error("f runs without the lock")
				return nil
			})
			require.ErrorIs(t, err, fairlock.ErrLost)
		})
	})
	t.Run("the lock is not granted", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *fairlocktest.Server) {
			client := s.Client(fairlock.Config{})
			client.Link.Cut()
			var failed *fairlock.Error
			require.ErrorAs(t, client.RWMutex("x").RDo(t.Context(), nil), &failed)
			assert.Equal(t, "rdo", failed.Op)
		})
	})
}

// If the reply to a force-release is lost, it is sent again. By then the next waiter has the lock, and keeps it.
//
//fairlock:promise Force-release
func TestForceRelease_LostReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, operator := s.Client(fairlock.Config{}), s.Client(fairlock.Config{})
		operator.Redis.AddHook(&recorder{before: func(n int, _ redis.Cmder) error {
			if n%2 == 1 { // it has looked at the holder, and takes the lock from it now
				operator.Link.DropReply()
			}
			return nil
		}})
		first := hold(t, client.Mutex("x").Lock)
		next := begin(t.Context(), client.Mutex("x").Lock)
		behind := begin(t.Context(), client.Mutex("x").Lock)
		released, err := admin.New(operator.Redis, "").ForceRelease(t.Context(), fairlock.ID{Kind: fairlock.KindMutex, Name: "x"})
		require.NoError(t, err)
		assert.True(t, released)
		lease := next.granted(t)
		require.NoError(t, lease.Renew(t.Context()))
		require.ErrorIs(t, first.Renew(t.Context()), fairlock.ErrRevoked)
		assert.True(t, behind.pending())
		unlock(t, lease)
		unlock(t, behind.granted(t))
	})
}

// Inspect shows whether a holder is alive, long before its lease ends: by the renewals that should have followed. Each
// is due when a third of what was left has passed. A lease that was handed over begins shorter than its TTL, and is to
// be renewed half a second later.
//
//fairlock:promise Inspect and Trace: the holders and the waiters, in order; the life of a lock, event by event
func TestInspect_RenewalsOfAHolder(t *testing.T) {
	type missed map[time.Duration]int // by the time since the lease began
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		check := func(l fairlocktest.Lock, want missed) {
			began := time.Now()
			for _, after := range slices.Sorted(maps.Keys(want)) {
				pass(time.Until(began.Add(after)))
				h := l.State().Holders[0]
				assert.Equal(t, []any{after, want[after]}, []any{h.Renewed.Round(time.Millisecond), h.Missed})
			}
		}
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("handed").Lock)
		pass(ttl - ttl/20)
		h := s.Mutex("handed").State().Holders[0]
		assert.Equal(t, []any{ttl - h.TTL, 0, ttl - ttl/20}, []any{h.Renewed, h.Missed, h.Age})
		s.Mutex("handed").CrashQueued("gone", 6*time.Second)
		unlock(t, lease)
		check(s.Mutex("handed"), missed{0: 0, 600 * time.Millisecond: 0, 800 * time.Millisecond: 1,
			2400 * time.Millisecond: 1, 2600 * time.Millisecond: 2})
		s.Semaphore("y", 3).CrashHolding("gone", 9*time.Second)
		check(s.Semaphore("y", 3), missed{3 * time.Second: 0, 3600 * time.Millisecond: 1, 5 * time.Second: 1,
			5400 * time.Millisecond: 2, 6750 * time.Millisecond: 3, 8100 * time.Millisecond: 4})
		require.NoError(t, s.Miniredis.Set("fairlock:{z}:lock", "theirs"))
		h = s.Mutex("z").State().Holders[0]
		assert.Equal(t, []any{time.Duration(0), time.Duration(-1), 0}, []any{h.Age, h.Renewed, h.Missed},
			"nothing is known of it")
	})
}

// Redis does not undo what a script has written before one of its commands is refused.
//
//fairlock:fault A script fails half-way: Lock returns the error, and what the script had granted or queued is removed at once; while Redis refuses that, it is tried each second for TTL + WaiterTTL
func TestLock_LeavesAfterScriptError(t *testing.T) {
	const failed = "ERR The user executing the script can't run this command or subcommand script: 0123, on @user_script:3."
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		requests := 0
		record(client).after = func(cmd redis.Cmder) {
			if requests++; requests%2 == 1 {
				cmd.SetErr(refusal(failed))
			}
		}
		_, err := client.Mutex("x").Lock(t.Context()) // granted in Redis
		require.ErrorContains(t, err, "can't run this command")
		synctest.Wait()
		_, err = client.Semaphore("x", 2).TryAcquire(t.Context(), 1)
		require.ErrorContains(t, err, "can't run this command")
		synctest.Wait()
		s.Mutex("y").TakeAs("other")
		_, err = client.Mutex("y").Lock(t.Context()) // queued in Redis
		require.ErrorContains(t, err, "can't run this command")
		synctest.Wait()
		s.Mutex("y").AssertQueue()
		assert.Equal(t, 6, requests, "acquire and leave of each")
		for _, key := range s.Miniredis.Keys() {
			assert.True(t, strings.HasSuffix(key, ":number") || strings.HasSuffix(key, ":heartbeats") ||
				key == "fairlock:{y}:lock", "%s is left", key)
		}
	})
}

// The cause of the caller's ctx says nothing about the request that was in flight, even if it is an error of Redis. An
// errgroup's ctx ends with any error that one of its functions has returned.
//
//fairlock:fault ctx ends with an error of Redis as its cause: as any other end of ctx; the lock is not held afterwards
func TestLock_CauseIsRedisError(t *testing.T) {
	bubbles(t, map[string]error{
		"of another command": refusal("WRONGTYPE x"), "of another script": refusal(
			"NOSCRIPT x"), "of another server": refusal("READONLY x"),
		"nil": redis.Nil, "closed": redis.ErrClosed, "plain": errors.New("x"),
	}, func(t *testing.T, s *fairlocktest.Server, _ string, cause error) {
		client := s.Client(fairlock.Config{})
		sent := record(client)
		client.Link.Hang()
		ends := func() context.Context {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second/2, func() { cancel(cause) }) // before a copy is sent
			return ctx
		}
		_, err := client.Mutex("x").TryLock(ends())
		require.ErrorIs(t, err, context.Canceled, cause)
		require.ErrorIs(t, err, cause)
		_, err = client.Mutex("x").Lock(ends())
		require.ErrorIs(t, err, context.Canceled, cause)
		require.ErrorIs(t, err, cause)
		client.Link.Mend()
		synctest.Wait()
		s.AssertNothingLeft()
		assert.ElementsMatch(t, []string{"acquire", "acquire", "leave", "leave"}, sent.requests()) // of two senders
	})
}
