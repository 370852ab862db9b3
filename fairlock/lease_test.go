package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
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
		printed := log.lines[0]
		for _, verb := range []string{"%s", "%q", "%v", "%+v", "%#v", "%d", "%t"} {
			printed += fmt.Sprintf(verb, lease) + fmt.Sprintf(verb, *lease) + fmt.Sprintf(verb,
				struct{ l *fairlock.Lease }{lease})
		}
		assert.NotContains(t, printed, secret)
		assert.Contains(t, printed, lease.Token().String())
	})
}

// A lease of each kind says how many wait for its lock. A try is no waiter, and neither is one that has expired.
//
//fairlock:promise Waiting: a holder can ask how many wait for its lock, those that have expired excepted
func TestLease_Waiting(t *testing.T) {
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
		other := s.Client(fairlock.Config{})
		a, b := of(s.Client(fairlock.Config{})), of(other)
		lease := hold(t, a.hold)
		waiting := func() int {
			n, err := lease.Waiting(t.Context())
			require.NoError(t, err)
			return n
		}
		_, err := b.try(t.Context())
		require.ErrorIs(t, err, fairlock.ErrBusy)
		require.Equal(t, 0, waiting())
		begin(t.Context(), b.wait)
		require.Equal(t, 1, waiting())
		other.Link.Cut()
		pass(time.Minute)
		require.Equal(t, 0, waiting())
	})
}

// Each renewal is sent when a third of the trusted time has passed, and gives the lease its whole TTL. A lock that was
// released is not renewed.
//
//fairlock:promise A lease lasts: renewed when a third of its TTL has passed, for as long as it is held
func TestLease_RenewedAtAThirdOfItsTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		sent := record(client)
		lease := hold(t, client.Mutex("x").Lock)
		sent.reset()
		start, third := time.Now(), (ttl-safetyMargin(ttl))/3
		for i := range 30 {
			pass(third)
			require.Len(t, sent.times("renew", start), i+1)
			require.Equal(t, time.Duration(i+1)*third, sent.times("renew", start)[i])
			require.Equal(t, time.Now().Add(ttl-safetyMargin(ttl)), lease.Deadline())
			require.Equal(t, ttl, s.Mutex("x").State().Holders[0].TTL)
		}
		unlock(t, lease)
		sent.reset()
		pass(time.Hour)
		assert.Empty(t, sent.requests())
	})
}

// A renewal that fails is followed by another, each after a third of what is left, until the lease ends. One that
// succeeds makes up for all.
//
//fairlock:fault A renewal fails or hangs: tried again until the deadline; a hung connection costs no lease and no ticket
func TestLease_RenewalIsTriedUntilTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var j journal
		client, start := clientWith(t, s, fairlock.Config{Trace: j.trace()}, sendOnce), time.Now()
		lease := hold(t, client.Mutex("x").Lock)
		s.Miniredis.SetError("LOADING for a while")
		var due []time.Time
		end := ttl - safetyMargin(ttl)
		for at := start; at.Before(start.Add(end)); at = at.Add(max(start.Add(end).Sub(at)/3, ttl/30)) {
			due = append(due, at)
		}
		due = due[1:]
		pass(time.Until(due[len(due)-1]) - 1)
		s.Miniredis.SetError("")
		require.NoError(t, lease.Err())
		pass(1)
		require.Len(t, j.of("Renewed"), len(due))
		for i, tried := range j.of("Renewed") {
			assert.Equal(t, due[i], tried.at)
			assert.Equal(t, i < len(due)-1, tried.info.(fairlock.RenewedInfo).Err != nil)
		}
		assert.Equal(t, time.Now().Add(end), lease.Deadline())

		s.Miniredis.SetError("LOADING for ever")
		pass(end - 1)
		require.NoError(t, lease.Err())
		pass(1)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnreachable)
		require.ErrorContains(t, lease.Err(), "LOADING for ever")
	})
}

