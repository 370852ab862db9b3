package inspect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// farewell is what a server says to a connection that it closes at once. It is a reply: a redis.Error.
type farewell string

func (e farewell) Error() string { return string(e) }

func (farewell) RedisError() {}

// greeting is how long the server may take to say why it closes a connection.
const greeting = time.Second

// Said returns the reason that the server gives for closing a connection, such as protected mode or too many clients.
// Often go-redis has written to the connection by then, and its error only tells that it is closed. For any other
// error, and if the server says nothing, it returns the error itself.
func Said(ctx context.Context, rdb redis.UniversalClient, err error) error {
	client, single := rdb.(*redis.Client)
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
	if !single || !closed || Refused(err) {
		return err
	}
	o := client.Options()
	ctx, cancel := context.WithTimeout(ctx, greeting) //nolint:forbidigo // the command and the page have no other clock
	defer cancel()
	conn, dialled := o.Dialer(ctx, o.Network, o.Addr)
	if dialled != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	const most = 1 << 10 // in protected mode, Redis says what to do in some hundred bytes
	line, _ := bufio.NewReader(io.LimitReader(conn, most)).ReadString('\n')
	if text, isError := strings.CutPrefix(strings.TrimSpace(line), "-"); isError {
		return farewell(text)
	}
	return err
}
