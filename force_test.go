package fairlock_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
)

// deaf is a connection that loses the answer to the second script.
type deaf struct {
	net.Conn
	scripts *atomic.Int32 // asked for so far
}

func (d deaf) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("evalsha")) {
		d.scripts.Add(1)
	}
	return d.Conn.Write(p)
}

func (d deaf) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if d.scripts.CompareAndSwap(2, 3) {
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}

// It is asked again, and the next one has the lock by then: that one keeps it.
func TestForceReleaseWhoseAnswerIsLostTakesFromNobodyElse(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		thrice(t, func(t *testing.T) bool {
			c := b.steady(t, fairlock.Config{})
			_, err := c.Mutex("other").ForceRelease(context.Background()) // the scripts are there: inspect, and the one that takes
			require.NoError(t, err)
			first := lock(t, c.Mutex("x"))
			w := enqueue(within(t, soon), c.Mutex("x"))
			queued(t, c.Mutex("x"), 1)

			options, scripts := b.options(), new(atomic.Int32)
			dial := redis.NewDialer(options)
			if options.Dialer != nil {
				dial = options.Dialer
			}
			options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return deaf{conn, scripts}, err
			}
			rdb := redis.NewClient(options)
			defer func() { _ = rdb.Close() }()
			held, err := newClient(t, rdb, fairlock.Config{}).Mutex("x").ForceRelease(context.Background())
			require.NoError(t, err)
			assert.True(t, held)
			second := w.got(t)
			require.NoError(t, second.Renew(context.Background()))
			require.ErrorIs(t, first.Renew(context.Background()), fairlock.ErrLost)
			unlock(t, second)
			return scripts.Load() == 4 // or inspect took over 50 ms, and was asked again
		})
	})
}