// The holder learns of the end at its lease's deadline, when Redis still keeps the lock for it.
//
//fairlock:fault Redis hangs, crashes, or is cut off from a holder: Done closes before the TTL ends in Redis; ErrLost
func TestLease_LostBeforeTheTTLEndsInRedis(t *testing.T) {
	bubbles(t, map[string]func(*fairlocktest.Server, *fairlocktest.Link){
		"Redis hangs":       func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Hang() },
		"the link is cut":   func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Cut() },
		"Redis crashes":     func(s *fairlocktest.Server, _ *fairlocktest.Link) { s.Stop() },
		"replies are late":  func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Delay(0, ttl) },
		"requests are late": func(_ *fairlocktest.Server, l *fairlocktest.Link) { l.Delay(ttl, 0) },
	}, func(t *testing.T, s *fairlocktest.Server, name string, fail func(*fairlocktest.Server, *fairlocktest.Link)) {
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
		if name != "replies are late" && name != "requests are late" {
			pass(safetyMargin(ttl))
			s.Mutex("x").AssertFree()
		}
	})
}

// A renewal that arrives when its lease was lost here keeps the lock in Redis for another TTL. The lease is released
// when its safety margin is over, or when Unlock is called, so that the lock is not held for nobody.
//
//fairlock:fault A renewal arrives after its lease was lost here: the lock is free when the safety margin is over, or at Unlock
func TestLease_RenewalArrivesAfterTheLoss(t *testing.T) {
	late := safetyMargin(ttl) / 4 // after the loss
	bubbles(t, map[string]bool{"Unlock is called": true, "its holder does nothing": false},
		func(t *testing.T, s *fairlocktest.Server, _ string, unlocks bool) {
			client := clientWith(t, s, fairlock.Config{Name: "client"}, sendOnce)
			x := s.Mutex("x")
			lease := hold(t, client.Mutex("x").Lock)
			deadline := lease.Deadline()
			next := begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
			pass(time.Until(deadline)/3 - 1)
			client.Link.Delay(time.Until(deadline)+late-1, 0)
			<-lease.Done()
			client.Link.Mend()
			pass(late)
			x.AssertHeldBy("client")
			require.Equal(t, ttl, x.State().Holders[0].TTL, "it was renewed for nobody")
			want := deadline.Add(safetyMargin(ttl))
			if unlocks {
				want = time.Now()
				require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
			}
			next.granted(t)
			assert.Equal(t, want, next.at)
		})
}

// The release of a lost lease is repeated until Redis answers it, and does not outlive Close.
//
//fairlock:fault A renewal arrives after its lease was lost here
func TestLease_ReleasedWhenRedisIsBack(t *testing.T) {
	bubbles(t, map[string]bool{"open": false, "closed": true},
		func(t *testing.T, s *fairlocktest.Server, _ string, closes bool) {
			client := clientWith(t, s, fairlock.Config{}, sendOnce)
			sent := record(client)
			lease := hold(t, client.Mutex("x").Lock)
			client.Link.Cut()
			<-lease.Done()
			if closes {
				require.NoError(t, client.Close())
			}
			pass(ttl / 2)
			client.Link.Mend()
			sent.reset()
			start := time.Now()
			pass(ttl)
			if closes {
				assert.Empty(t, sent.requests())
				return
			}
			require.Len(t, sent.times("release", start), 1)
			assert.LessOrEqual(t, sent.times("release", start)[0], time.Second)
		})
}

// After a handoff the first renewal comes half a second after the lease began: what Redis gave may be much less than
// TTL. The next ones come after a third of the trusted time.
//
//fairlock:promise A lease lasts
func TestLease_FirstRenewalAfterAHandoff(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client, sent, _ := listening(t, s, fairlock.Config{})
		held := s.Mutex("x").HoldAs("holder")
		next := begin(t.Context(), client.Mutex("x").Lock)
		unlock(t, held)
		lease, start, third := next.granted(t), time.Now(), (ttl-safetyMargin(ttl))/3
		sent.reset()
		pass(time.Second/2 + third)
		assert.Equal(t, []time.Duration{time.Second / 2, time.Second/2 + third}, sent.times("renew", start))
		assert.Equal(t, time.Now().Add(ttl-safetyMargin(ttl)), lease.Deadline())
	})
}

