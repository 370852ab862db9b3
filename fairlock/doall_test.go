package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// doAll makes an acquire of DoAll, without a lease.
func doAll(c *fairlocktest.Client, names []string, f func(context.Context) error, options ...fairlock.Option) acquire {
	return func(ctx context.Context) (*fairlock.Lease, error) { return nil, c.DoAll(ctx, names, f, options...) }
}

func nothing(context.Context) error { return nil }

func never(context.Context) error { return errors.New("f was called") }

// Calls that name the same mutexes in two orders take turns, in order, without a pause between them.
//
//fairlock:promise Several mutexes at once: DoAll locks them in the order of their bytes, runs f under all of them, and releases all at once; two calls cannot deadlock
func TestDoAll_TwoOrders(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const calls, each = 100, 10 * time.Millisecond
		clients := []*fairlocktest.Client{s.Client(fairlock.Config{}), s.Client(fairlock.Config{})}
		for _, c := range clients {
			listen(t, c)
		}
		var all []*acquisition
		var ran []int
		start := time.Now()
		for i := range calls {
			names := [][]string{{"a", "b"}, {"b", "a", "b"}}[i%2]
			all = append(all, begin(t.Context(), doAll(clients[i/2%2], names, func(ctx context.Context) error {
				ran = append(ran, i) // under the locks
				time.Sleep(each)
				return ctx.Err()
			})))
		}
		for _, q := range all {
			<-q.done
			require.NoError(t, q.err)
		}
		assert.Equal(t, calls*each, all[calls-1].at.Sub(start))
		require.Len(t, ran, calls)
		for i, n := range ran {
			require.Equal(t, i, n)
		}
		pass(time.Second)
		for _, name := range []string{"a", "b"} {
			s.Mutex(name).AssertFree()
			s.Mutex(name).AssertQueue()
		}
	})
}

// f has the lease of each mutex. A call without names, or with bad ones, or under a lease of one of them, sends
// nothing.
//
//fairlock:fault Bad input
func TestDoAll_Input(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		sent := record(client)
		many := make([]string, 101)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for field, bad := range map[string][]error{
			"names": {client.DoAll(t.Context(), nil, never), client.DoAll(t.Context(), many, never)},
			"name": {
				client.DoAll(t.Context(), []string{"a", ""}, never),
				client.DoAll(t.Context(), []string{"a", strings.Repeat("x", 1025)}, never),
			},
			"TTL":    {client.DoAll(t.Context(), []string{"a"}, never, fairlock.WithTTL(1))},
			"option": {client.DoAll(t.Context(), []string{"a"}, never, nil)},
		} {
			for _, err := range bad {
				require.ErrorIs(t, err, fairlock.ErrInvalid)
				var e *fairlock.FieldError
				require.ErrorAs(t, err, &e)
				assert.Equal(t, field, e.Field)
				var failed *fairlock.Error
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, "doall", failed.Op)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, client.DoAll(ended, []string{"a"}, never), context.Canceled)
		require.Empty(t, sent.requests())

		err := client.DoAll(t.Context(), append([]string{"b", "a", "a"}, many[:98]...), func(ctx context.Context) error {
			for _, name := range []string{"a", "b", "97"} {
				lease, ok := client.Mutex(name).LeaseFromContext(ctx)
				require.True(t, ok)
				require.Equal(t, name, lease.Name())
			}
			last, _ := fairlock.LeaseFromContext(ctx)
			require.Equal(t, "b", last.Name())
			before := len(sent.requests())
			err := client.DoAll(ctx, []string{"A", "b"}, never)
			require.ErrorIs(t, err, fairlock.ErrReentrant)
			require.ErrorContains(t, err, `doall "b": `)
			require.Len(t, sent.requests(), before)
			return client.DoAll(ctx, []string{"c"}, nothing)
		})
		require.NoError(t, err)
	})
}

