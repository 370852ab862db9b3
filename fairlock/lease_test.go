package fairlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A lease ends for its holder one safety margin before a TTL has passed since the request was sent. In Redis it lasts
// for a TTL from when the request arrived.
//
//fairlock:promise A lease ends here first: one safety margin before its TTL, counted from before the request was sent
func TestLease_EndsOneSafetyMarginBeforeItsTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var j journal
		client := s.Client(fairlock.Config{Trace: j.trace()})
		x := client.Mutex("x")
		unlock(t, hold(t, x.Lock))           // so that the connection is there
		const delay = 450 * time.Millisecond // there and back takes less than a second: no copy is sent
		client.Link.Delay(delay, delay)
		sent := time.Now()
		lease := hold(t, x.Lock)
		assert.Equal(t, sent.Add(2*delay), time.Now())
		assert.Equal(t, sent.Add(ttl-safetyMargin(ttl)), lease.Deadline())
		begun := time.Now()
		sent = begun
		require.NoError(t, lease.Renew(t.Context()))
		assert.Equal(t, sent.Add(ttl-safetyMargin(ttl)), lease.Deadline())
		client.Link.Cut() // no renewal arrives

		pass(time.Until(lease.Deadline()) - 1)
		require.NoError(t, lease.Err())
		assert.Len(t, j.of("Ended"), 1, "the first lease")
		pass(1)
		require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
		require.Len(t, j.of("Ended"), 2)
		assert.Equal(t, lease.Deadline().Sub(begun), j.of("Ended")[1].info.(fairlock.EndedInfo).Held)
		<-lease.Done()

		pass(time.Until(sent.Add(delay+ttl)) - 1)
		s.Mutex("x").AssertHeldBy(client.Name())
		pass(1)
		s.Mutex("x").AssertFree()
	})
}

// fmt and log/slog print a lease, and a copy of one, without the secret of its token.
func TestLease_PrintedRedacted(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		text := lease.Token().Text()
		secret := text[len(text)-12:]
		var log logged
		log.logger().Info("x", "lease", lease)
		log.logger().Info("x", "lease", *lease)
		for _, line := range log.lines {
			assert.Contains(t, line, fmt.Sprintf("lease.lock=x lease.fence=%d lease.client=%s", lease.Fence(), lease.Token().Client()))
		}
		printed := log.lines[0] + log.lines[1]
		for _, verb := range []string{"%s", "%q", "%v", "%+v", "%#v", "%d", "%t"} {
			printed += fmt.Sprintf(verb, lease) + fmt.Sprintf(verb, *lease) + fmt.Sprintf(verb,
				struct{ l *fairlock.Lease }{lease})
		}
		assert.NotContains(t, printed, secret)
		assert.Contains(t, printed, lease.Token().String())
	})
}

// A lease says how many wait for its lock. A try is no waiter, and neither is one that has expired.
//
//fairlock:promise Waiting: a holder can ask how many wait for its lock, those that have expired excepted
func TestLease_Waiting(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		other := s.Client(fairlock.Config{})
		lease := hold(t, permits(s.Client(fairlock.Config{}).Semaphore("x", 3), 2))
		waiting := func() int {
			n, err := lease.Waiting(t.Context())
			require.NoError(t, err)
			return n
		}
		_, err := other.Semaphore("x", 3).TryAcquire(t.Context(), 2)
		require.ErrorIs(t, err, fairlock.ErrBusy)
		require.Equal(t, 0, waiting())
		begin(t.Context(), permits(other.Semaphore("x", 3), 2))
		require.Equal(t, 1, waiting())
		other.Link.Cut()
		pass(time.Minute)
		require.Equal(t, 0, waiting())
	})
}

// The holder learns of the end at its lease's deadline, when Redis still keeps the lock for it.
//
//fairlock:fault Redis hangs, crashes, or is cut off from a holder: Done closes before the TTL ends in Redis; ErrLost
func TestLease_LostBeforeTheTTLEndsInRedis(t *testing.T) {
	bubbles(t, map[string]func(*fairlocktest.Server, *fairlocktest.Link){
		"Redis hangs":     func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Hang() },
		"the link is cut": func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Cut() },
		"Redis crashes":   func(s *fairlocktest.Server, _ *fairlocktest.Link) { s.Stop() },
	}, func(t *testing.T, s *fairlocktest.Server, _ string, fail func(*fairlocktest.Server, *fairlocktest.Link)) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		pass(ttl / 2) // once renewed
		deadline := lease.Deadline()
		fail(s, client.Link)
		<-lease.Done()
		assert.Equal(t, deadline, time.Now())
		require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnreachable)
		s.Mutex("x").AssertHeldBy(client.Name())
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
		assert.Equal(t, deadline, time.Now(), "Unlock of a lost lease sends nothing")
		pass(safetyMargin(ttl))
		s.Mutex("x").AssertFree()
	})
}