// A lock that was taken away is lost at the next renewal, or when Unlock finds it. Whatever is in its place stays.
//
//fairlock:fault The lock is deleted or taken by force: ErrLost at the next renewal, and at Unlock
//fairlock:fault The server's clock steps forward: the holder is told at its next renewal
func TestLease_TakenIsLostAtTheNextRenewal(t *testing.T) {
	const key = "fairlock:{x}:lock"
	bubbles(t, map[string]func(*fairlocktest.Server){
		"deleted":        func(s *fairlocktest.Server) { s.Miniredis.Del(key) },
		"overwritten":    func(s *fairlocktest.Server) { _ = s.Miniredis.Set(key, "something else") },
		"force-released": func(s *fairlocktest.Server) { s.Mutex("x").TakeAs("taker") },
		"expired by a step of the server's clock": func(s *fairlocktest.Server) { s.StepClock(ttl) },
	}, func(t *testing.T, s *fairlocktest.Server, _ string, take func(*fairlocktest.Server)) {
		client := s.Client(fairlock.Config{})
		x, start := client.Mutex("x"), time.Now()
		lease := hold(t, x.Lock)
		take(s)
		<-lease.Done()
		assert.Equal(t, (ttl-safetyMargin(ttl))/3, time.Since(start))
		require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
		require.ErrorIs(t, lease.Err(), fairlock.ErrRevoked)
		require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrRevoked)
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrRevoked)

		s.Miniredis.Del(key)
		lease = hold(t, x.Lock)
		take(s)
		before, _ := s.Miniredis.Get(key)
		for range 2 { // the second call returns the same
			require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrRevoked)
		}
		after, _ := s.Miniredis.Get(key)
		assert.Equal(t, before, after)
	})
}

// A process that was paused for longer than its lease finds it over when it looks, before any timer fires. Its Unlock
// sends nothing, and the next owner keeps the lock.
//
//fairlock:fault A holder is stopped (SIGSTOP) beyond its lease: its lease is over when it looks; a late Unlock does not touch the next owner
func TestLease_OverAfterAPause(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		clock := s.LocalClock()
		client, other := s.Client(fairlock.Config{Clock: clock}), s.Client(fairlock.Config{})
		sent := record(client)
		lease, unseen := hold(t, client.Mutex("x").Lock), hold(t, client.Mutex("y").Lock)
		next := begin(t.Context(), other.Mutex("x").Lock)
		sent.reset()
		clock.Pause()
		client.Link.Hang()
		owner := next.granted(t)
		client.Link.Mend()

		select {
		case <-lease.Done():
		default:
			t.Error("Done is open")
		}
		require.ErrorIs(t, lease.Err(), fairlock.ErrLost)
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
		require.ErrorIs(t, unseen.Unlock(t.Context()), fairlock.ErrLost)
		require.ErrorIs(t, unseen.Err(), fairlock.ErrLost)
		assert.Empty(t, sent.requests())
		clock.Resume()
		pass(time.Minute)
		require.NoError(t, owner.Err())
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
		s.Mutex("x").AssertHeldBy(other.Name())
	})
}

// Renew that fails leaves the lease as it was. It tries until ctx or the lease ends, and succeeds if Redis serves it
// meanwhile.
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
		time.AfterFunc(time.Second, client.Link.Mend)
		require.NoError(t, lease.Renew(t.Context()))
		assert.True(t, lease.Deadline().After(deadline))
		client.Link.Delay(0, time.Hour)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, lease.Renew(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		client.Link.Mend()
		require.NoError(t, lease.Renew(t.Context()))
		deadline = lease.Deadline()
		client.Link.Delay(0, time.Hour)
		require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrLost)
		assert.Equal(t, deadline, time.Now())
	})
}

