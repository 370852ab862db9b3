package errs_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/errs"
)

// The error of a ctx that the client has stopped is the client's. A cause of the caller's is added to the error of ctx,
// even if it is the Closed of another client.
func TestEnded(t *testing.T) {
	for _, c := range []struct {
		cause error
		want  string
	}{
		{errs.StoppedBy(errs.Closed), "client is closed"},
		{errs.Closed, "context canceled: client is closed"},
		{nil, "context canceled"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(c.cause)
		err := errs.Ended(ctx)
		assert.EqualError(t, err, c.want)
		assert.Equal(t, c.want != "client is closed", errors.Is(err, context.Canceled))
	}
}

// A Tried tells both errors, but no timeout of a connection is one of the caller's ctx.
func TestTried(t *testing.T) {
	err := error(&errs.Tried{Err: errs.Unreachable, Failure: io.EOF, Lasted: 1500 * time.Microsecond})
	assert.EqualError(t, err, "redis is unreachable: tried for 2ms: EOF")
	assert.ErrorIs(t, err, errs.Unreachable)
	assert.ErrorIs(t, err, io.EOF)
	err = &errs.Tried{Err: errs.Closed, Failure: context.DeadlineExceeded}
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
	var timeout interface{ Timeout() bool }
	assert.ErrorAs(t, err, &timeout)
}
