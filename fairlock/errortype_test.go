package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

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
		{fmt.Errorf("%w: %w", fairlock.ErrLost, fairlock.ErrTaken), "taken"},
		{fmt.Errorf("%w: %w: %w", fairlock.ErrLost, fairlock.ErrUnreachable, context.DeadlineExceeded), "unreachable"},
		{&fairlock.HeldError{Err: context.DeadlineExceeded}, "deadline_exceeded"},
		{context.Canceled, "canceled"},
		{fmt.Errorf("%w: %w", context.Canceled, fairlock.ErrClosed), "canceled"},
		{fairlock.ErrClosed, "closed"},
		{fairlock.ErrDetached, "detached"},
		{fairlock.ErrUnlocked, "unlocked"},
		{&fairlock.CapacityError{Want: 3, Have: 2}, "capacity"},
		{refusal("NOPERM no rights"), "refused"},
		{io.EOF, "_OTHER"},
		{errors.Join(io.EOF, fairlock.ErrClosed), "closed"},
	} {
		assert.Equal(t, c.want, fairlock.ErrorType(c.err), "%v", c.err)
		if c.err != nil {
			assert.Equal(t, c.want, fairlock.ErrorType(&fairlock.Error{Op: "lock", Name: "x", Err: c.err}), "%v", c.err)
		}
	}
}