// The lease that a waiter gets is trusted from a request on, so one that is over by the time of the reply is not used.
func TestLease_OverBeforeTheReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{TTL: time.Second})
		x := client.Mutex("x")
		unlock(t, hold(t, x.Lock))
		late := time.Second - safetyMargin(time.Second) // then it is over, and still held in Redis
		client.Link.Delay(0, late)
		q := begin(t.Context(), x.Lock)
		client.Link.Mend()
		lease := q.granted(t)
		require.NoError(t, lease.Err())
		assert.Equal(t, q.at.Add(late), lease.Deadline(), "of a second request")
		unlock(t, lease)
		s.AssertNothingLeft()

		client.Link.Delay(0, late)
		q = begin(t.Context(), x.TryLock)
		client.Link.Mend()
		<-q.done
		require.ErrorIs(t, q.err, fairlock.ErrExpired)
		s.AssertNothingLeft()
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

// A renewal that fails before or after one that has succeeded says nothing about the lease: when it ends, the reason is
// not that failure.
func TestRenew_OlderFailureIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		clock := s.LocalClock()
		client := s.Client(fairlock.Config{Clock: clock})
		lease := hold(t, client.Mutex("x").Lock)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		client.Link.Delay(0, time.Minute) // of the reply to this one
		var older sync.WaitGroup
		older.Go(func() { assert.ErrorIs(t, lease.Renew(ctx), context.DeadlineExceeded) })
		time.Sleep(time.Second)
		client.Link.Delay(0, 0)
		s.Miniredis.SetError(readOnly)
		time.AfterFunc(1, func() { s.Miniredis.SetError("") })
		require.NoError(t, lease.Renew(t.Context()))
		older.Wait()
		clock.Pause() // before the next renewal
		pass(time.Until(lease.Deadline()))
		require.ErrorIs(t, lease.Err(), fairlock.ErrExpired)
		require.NotErrorIs(t, lease.Err(), fairlock.ErrUnreachable)
	})
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

// The reply to an earlier renewal that comes late does not shorten the lease.
func TestRenew_LateReplyOfAnEarlierOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		client.Link.Delay(0, 2*time.Second)
		go func() { assert.NoError(t, lease.Renew(t.Context())) }()
		time.Sleep(time.Second)
		client.Link.Delay(0, 0)
		require.NoError(t, lease.Renew(t.Context()))
		deadline := lease.Deadline()
		pass(2 * time.Second)
		assert.Equal(t, deadline, lease.Deadline())
	})
}

// A lease that was resumed has the TTL of the lock that resumed it.
func TestResume_HasItsOwnTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		lease := hold(t, s.Client(fairlock.Config{}).Mutex("x", fairlock.WithTTL(time.Second)).Lock)
		resumed, err := s.Client(fairlock.Config{}).Mutex("x").Resume(t.Context(), lease.Handle())
		require.NoError(t, err)
		assert.Equal(t, time.Now().Add(ttl-safetyMargin(ttl)), resumed.Deadline())
		pass(2 * ttl)
		unlock(t, resumed)
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

// An acquire that arrives late was granted the lock again, when the lease of the same token had ended.
//
//fairlock:fault An acquire is sent again, and arrives after Redis has ended its lease: the holder's next renewal releases the new lease
func TestRenew_GivesALaterLeaseBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		s.Mutex("x").Expire()
		lock, _ := script.Of(dispatch.NewDirect(client.Redis), "mutex", bounds.DefaultNamespace, "x")
		reply, err := lock.Acquire(t.Context(),
			script.Request{Token: lease.Token(), Try: true})
		require.NoError(t, err)
		require.Greater(t, reply.Fence, lease.Fence())
		client.Link.DropNotifications()
		next, start := begin(t.Context(), client.Mutex("x").Lock), time.Now()
		require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrRevoked)
		next.granted(t)
		assert.Equal(t, start, next.at)
	})
}

