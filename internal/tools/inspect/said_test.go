package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// What a server says to a connection that it closes at once is the error, and a reply. It is dialled for no other
// error.
func TestSaid(t *testing.T) {
	t.Parallel()
	says, dialled := "", 0
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		dialled++
		server, client := net.Pipe()
		go func() {
			_, _ = io.WriteString(server, says)
			_ = server.Close()
		}()
		return client, nil
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	closed := fmt.Errorf("redis at x: %w", syscall.EPIPE)
	for text, want := range map[string]string{
		"-DENIED Redis is running in protected mode\r\n-more": "DENIED Redis is running in protected mode",
		"-ERR max number of clients reached\r\n":              "ERR max number of clients reached",
		"":                                                    closed.Error(),
		"HTTP/1.1 400":                                        closed.Error(),
	} {
		says = text
		err := Said(t.Context(), rdb, closed)
		require.EqualError(t, err, want)
		require.Equal(t, want != closed.Error(), Refused(err))
	}
	require.Equal(t, 4, dialled)
	for _, err := range []error{nil, errors.New("no"), context.DeadlineExceeded, syscall.ECONNREFUSED} {
		require.Equal(t, err, Said(t.Context(), rdb, err))
	}
	require.Equal(t, 4, dialled)
}