// WithMaxWait bounds the whole wait, even if no time is left for the last mutex.
//
//fairlock:promise Several mutexes at once
func TestDoAll_MaxWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const maxWait, slow = time.Second, time.Second / 4
		client := s.Client(fairlock.Config{Trace: &fairlock.Trace{Granted: func(i fairlock.GrantedInfo) {
			if i.Name == "a" {
				time.Sleep(slow)
			}
		}}})
		listen(t, client)
		for _, first := range []time.Duration{maxWait / 2, maxWait - slow - 1, maxWait - slow} { // no time is left
			a, b := s.Mutex("a").HoldAs("holder"), s.Mutex("b").HoldAs("web-3")
			time.AfterFunc(first, func() { assert.NoError(t, a.Unlock(context.Background())) })
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), hang)
			err := client.DoAll(ctx, []string{"b", "a"}, never, fairlock.WithMaxWait(maxWait))
			cancel()
			assert.LessOrEqual(t, time.Since(start), maxWait+1)
			require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
			var failed *fairlock.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, "b", failed.Name)
			pass(time.Millisecond)
			s.Mutex("a").AssertFree()
			s.Mutex("b").AssertQueue()
			unlock(t, b)
		}
	})
}

// What goes wrong while the second mutex is waited for, or while f runs: the error names the mutex that was lost or not
// locked. Nothing stays held, and nothing stays queued.
//
//fairlock:promise Several mutexes at once
func TestDoAll_Faults(t *testing.T) {
	type world struct {
		s      *fairlocktest.Server
		client *fairlocktest.Client
		cancel context.CancelFunc
	}
	type example struct {
		waits bool // for b; else f runs
		fault func(w world)
		want  error // nil: it goes on until b is free, and f returns
		name  string
	}
	bubbles(t, map[string]example{
		"the first is lost while the second is waited for": {true, func(w world) { w.s.Mutex("a").ForceRelease() },
			fairlock.ErrLost, "a"},
		"the first is lost":  {false, func(w world) { w.s.Mutex("a").ForceRelease() }, fairlock.ErrLost, "a"},
		"the second is lost": {false, func(w world) { w.s.Mutex("b").ForceRelease() }, fairlock.ErrLost, "b"},
		"an outage begins while the second is waited for": {true, func(w world) {
			w.client.Link.Cut()
			time.AfterFunc(2*maxOutage, w.client.Link.Mend)
		}, fairlock.ErrUnreachable, "b"},
		"ctx ends while the second is waited for": {true, func(w world) { w.cancel() }, context.Canceled, "b"},
		"ctx ends": {false, func(w world) { w.cancel() }, context.Canceled, ""},
		"Shutdown while the second is waited for": {true, func(w world) { begin(context.Background(), shuts(w.client)) }, nil,
			""},
		"Shutdown": {false, func(w world) { begin(context.Background(), shuts(w.client)) }, nil, ""},
		"Close while the second is waited for": {true, func(w world) { begin(context.Background(), closes(w.client)) },
			fairlock.ErrClosed, "a"},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c example) {
		client := s.Client(fairlock.Config{TTL: 20 * time.Second})
		var holder *fairlock.Lease
		if c.waits {
			holder = s.Mutex("b").HoldAs("holder")
			time.AfterFunc(8*time.Second, func() { assert.NoError(t, holder.Unlock(context.Background())) })
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		run := false
		q := begin(ctx, doAll(client, []string{"b", "a"}, func(ctx context.Context) error {
			run = true
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(30 * time.Second):
				return nil
			}
		}, fairlock.WithMaxOutage(maxOutage)))
		pass(interval / 2)
		c.fault(world{s, client, cancel})
		pass(time.Minute)
		require.False(t, q.pending())
		assert.Equal(t, c.want == nil || !c.waits, run)
		require.ErrorIs(t, q.err, c.want)
		var failed *fairlock.Error
		if errors.As(q.err, &failed) {
			assert.Equal(t, c.name, failed.Name)
		}
		pass(time.Minute)
		for _, name := range []string{"a", "b"} {
			s.Mutex(name).AssertFree()
			s.Mutex(name).AssertQueue()
		}
		assert.Zero(t, client.Stats())
	})
}

// shuts and closes are the ends of a client.
func shuts(c *fairlocktest.Client) acquire {
	return func(ctx context.Context) (*fairlock.Lease, error) { return nil, c.Shutdown(ctx) }
}