// What Redis refuses for a while is sent again until it is accepted, and the next waiter has the lock then.
//
//fairlock:fault Redis refuses writes for a while when a lock is released (READONLY, LOADING, NOREPLICAS, …): Unlock retries with back-off, and the next waiter has the lock as soon as Redis accepts it
func TestUnlock_RetriesWhatRedisRefusesForAWhile(t *testing.T) {
	bubbles(t, map[string]string{
		"read-only": readOnly, "cannot save": misconf, "loading": "LOADING Redis is loading the dataset in memory",
		"no replicas":           "NOREPLICAS Not enough good replicas to write.",
		"no master":             "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"read-only in a script": "ERR Error running script (call to f_0): @user_script:12: @user_script: 12: -" + readOnly,
	}, func(t *testing.T, s *fairlocktest.Server, _, refusal string) {
		client := s.Client(fairlock.Config{})
		sent := record(client)
		lease := hold(t, client.Mutex("x").Lock)
		next := begin(t.Context(), s.Client(fairlock.Config{}).Mutex("x").Lock)
		sent.reset()
		accepts := time.Now().Add(150 * time.Millisecond)
		s.Miniredis.SetError(refusal)
		time.AfterFunc(time.Until(accepts), func() { s.Miniredis.SetError("") })
		unlock(t, lease)
		next.granted(t)
		all := sent.requests()
		assert.Equal(t, all[len(all)-1].at, next.at)
		for i, r := range all {
			assert.Equal(t, i < len(all)-1, r.at.Before(accepts))
			if i > 0 { // 20 ms, doubled each time, less up to a half
				longest := 10 * time.Millisecond << i
				assert.LessOrEqual(t, r.at.Sub(all[i-1].at), longest)
				assert.Greater(t, r.at.Sub(all[i-1].at), longest/2)
			}
		}
	})
}

// A refused Unlock tries for 3 s. Then the release goes on in the background, and another Unlock tries again.
//
//fairlock:fault Redis refuses to release a lock (rights, password, memory, a proxy): Unlock tries for 3 s, then returns ErrRefused; the release goes on each second until the lease would have ended, and Unlock may be called again
func TestUnlock_Refused(t *testing.T) {
	bubbles(t, map[string]bool{"called again": true, "in the background": false},
		func(t *testing.T, s *fairlocktest.Server, _ string, again bool) {
			client := s.Client(fairlock.Config{})
			lease, start := hold(t, client.Mutex("x").Lock), time.Now()
			sent := record(client)
			s.Miniredis.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
			err := lease.Unlock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrRefused)
			require.NotErrorIs(t, err, fairlock.ErrLost)
			assert.Equal(t, 3*time.Second, time.Since(start))
			pass(2 * time.Second)
			assert.LessOrEqual(t, len(sent.requests()), 7)
			s.Miniredis.SetError("")
			if again {
				unlock(t, lease)
			} else {
				pass(1100 * time.Millisecond)
			}
			s.Mutex("x").AssertFree()
			unlock(t, lease)
		})
	bubble(t, func(t *testing.T, s *fairlocktest.Server) { // what no retry cures is returned at once
		lease, start := hold(t, s.Client(fairlock.Config{}).Mutex("x").Lock), time.Now()
		s.Miniredis.SetError("WRONGTYPE x")
		require.ErrorContains(t, lease.Unlock(t.Context()), "WRONGTYPE")
		assert.Equal(t, start, time.Now())
		s.Miniredis.SetError("")
		unlock(t, lease)
		s.AssertNothingLeft()
	})
}

// However often a refused Unlock is called, one release goes on in the background.
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

