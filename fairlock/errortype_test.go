package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
)

func TestErrorType(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{&fairlock.FieldError{Field: "TTL"}, "invalid"},
		{fairlock.ErrReentrant, "reentrant"},
		{&fairlock.HeldError{Err: fairlock.ErrBusy}, "busy"},
		{fairlock.ErrQueueFull, "queue_full"},
		{&fairlock.HeldError{Err: fairlock.ErrWaitTimeout}, "wait_timeout"},
		{fmt.Errorf("%w: %w", fairlock.ErrLost, fairlock.ErrExpired), "expired"},
		{fmt.Errorf("%w: %w", fairlock.ErrLost, fairlock.ErrRevoked), "revoked"},
		{fmt.Errorf("%w: %w: %w", fairlock.ErrLost, fairlock.ErrUnreachable, context.DeadlineExceeded), "unreachable"},
		{&fairlock.HeldError{Err: context.DeadlineExceeded}, "deadline_exceeded"},
		{context.Canceled, "canceled"},
		{fmt.Errorf("%w: %w", context.Canceled, fairlock.ErrClosed), "canceled"},
		{fairlock.ErrClosed, "closed"},
		{fairlock.ErrDetached, "detached"},
		{fairlock.ErrUnlocked, "unlocked"},
		{&fairlock.CapacityError{Want: 3, Have: 2}, "capacity"},
		{fmt.Errorf("%w: %w: %w", fairlock.ErrLost, fairlock.ErrExpired, fairlock.ErrRefused), "refused"},
		{fmt.Errorf("%w: %w", context.DeadlineExceeded, fairlock.ErrRefused), "refused"},
		{refusal("WRONGTYPE x"), "broken"},
		{io.EOF, "_OTHER"},
		{errors.Join(io.EOF, fairlock.ErrClosed), "closed"},
	} {
		assert.Equal(t, c.want, fairlock.ErrorType(c.err), "%v", c.err)
		if c.err != nil {
			assert.Equal(t, c.want, fairlock.ErrorType(&fairlock.Error{Op: "lock", Name: "x", Err: c.err}), "%v", c.err)
		}
	}
}

// An error says what was wanted and what there is.
func TestErrors_Texts(t *testing.T) {
	full := &fairlock.QueueFullError{Waiting: 1, Limit: 1, Key: "acme"}
	require.EqualError(t, full, fairlock.ErrQueueFull.Error()+`: key "acme" has 1 waiting, limit 1`)
	full.Key = ""
	require.EqualError(t, full, fairlock.ErrQueueFull.Error()+": 1 waiting, limit 1")
	c, err := fairlock.New(redis.NewClient(&redis.Options{}), fairlock.Config{})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.KeyedSemaphore("x", 5).Key("acme", fairlock.WithKeyLimit(2)).Acquire(t.Context(), 3)
	require.ErrorContains(t, err, "3 permits requested, key limit is 2")
	_, err = c.Semaphore("x", 5).Acquire(t.Context(), 6)
	require.ErrorContains(t, err, "6 permits requested, the semaphore has 5")
}
