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

func never(context.Context) error { return errors.New("f was called") }

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
			v, err := fairlock.DoValue(t.Context(), client.Mutex("x").Do, func(ctx context.Context) (string, error) {
				return leaseIn(ctx).Name(), want
			})
			require.Equal(t, "x", v)
			require.ErrorIs(t, err, want)
		}
		s.Mutex("x").HoldAs("holder")
		v, err := fairlock.DoValue(t.Context(), client.Mutex("x").TryDo, func(context.Context) (int, error) { return 1, nil })
		require.Zero(t, v)
		require.ErrorIs(t, err, fairlock.ErrBusy)
	})
}

// No time is left for the last mutex.
//
//fairlock:promise Several mutexes at once
func TestDoAll_MaxWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const maxWait = time.Second
		client := s.Client(fairlock.Config{Trace: &fairlock.Trace{
			Granted: func(fairlock.GrantedInfo) { time.Sleep(maxWait) },
		}})
		s.Mutex("b").HoldAs("web-3")
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		defer cancel()
		err := client.DoAll(ctx, []string{"b", "a"}, never, fairlock.WithMaxWait(maxWait))
		require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
		require.ErrorContains(t, err, `"b"`)
		assert.LessOrEqual(t, time.Since(start), maxWait+1)
		s.Mutex("a").AssertFree()
	})
}

// Close ends a call that waits for its second mutex.
//
//fairlock:promise Several mutexes at once
func TestDoAll_Close(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		s.Mutex("b").HoldAs("holder")
		q := begin(t.Context(), func(ctx context.Context) (*fairlock.Lease, error) {
			return nil, client.DoAll(ctx, []string{"a", "b"}, never)
		})
		require.NoError(t, client.Close())
		<-q.done
		require.ErrorIs(t, q.err, fairlock.ErrClosed)
		s.Mutex("b").AssertQueue()
	})
}