// Unlock ends when the lease would have ended, and names the reason.
//
//fairlock:fault Unlock cannot reach Redis: it tries until the lease would have ended, then returns an error that is not ErrLost; an error that no retry cures is returned at once, and Unlock may be called again
func TestUnlock_EndsWithTheLease(t *testing.T) {
	type example struct {
		fail   func(*testing.T, *fairlocktest.Server, *fairlocktest.Client)
		reason string
	}
	bubbles(t, map[string]example{
		"refused": {func(_ *testing.T, s *fairlocktest.Server, _ *fairlocktest.Client) {
			s.Miniredis.SetError("READONLY for ever")
		}, "READONLY"},
		"unreachable": {func(_ *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) { c.Link.Hang() },
			"redis is unreachable"},
		"cut": {func(_ *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) { c.Link.Cut() },
			"connection refused"},
		"no connection is left": {func(t *testing.T, _ *fairlocktest.Server, c *fairlocktest.Client) {
			conn := c.Redis.Conn() // takes the only one
			require.NoError(t, conn.Ping(t.Context()).Err())
			t.Cleanup(func() { _ = conn.Close() })
		}, "redis is unreachable"},
	}, func(t *testing.T, s *fairlocktest.Server, name string, c example) {
		client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) {
			sendOnce(o)
			if name == "no connection is left" { // in one bubble only: go-redis shares timers between pools that are empty
				o.PoolSize, o.PoolTimeout = 1, time.Hour
			}
		})
		lease := hold(t, client.Mutex("x").Lock)
		c.fail(t, s, client)
		err := lease.Unlock(t.Context())
		assert.Equal(t, lease.Deadline(), time.Now())
		require.ErrorContains(t, err, c.reason)
		require.NotErrorIs(t, err, fairlock.ErrLost)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
	})
}

// Unlock retries until the network is back. Several calls at once return the same, also if the lock was taken by force.
//
//fairlock:fault Unlock cannot reach Redis
//fairlock:promise Force-release
func TestUnlock_ConcurrentCallsAgree(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var j journal
		client := s.Client(fairlock.Config{Trace: j.trace()})
		sent := record(client)
		lease := hold(t, client.Mutex("x").Lock)
		client.Link.Cut()
		errs := make(chan error)
		for range 10 {
			go func() { errs <- lease.Unlock(t.Context()) }()
		}
		pass(time.Second)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
		sent.reset()
		client.Link.Mend()
		for range 10 {
			require.NoError(t, <-errs)
		}
		assert.Len(t, sent.requests(), 1)
		s.AssertNothingLeft()

		lease = hold(t, client.Mutex("x").Lock)
		s.Mutex("x").ForceRelease()
		for range 10 {
			go func() { errs <- lease.Unlock(t.Context()) }()
		}
		for range 10 {
			require.ErrorIs(t, <-errs, fairlock.ErrRevoked)
		}
		assert.Len(t, j.of("Ended"), 2)
	})
}

// go-redis resends what a replica refuses. Unlock cannot tell then which copy has released the lock, also if none has.
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

// A release that worked is not undone by Close, or by the end of TTL: Unlock returns the same again.
//
//fairlock:promise Unlock
func TestUnlock_AgainAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		released := hold(t, client.Mutex("released").Lock)
		taken := hold(t, client.Mutex("taken").Lock)
		held := hold(t, client.Mutex("held").Lock)
		s.Miniredis.Del("fairlock:{taken}:lock")
		for range 2 {
			unlock(t, released)
			require.ErrorIs(t, taken.Unlock(t.Context()), fairlock.ErrRevoked)
			require.NoError(t, client.Close())
			pass(ttl)
		}
		require.ErrorIs(t, held.Unlock(t.Context()), fairlock.ErrClosed)
	})
}

// Close waits for the release that is in flight.
//
//fairlock:promise Close
func TestClose_LetsAReleaseFinish(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("x").Lock)
		client.Link.Delay(50*time.Millisecond, 50*time.Millisecond)
		start := time.Now()
		closed := make(chan time.Duration, 1)
		time.AfterFunc(20*time.Millisecond, func() {
			_ = client.Close()
			closed <- time.Since(start)
		})
		unlock(t, lease)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, 100*time.Millisecond, <-closed)
		require.ErrorIs(t, lease.Err(), fairlock.ErrUnlocked)
		s.AssertNothingLeft()
	})
}