func closes(c *fairlocktest.Client) acquire {
	return func(context.Context) (*fairlock.Lease, error) { return nil, c.Close() }
}

// A panic of f passes, and releases all mutexes.
//
//fairlock:promise Several mutexes at once
func TestDoAll_Panic(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		require.PanicsWithValue(t, "boom", func() {
			_ = client.DoAll(t.Context(), []string{"a", "b"}, func(context.Context) error { panic("boom") })
		})
		for _, name := range []string{"a", "b"} {
			s.Mutex(name).AssertFree()
		}
	})
}

// DoValue returns the value of f, even with an error, and the error of Do.
func TestDoValue(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		errFull := errors.New("full")
		for _, want := range []error{nil, errFull} {
			f := func(ctx context.Context) (string, error) { return leaseIn(ctx).Name(), want }
			v, err := fairlock.DoValue(t.Context(), client.Mutex("x").Do, f)
			require.Equal(t, "x", v)
			require.ErrorIs(t, err, want)
			v, err = fairlock.DoValue(t.Context(), func(ctx context.Context, f func(context.Context) error) error {
				return client.Semaphore("y", 2).Do(ctx, 2, f)
			}, f)
			require.Equal(t, "y", v)
			require.ErrorIs(t, err, want)
		}
		s.Mutex("x").HoldAs("holder")
		v, err := fairlock.DoValue(t.Context(), client.Mutex("x").TryDo, func(context.Context) (int, error) { return 1, nil })
		require.Zero(t, v)
		require.ErrorIs(t, err, fairlock.ErrBusy)
	})
}

// Each kind has its name.
func TestMutex_Name(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := s.Client(fairlock.Config{})
		for _, l := range []interface{ Name() string }{
			c.Mutex("x"), c.RWMutex("x"), c.Semaphore("x", 1), c.KeyedSemaphore("x", 1), c.KeyedSemaphore("x", 1).Key("k"),
		} {
			assert.Equal(t, "x", l.Name())
		}
		assert.Empty(t, fairlock.Mutex{}.Name())
	})
}

// The first lease expires while the second mutex is waited for, since renewals are refused. Then the wait ends.
func TestDoAll_FirstExpires(t *testing.T) {
	bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		s.Mutex("b").HoldAs("holder")
		time.AfterFunc(time.Second, func() { s.Miniredis.SetError("NOPERM User u has no permissions") })
		start := time.Now()
		err := client.DoAll(t.Context(), []string{"a", "b"}, never)
		require.ErrorIs(t, err, fairlock.ErrExpired)
		assert.Less(t, time.Since(start), ttl)
	})
}

// afterTheFirst has DoAll wait for 2 s between the grants of a and b, so that the lease of a ends first.
func afterTheFirst() *fairlock.Trace {
	return &fairlock.Trace{Granted: func(i fairlock.GrantedInfo) {
		if i.Name == "a" {
			time.Sleep(2 * time.Second)
		}
	}}
}

// Redis hangs when f returns. No lease expires while another one is released.
func TestDoAll_ReleasesHang(t *testing.T) {
	bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{Trace: afterTheFirst()})
		err := client.DoAll(t.Context(), []string{"a", "b"}, func(context.Context) error {
			client.Link.Hang()
			return nil
		})
		require.ErrorIs(t, err, fairlock.ErrUnreachable)
		require.NotErrorIs(t, err, fairlock.ErrLost)
		client.Link.Mend()
	})
}

// This process stands still until the first lease is over. The ctx of f has ended at its first look.
func TestDoAll_Paused(t *testing.T) {
	bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
		clk := s.LocalClock()
		client := s.Client(fairlock.Config{Clock: clk, Trace: afterTheFirst()})
		err := client.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
			a, _ := client.Mutex("a").LeaseFromContext(ctx)
			client.Link.Hang()
			clk.Pause()
			time.Sleep(time.Until(a.Deadline()))
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			client.Link.Mend()
			clk.Resume()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, fairlock.ErrExpired)
	})
}