// Renew that fails leaves the lease as it was. It tries until ctx or the lease ends.
func TestLease_RenewFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := clientWith(t, s, fairlock.Config{}, sendOnce)
		lease := hold(t, client.Mutex("x").Lock)
		deadline := lease.Deadline()
		client.Link.Cut()
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		err := lease.Renew(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `"x": context deadline exceeded: tried for 1s: `)
		require.ErrorContains(t, err, "connection refused")
		require.NotErrorIs(t, err, fairlock.ErrLost)
		assert.Equal(t, deadline, lease.Deadline())
		require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrLost)
		assert.Equal(t, deadline, time.Now())
	})
}

// A grant that is over by the time of the reply is not used, and given back. A waiter sends acquire again.
func TestLease_OverBeforeTheReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		x := s.Client(fairlock.Config{TTL: time.Second})
		unlock(t, hold(t, x.Mutex("x").Lock))
		for want, lock := range map[error]acquire{nil: x.Mutex("x").Lock, fairlock.ErrExpired: x.Mutex("x").TryLock} {
			x.Link.Delay(0, time.Second-safetyMargin(time.Second)) // then it is over, and still held in Redis
			q := begin(t.Context(), lock)
			x.Link.Mend()
			<-q.done
			require.ErrorIs(t, q.err, want)
			if want == nil {
				unlock(t, q.lease)
			}
			s.AssertNothingLeft()
		}
	})
}

// The ctx of a lease ends when the lease does, not when the ctx of the wait does.
//
//fairlock:promise A lease's context: ends with the lease, not with the wait
func TestLease_Context(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		wait, cancelWait := context.WithCancel(t.Context())
		lease, err := s.Client(fairlock.Config{}).Mutex("x").Lock(wait)
		require.NoError(t, err)
		cancelWait()
		value := new([64]byte)
		kept := weak.Make(value)
		_, cancel := lease.Context(context.WithValue(t.Context(), callers{}, value))
		cancel()
		runtime.GC()
		assert.Nil(t, kept.Value(), "the lease keeps a ctx that was cancelled")
		ctx, cancel := lease.Context(context.WithValue(t.Context(), callers{}, "v"))
		defer cancel()
		pass(time.Minute)
		require.NoError(t, ctx.Err())
		require.NoError(t, lease.Err())
		assert.Equal(t, "v", ctx.Value(callers{}))
		assert.Same(t, lease, leaseIn(ctx))
		unlock(t, lease)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), fairlock.ErrUnlocked)
		late, cancel := lease.Context(t.Context())
		defer cancel()
		require.ErrorIs(t, context.Cause(late), fairlock.ErrUnlocked)
	})
}

func TestLeaseFromContext_OutsideALock(t *testing.T) {
	_, ok := fairlock.LeaseFromContext(t.Context())
	assert.False(t, ok)
}

// Renew returns nil if its request hangs until the deadline, and a renewal in the background has succeeded meanwhile.
func TestRenew_AnotherHasSucceeded(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{TTL: 2 * time.Second}) // less than the ReadTimeout of go-redis
		lease := hold(t, client.Mutex("x").Lock)
		client.Link.Delay(0, time.Minute)
		time.AfterFunc(100*time.Millisecond, func() { client.Link.Delay(0, 0) })
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Err())
	})
}

// The client that had a lease cannot reach Redis when another process resumes it. Its renewal and the release of the
// lost lease arrive later.
//
//fairlock:promise Late requests of a resumed lease: what the process sends late that had the lease before changes nothing
func TestResume_WhatArrivesLateChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		first := s.Client(fairlock.Config{})
		recorder := record(first)
		lease := hold(t, first.Mutex("x").Lock)
		first.Link.Hang()
		pass(ttl / 2) // a renewal was sent
		resumed, err := s.Client(fairlock.Config{}).Mutex("x").Resume(t.Context(), lease.Handle())
		require.NoError(t, err)
		<-lease.Done()
		first.Link.Mend()
		pass(ttl)
		assert.NotEmpty(t, recorder.times("release", time.Now()))
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
		require.NoError(t, resumed.Renew(t.Context()))
		unlock(t, resumed)
	})
}