// No callback is called while the lease is locked: it may call Unlock.
func TestTrace_CallbacksMayUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var lease *fairlock.Lease
		var lost, released int
		client := s.Client(fairlock.Config{Trace: &fairlock.Trace{
			Ended: func(i fairlock.EndedInfo) {
				if i.Err != nil {
					lost++
				} else {
					released++
				}
				assert.Equal(t, i.Err, errors.Unwrap(lease.Unlock(context.Background())))
			},
		}})
		for _, taken := range []bool{false, true} {
			lease = hold(t, client.Mutex("x").Lock)
			if taken {
				s.Miniredis.Del("fairlock:{x}:lock")
			}
			err := lease.Unlock(t.Context())
			assert.Equal(t, taken, err != nil)
		}
		assert.Equal(t, 1, lost)
		assert.Equal(t, 1, released)
	})
}

// Detach ends the lease here, and leaves the lock held for a client that resumes it. Nothing is sent for it any more.
//
//fairlock:promise Detach: the lease ends here, its lock stays held for whom resumes it, and nothing more is sent
func TestLease_Detach(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var j journal
		client := s.Client(fairlock.Config{Trace: j.trace()})
		sent := record(client)
		lease := hold(t, client.Mutex("x").Lock)
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		pass(ttl / 6)
		sent.reset()
		detach(t, lease)
		<-lease.Done()
		<-ctx.Done()
		require.ErrorIs(t, lease.Err(), fairlock.ErrDetached)
		require.ErrorIs(t, context.Cause(ctx), fairlock.ErrDetached)
		pass(ttl / 6)
		s.Mutex("x").AssertHeldBy(client.Name())
		resumed, err := s.Client(fairlock.Config{}).Mutex("x").Resume(t.Context(), lease.Handle())
		require.NoError(t, err)
		pass(2 * ttl)
		detach(t, lease)
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrDetached)
		require.ErrorIs(t, lease.Renew(t.Context()), fairlock.ErrDetached)
		require.NoError(t, client.Close())
		assert.Empty(t, sent.requests())
		require.NoError(t, resumed.Renew(t.Context()))
		assert.Len(t, j.of("Granted"), 1)
		closed := j.of("Ended")
		require.Len(t, closed, 1)
		require.ErrorIs(t, closed[0].info.(fairlock.EndedInfo).Err, fairlock.ErrDetached)
		assert.Equal(t, ttl/6, closed[0].info.(fairlock.EndedInfo).Held)
		unlock(t, resumed)
	})
}

// A renewal that is under way when Detach is called brings about no release, whatever becomes of it.
//
//fairlock:promise Detach
func TestLease_DetachDuringARenewal(t *testing.T) {
	bubbles(t, map[string]bool{"it has no reply": false, "it does not hold the lock": true},
		func(t *testing.T, s *fairlocktest.Server, _ string, taken bool) {
			client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) { o.ReadTimeout = -1 })
			client.Link.DropReply() // so that a copy of the acquire may still arrive
			lease := hold(t, client.Mutex("x").Lock)
			sent := record(client)
			client.Link.Delay(interval, interval)
			if !taken {
				client.Link.Hang()
			}
			renewed := make(chan error)
			go func() { renewed <- lease.Renew(t.Context()) }()
			synctest.Wait()
			detach(t, lease)
			if taken {
				s.Mutex("x").ForceRelease()
			}
			require.ErrorIs(t, <-renewed, fairlock.ErrDetached)
			pass(2 * ttl)
			client.Link.Mend()
			pass(2 * ttl)
			for _, r := range sent.requests() {
				assert.Equal(t, "renew", r.verb)
			}
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
