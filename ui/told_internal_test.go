package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// An error that only says that no reply came is told in plain words, and one that says more as it is.
func TestTold(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EAGAIN)}, os.ErrDeadlineExceeded,
		context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
	} {
		require.Equal(t, "Redis does not answer", told(fmt.Errorf("wrapped: %w", err)).Error(), err)
	}
	for _, err := range []error{
		&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect",
			syscall.ECONNREFUSED)}, errors.New("x509: unknown authority"),
	} {
		require.Equal(t, err, told(err))
	}
	require.NoError(t, told(nil))
}