// If ctx ends as the lease does, the error is the loss: the caller must not go on as its holder.
func TestRenew_CtxEndsWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		client.Link.Hang()
		ctx, cancel := context.WithDeadline(t.Context(), lease.Deadline())
		defer cancel()
		require.ErrorIs(t, lease.Renew(ctx), fairlock.ErrLost)
	})
}

// However often a refused Unlock is called, one release goes on in the background.
//
//fairlock:fault Redis refuses to release a lock (rights, password, memory, a proxy)
func TestUnlock_RefusedAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{TTL: time.Minute})
		lease := hold(t, client.Mutex("x").Lock)
		sent := record(client)
		s.Miniredis.SetError("NOPERM")
		for range 5 {
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrRefused)
		}
		sent.reset()
		pass(10 * time.Second)
		assert.InDelta(t, 10, len(sent.requests()), 1)
		s.Miniredis.SetError("")
		pass(time.Second)
		s.Mutex("x").AssertFree()
	})
}

// Several calls at once return the same, and send one request: when the network is back, and if the lock was taken.
//
//fairlock:fault Unlock cannot reach Redis
//fairlock:promise Force-release
func TestUnlock_ConcurrentCallsAgree(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		sent := record(client)
		for _, want := range []error{nil, fairlock.ErrRevoked} {
			lease := hold(t, client.Mutex("x").Lock)
			if want != nil {
				s.Mutex("x").ForceRelease()
			} else {
				client.Link.Cut()
			}
			errs := make(chan error)
			for range 10 {
				go func() { errs <- lease.Unlock(t.Context()) }()
			}
			sent.reset()
			client.Link.Mend()
			for range 10 {
				require.ErrorIs(t, <-errs, want)
			}
			assert.Len(t, sent.times("release", time.Now()), 1)
			require.Error(t, lease.Err())
			s.Mutex("x").AssertFree()
		}
	})
}

// go-redis resends what a replica refuses. Unlock cannot tell then which copy has released the lock, or that none has.
//
//fairlock:fault Redis refuses writes when a lock is released, and has lost the grant when it accepts them: Unlock returns nil, because an earlier copy may have released it
func TestUnlock_SentTwice(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock)
		s.Miniredis.SetError(readOnly)
		time.AfterFunc(time.Second, func() {
			s.Miniredis.SetError("")
			s.LoseData() // the new primary has missed the grant
		})
		unlock(t, lease)
	})
}

// Detach ends the lease here, and leaves the lock held for a client that resumes it. Nothing is sent for it any more.
//
//fairlock:promise Detach: the lease ends here, its lock stays held so that another process can resume it, and nothing more is sent
func TestLease_Detach(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		sent := record(client)
		lease := hold(t, client.Mutex("x").Lock)
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		sent.reset()
		detach(t, lease)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), fairlock.ErrDetached)
		pass(ttl / 2)
		s.Mutex("x").AssertHeldBy(client.Name())
		resumed, err := s.Client(fairlock.Config{}).Mutex("x", fairlock.WithTTL(time.Minute)).Resume(t.Context(),
			lease.Handle())
		require.NoError(t, err)
		assert.Equal(t, time.Now().Add(time.Minute-safetyMargin(time.Minute)), resumed.Deadline(), "it has a TTL of its own")
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrDetached)
		require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrDetached)
		require.NoError(t, client.Close())
		assert.Empty(t, sent.requests())
		unlock(t, resumed)
	})
}

// In the function of Do, Detach is no error.
func TestDo_Detach(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		require.NoError(t, client.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			detach(t, leaseIn(ctx))
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), fairlock.ErrDetached)
			return nil
		}))
		s.Mutex("x").AssertHeldBy(client.Name())
	})
}

// A call of Do whose function has run can be told from one that never called it, though Redis is away in both.
func TestDo_SaysThatTheReleaseFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		m := client.Mutex("x")
		f := func(context.Context) error {
			client.Link.Hang()
			return nil
		}
		for _, op := range []string{"unlock", "trydo"} {
			var e *fairlock.Error
			err := m.TryDo(t.Context(), f)
			require.ErrorIs(t, err, fairlock.ErrUnreachable)
			require.NotErrorIs(t, err, fairlock.ErrLost)
			require.ErrorAs(t, err, &e)
			assert.Equal(t, op, e.Op)
		}
	})
}

// detach detaches a lease that is held.
func detach(t *testing.T, l *fairlock.Lease) fairlock.Handle {
	t.Helper()
	h, err := l.Detach()
	require.NoError(t, err)
	require.Equal(t, l.Handle(), h)
	return h
}
